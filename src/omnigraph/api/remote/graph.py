"""`RemoteGraph`: the facade over HTTP, verb by verb, with `RemoteBranches` and `RemoteSchema` as its parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import quote, urlsplit

from omnigraph.api import Graph
from omnigraph.api.branches import Branches
from omnigraph.api.remote.decode import (
    FeedPage,
    RemotePlan,
    decode_diff_page,
    decode_feed_page,
    decode_receipt,
    decode_schema_receipt,
)
from omnigraph.api.remote.files import check_line_files, read_chunks
from omnigraph.api.remote.over_http import (
    RemoteWriteOptions,
    missing_attribute,
    not_over_http,
    over_http,
    refuse_options,
)
from omnigraph.api.remote.params import encode_params
from omnigraph.api.remote.transport import Transport
from omnigraph.api.remote.view import GraphEndpoint, RemoteView
from omnigraph.api.schema import Schema, read_schema
from omnigraph.api.view import CommitInfo
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.history.decide_row import Resolution
from omnigraph.history.diff import Change
from omnigraph.history.diff_pages import DiffPage
from omnigraph.history.report import MergeReport
from omnigraph.load.export.export import ExportReport
from omnigraph.load.report import LoadReport
from omnigraph.log.branches import MAIN

if TYPE_CHECKING:
    from omnigraph.history.feed import FeedLimits
    from omnigraph.query.run.result import Result


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
        document = self._graph._endpoint.post_read("schema/plan", body).json()
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


def connect(
    url: str,
    token: str | None = None,
    *,
    graph: str | None = None,
    branch: str = MAIN,
    ca: str | os.PathLike[str] | None = None,
) -> RemoteGraph:
    """A graph behind a server: `http://host:port/graphs/NAME`, or `graph=`; neither is needed if it has only one.

    `ca` is a PEM file of the authorities to believe, for a server whose certificate no public one has signed.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{url!r} is not the address of a server", advice="Use http://… or https://…")
    prefix, separator, graph_in_url = parts.path.rstrip("/").rpartition("/graphs/")
    base = f"{parts.scheme}://{parts.netloc}{prefix if separator else parts.path.rstrip('/')}"
    transport = Transport(base, token, ca)
    try:
        graph_name = graph or (graph_in_url if separator else None) or _name_of_only_graph(transport)
        remote_graph = RemoteGraph(transport, graph_name, branch)
        remote_graph.refresh()
    except BaseException:
        transport.close()
        raise
    return remote_graph


def _name_of_only_graph(transport: Transport) -> str:
    names = [graph["name"] for graph in transport.get("/graphs").json()["graphs"]]
    if len(names) != 1:
        raise NotFound(
            f"the server has {len(names)} graphs", code="which_graph", advice=f"Name one of them: {', '.join(names)}"
        )
    return str(names[0])


