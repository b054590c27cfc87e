"""`g.branch` and `g.schema` over HTTP."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.api.branches import Branches
from omnigraph.api.remote.decode import RemotePlan, decode_schema_receipt
from omnigraph.api.remote.over_http import RemoteWriteOptions, missing_attribute, over_http
from omnigraph.api.schema import Schema, read_schema
from omnigraph.commit.publish_plan import Receipt
from omnigraph.history.decide_row import Resolution
from omnigraph.history.report import MergeReport

if TYPE_CHECKING:
    from omnigraph.api.remote.graph import RemoteGraph


class RemoteBranches:
    """`g.branch`: create, list, merge and delete branches."""

    def __init__(self, graph: RemoteGraph) -> None:
        self._graph = graph

    @over_http(Branches.create)
    def create(self, name: str, source: str | None, write: RemoteWriteOptions) -> RemoteGraph:
        body = {"name": name, "source": source or self._graph.branch_name, "message": write.message}
        self._graph._endpoint.write("POST", "branches", body)
        return self._graph.on_branch(name)

    def list(self) -> list[str]:
        names: list[str] = self._graph._endpoint.get("branches")["branches"]
        return names

    @over_http(Branches.delete)
    def delete(self, name: str, write: RemoteWriteOptions) -> None:
        self._graph._endpoint.write("DELETE", "branches", query={"name": name, "message": write.message})

    @over_http(Branches.merge)
    def merge(
        self,
        source: str,
        into: str | None,
        cell_level: bool,
        resolve: Resolution | None,
        per_entity: Mapping[tuple[str, str], Resolution] | None,
        dry_run: bool,
        delete_branch: bool,
        write: RemoteWriteOptions,
    ) -> MergeReport:
        """Merge the newest commit of `source` into `into` (by default this handle's branch), in one commit."""
        resolutions = [{"table_key": key, "id": row, "take": take} for (key, row), take in (per_entity or {}).items()]
        body = {
            "source": source,
            "into": into or self._graph.branch_name,
            "cell_level": cell_level,
            "resolve": resolve,
            "per_entity": resolutions,
            "dry_run": dry_run,
            "delete_branch": delete_branch,
            **write.to_json(),
        }
        return MergeReport(**self._graph._endpoint.write("POST", "branches/merge", body, write.client_key).json())


class RemoteSchema:
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    def __init__(self, graph: RemoteGraph) -> None:
        self._graph = graph

    @property
    def source(self) -> str:
        """The text exactly as it was given."""
        return str(self._graph._endpoint.read("schema")["source"])

    @property
    def types(self) -> list[str]:
        """All types as `node:Name` and `edge:Name`."""
        return list(self._graph._endpoint.read("schema")["types"])

    @over_http(Schema.plan)
    def plan(self, schema: str | os.PathLike[str]) -> RemotePlan:
        body = {"schema": read_schema(schema)[0], "branch": self._graph.branch_name}
        document = self._graph._endpoint.ask("schema/plan", body).json()
        return RemotePlan({name: value for name, value in document.items() if name != "branch"})

    @over_http(Schema.apply)
    def apply(self, schema: str | os.PathLike[str], allow_data_loss: bool, write: RemoteWriteOptions) -> Receipt:
        body = {
            "schema": read_schema(schema)[0],
            "branch": self._graph.branch_name,
            "allow_data_loss": allow_data_loss,
            "confirm": allow_data_loss,
            **write.to_json(),
        }
        return decode_schema_receipt(self._graph._endpoint.write("POST", "schema/apply", body, write.client_key))

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(name, "RemoteSchema", Schema)
