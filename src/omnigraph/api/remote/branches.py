"""Branches and schema over HTTP, and answers as the facade's own values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import httpx

from omnigraph.api.branches import Branches
from omnigraph.api.remote.refusals import missing, refuse_options
from omnigraph.api.schema import Schema, read_schema
from omnigraph.api.view import CommitInfo
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import Unsupported
from omnigraph.history.diff import Change
from omnigraph.history.report import MergeReport
from omnigraph.schema.change_steps import Refusal, SchemaChangeRefused

if TYPE_CHECKING:
    from omnigraph.api.remote.graph import RemoteGraph


@dataclass(frozen=True, slots=True)
class Writing:
    """What every write verb takes; the actor is the token's and cannot be chosen."""

    actor: str | None = None
    message: str | None = None
    client_key: str | None = None
    if_commit: str | None = None

    def __post_init__(self) -> None:
        if self.actor is not None:
            raise Unsupported(
                "over HTTP the actor comes from the token",
                code="actor_from_token",
                advice="Leave out `actor`, and connect with the token of the one who acts",
                actor=self.actor,
            )

    def body(self) -> dict[str, Any]:
        return {"message": self.message, "if_commit": self.if_commit}


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """One commit of the feed."""

    commit: CommitInfo
    changes: tuple[Change, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any], branch: str) -> FeedCommit:
        facts = {name: value for name, value in found.items() if name != "changes"}
        seq = int(found["commit_id"].rpartition(".")[2])
        return cls(
            commit_info({"seq": seq, "branch": branch, **facts}), tuple(Change(**one) for one in found["changes"])
        )


@dataclass(frozen=True, slots=True)
class FeedPage:
    """What comes next, and the cursor to go on from. `more` says that the page was full."""

    commits: tuple[FeedCommit, ...]
    cursor: str
    more: bool


@dataclass(frozen=True, slots=True)
class RemotePlan:
    """What a new schema changes, as the server told it."""

    document: Mapping[str, Any]

    @property
    def supported(self) -> bool:
        return bool(self.document["supported"])

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.document["steps"])

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(**one) for one in self.document["refused"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.steps)

    def check(self) -> None:
        """Raise `SchemaChangeRefused` unless every step is possible."""
        if self.refusals:
            raise SchemaChangeRefused(self.refusals)

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)


class RemoteBranches:
    """`g.branch`: create, list, merge and delete branches."""

    def __init__(self, graph: RemoteGraph) -> None:
        self._graph = graph

    def create(
        self, name: str, source: str | None = None, *, actor: str | None = None, message: str | None = None
    ) -> RemoteGraph:
        """A branch at `source` (a branch or commit id; by default this handle's branch), and a handle on it."""
        body = {"name": name, "source": source or self._graph.branch_name, "message": Writing(actor, message).message}
        self._graph._wire.write("POST", self._graph._reader.path("branches"), body)
        return self._graph.on_branch(name)

    def list(self) -> list[str]:
        found: list[str] = self._graph._wire.get(self._graph._reader.path("branches")).json()["branches"]
        return found

    def delete(self, name: str, *, actor: str | None = None, message: str | None = None) -> None:
        """Delete the branch. Its commits stay readable by id; branches made from it live on."""
        query = {"name": name, "message": Writing(actor, message).message}
        self._graph._wire.write("DELETE", self._graph._reader.path("branches"), query=query)

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        cell_level: bool = False,
        resolve: Literal["ours", "theirs"] | None = None,
        per_entity: Mapping[tuple[str, str], Literal["ours", "theirs"]] | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        **others: object,
    ) -> MergeReport:
        """Merge the newest commit of `source` into `into` (by default this handle's branch), in one commit."""
        refuse_options("merge", others, Branches.merge)
        settled = [{"table_key": key, "id": row, "take": take} for (key, row), take in (per_entity or {}).items()]
        body = {
            "source": source,
            "into": into or self._graph.branch_name,
            "cell_level": cell_level,
            "resolve": resolve,
            "per_entity": settled,
            "dry_run": dry_run,
            "delete_branch": delete_branch,
            **Writing(actor, message, client_key, if_commit).body(),
        }
        path = self._graph._reader.path("branches/merge")
        return MergeReport(**self._graph._wire.write("POST", path, body, client_key=client_key).json())


class RemoteSchema:
    """`g.schema`: what the schema is, what a new text would change, and the change itself."""

    def __init__(self, graph: RemoteGraph) -> None:
        self._graph = graph

    @property
    def source(self) -> str:
        """The text exactly as it was given."""
        return str(self._graph._reader.get("schema")["source"])

    @property
    def types(self) -> list[str]:
        """All types as `node:Name` and `edge:Name`."""
        return list(self._graph._reader.get("schema")["types"])

    def plan(self, schema: str | os.PathLike[str]) -> RemotePlan:
        """The steps that lead to `schema` (a file or its text), and whether they are possible. Nothing is written."""
        body = {"schema": read_schema(schema)[0], "branch": self._graph.branch_name}
        found = self._graph._wire.ask(self._graph._reader.path("schema/plan"), body).json()
        return RemotePlan({name: value for name, value in found.items() if name != "branch"})

    def apply(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> Receipt:
        """Bring this branch to `schema`, in one commit. `Receipt.result` is the plan that was carried out."""
        body = {
            "schema": read_schema(schema)[0],
            "branch": self._graph.branch_name,
            "allow_data_loss": allow_data_loss,
            "confirm": allow_data_loss,
            **Writing(actor, message, client_key, if_commit).body(),
        }
        path = self._graph._reader.path("schema/apply")
        found = self._graph._wire.write("POST", path, body, client_key=client_key)
        document = found.json()
        result = {name: value for name, value in document.items() if name not in ("branch", "commit_id")}
        return Receipt(document["commit_id"], {}, result, found.headers.get(REPLAYED) == "true")

    def __getattr__(self, name: str) -> Any:
        raise missing(name, "RemoteSchema", Schema)


REPLAYED = "Idempotency-Replayed"


def receipt_of(found: httpx.Response) -> Receipt:
    document = found.json()
    return Receipt(
        document["commit_id"],
        document["counts"],
        {},
        document["replayed"],
        document["attempts"],
        document["waited_s"],
    )


def commit_info(found: Mapping[str, Any]) -> CommitInfo:
    return CommitInfo(**{**found, "parents": tuple(found["parents"])})