class RemoteGraph:
    """A handle on one branch of a graph behind a server, with the interface of one that is opened here.

    The actor of a write is the token's; what needs the tables themselves is refused by name.
    """

    def __init__(self, transport: Transport, name: str, branch: str = MAIN) -> None:
        self._endpoint = GraphEndpoint(transport, name, {"branch": branch})
        self.branch_name = branch
        self.branch = RemoteBranches(self)
        self.schema = RemoteSchema(self)

    @property
    def uri(self) -> str:
        return f"{self._endpoint.transport.base}{self._endpoint.path('')}".rstrip("/")

    @property
    def graph_id(self) -> str:
        return str(self.snapshot()["graph_id"])

    @over_http(Graph.query)
    def query(
        self, source: str, params: Mapping[str, Any] | None, name: str | None, limits: object, engine: str
    ) -> Result:
        if engine != "local":
            raise not_over_http(f"query(engine={engine!r})", "The server runs queries in its own process")
        return self._endpoint.query(source, params, name, limits)

    @over_http(Graph.mutate)
    def mutate(self, params: Mapping[str, Any] | None, write: RemoteWriteOptions, **fields: Any) -> Receipt:
        return self._mutate(write, params=encode_params(params or {}), **fields)

    @over_http(Graph.mutate_many)
    def mutate_many(self, params: Sequence[Mapping[str, Any]], write: RemoteWriteOptions, **fields: Any) -> Receipt:
        return self._mutate(write, batch=[encode_params(values) for values in params], **fields)

    def transaction(self, **_: Any) -> Any:
        """Refused: a transaction is a conversation, and a server keeps no state between requests."""
        raise not_over_http("transaction", "Use mutate with several statements, mutate_many, or if_commit")

    @over_http(Graph.view)
    def view(self, fresh: bool | None) -> RemoteView:
        """The branch as it is now, pinned. A server always looks; `fresh` is there for those that need not."""
        newest = self.refresh()
        return RemoteView(self._endpoint.at(at=newest), newest)

    @over_http(Graph.at)
    def at(self, commit_id: str) -> RemoteView:
        self._endpoint.get(f"commits/{quote(commit_id, safe='')}")
        return RemoteView(self._endpoint.at(at=commit_id), commit_id)

    @over_http(Graph.snapshot)
    def snapshot(self, indexes: bool) -> dict[str, Any]:
        """Branch, commit, storage format, and per type the pin, counts and overlay."""
        document: dict[str, Any] = self._endpoint.read("snapshot", indexes=indexes)
        return document

    @over_http(Graph.commits)
    def commits(self, limit: int | None, actor: str | None, kind: str | None, branch: str | None) -> list[CommitInfo]:
        """Commits of this branch, newest first; only those that match."""
        return self._endpoint.commits(limit, actor, kind, branch)

    @over_http(Graph.diff)
    def diff(self, old: str, new: str | None, **filters: Any) -> Iterator[Change]:
        first_page = self.diff_page(old, new, **filters)

        def changes_from(page: DiffPage) -> Iterator[Change]:
            yield from page.changes
            while page.cursor is not None:
                page = self.diff_page(old, new, **filters, cursor=page.cursor)
                yield from page.changes

        return changes_from(first_page)

    @over_http(Graph.diff_page)
    def diff_page(self, old: str, new: str | None, **page: Any) -> DiffPage:
        """The same in pages that stay with the same two commits."""
        return self._read_page("diff", page, old=old, new=new or self.branch_name)

    @over_http(Graph.commit_changes)
    def commit_changes(self, commit_id: str, **page: Any) -> DiffPage:
        return self._read_page(f"commits/{quote(commit_id, safe='')}/changes", page)

    @over_http(Graph.changes)
    def changes(self, since: str | None, limits: FeedLimits | None) -> FeedPage:
        bounds = {"limit": limits.commits, "changes": limits.changes} if limits else {}
        return decode_feed_page(self._endpoint.read("changes", since=since, **bounds), self.branch_name)

    @over_http(Graph.blob)
    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        return self._endpoint.blob(type_name, row_id, name)

    def queries(self) -> list[dict[str, Any]]:
        """The server's stored queries as typed tools."""
        tools: list[dict[str, Any]] = self._endpoint.read("queries")["queries"]
        return tools

    # Not `over_http`: unlike the facade, this verb takes only local files, and a function for `progress`.
    def load(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        on_error: Literal["fail", "skip"] = "fail",
        on_duplicate: Literal["last", "fail"] = "last",
        engine: Literal["auto", "local", "spark"] = "auto",
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
        progress: Callable[[dict[str, Any]], None] | bool | None = None,
        **options: object,
    ) -> LoadReport:
        """Send NDJSON files and load them as one commit. `progress` hears the steps as the server tells them."""
        refuse_options(Graph.load, options)
        write = RemoteWriteOptions(actor, message, client_key, if_commit)
        query = {
            "mode": mode,
            "on_error": on_error,
            "on_duplicate": on_duplicate,
            "engine": engine,
            "on_conflict": on_conflict,
            **self._endpoint.position,
            **write.to_json(),
        }
        if not isinstance(paths, (str, Path, list, tuple)):
            raise not_over_http(
                f"load({type(paths).__name__})", "Send files of mixed records, one JSON object per line"
            )
        chunks = read_chunks(check_line_files(paths))
        listener = progress if callable(progress) else None
        document = self._endpoint.transport.upload(self._endpoint.path("load"), chunks, query, client_key, listener)
        document.pop("branch")
        return LoadReport(**{**document, "sample": tuple(document["sample"])})

    @over_http(Graph.export)
    def export(
        self,
        path: str | Path | BinaryIO,
        format: str,
        types: Sequence[str] | None,
        branch: str | None,
        at: str | None,
        overwrite: bool,
    ) -> ExportReport:
        """Write this branch as it is now, another branch, or a commit, to a file or a stream, as NDJSON."""
        if branch is not None and at is not None:
            raise InvalidInput("branch and at contradict each other", advice="Leave out one of the two")
        position = {"at": at} if at is not None else {"branch": branch or self.branch_name}
        return self._endpoint.at(**position).export(path, format, types, overwrite)

    def refresh(self) -> str:
        """The newest commit's id."""
        return str(self._endpoint.read("snapshot")["commit_id"])

    @over_http(Graph.on_branch)
    def on_branch(self, name: str) -> RemoteGraph:
        remote_graph = RemoteGraph(self._endpoint.transport, self._endpoint.graph_name, name)
        remote_graph.refresh()
        return remote_graph

    def close(self) -> None:
        self._endpoint.transport.close()

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(name, "RemoteGraph", Graph)

    def _mutate(self, write: RemoteWriteOptions, **fields: Any) -> Receipt:
        body = {**fields, **self._endpoint.position, **write.to_json()}
        return decode_receipt(self._endpoint.write("POST", "mutate", body, write.client_key))

    def _read_page(self, route: str, page: Mapping[str, Any], **query: str) -> DiffPage:
        filters = {singular: [*page[f"{singular}s"]] for singular in ("kind", "type", "op")}
        bounds = {"limit": page["limit"], "cursor": page["cursor"]}
        return decode_diff_page(self._endpoint.get(route, {**query, **filters, **bounds}))
