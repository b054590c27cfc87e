"""What can be read over HTTP, on a branch or at a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import httpx

from omnigraph.api.remote.decode import decode_commit
from omnigraph.api.remote.files import write_export
from omnigraph.api.remote.over_http import missing_attribute, not_over_http, over_http
from omnigraph.api.remote.params import encode_params
from omnigraph.api.remote.transport import Transport
from omnigraph.api.view import CommitInfo, GraphView
from omnigraph.errors import NotFound
from omnigraph.load.export.export import ExportReport

if TYPE_CHECKING:
    from omnigraph.query.run.result import Result


@dataclass(frozen=True)
class GraphEndpoint:
    """The routes of one graph on a server. `position` names the branch or the commit that reading routes look at."""

    transport: Transport
    graph_name: str
    position: Mapping[str, str]

    def at(self, **position: str) -> GraphEndpoint:
        """The same graph, read at another branch or commit."""
        return GraphEndpoint(self.transport, self.graph_name, position)

    def path(self, route: str) -> str:
        return f"/graphs/{quote(self.graph_name, safe='')}/{route}"

    def get(self, route: str, query: Mapping[str, Any] | None = None) -> Any:
        """A route that does not look at a branch or commit in particular."""
        return self.transport.get(self.path(route), query).json()

    def read(self, route: str, **query: Any) -> Any:
        return self.get(route, {**self.position, **query})

    def post_read(
        self, route: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """A POST that changes nothing."""
        return self.transport.post_read(self.path(route), body, headers)

    def write(
        self,
        method: str,
        route: str,
        body: Mapping[str, Any] | None = None,
        client_key: str | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        return self.transport.write(method, self.path(route), body, query=query, client_key=client_key)

    def query(self, source: str, params: Mapping[str, Any] | None, name: str | None, limits: object) -> Result:
        from omnigraph.api.remote.wire import ARROW_TYPE, decode_arrow

        if limits is not None:
            raise not_over_http("query(limits=…)", "The server sets the limits of queries")
        body = {"source": source, "params": encode_params(params or {}), "name": name, **self.position}
        return decode_arrow(self.post_read("query", body, {"Accept": ARROW_TYPE}).content)

    def commits(self, limit: int | None, actor: str | None, kind: str | None, branch: str | None) -> list[CommitInfo]:
        values = {"actor": actor, "kind": kind, "branch": branch}
        filters = [f"{name}={value}" for name, value in values.items() if value is not None]
        if limit == 0:
            return []
        # The server reads 0 as "all".
        return [decode_commit(commit) for commit in self.read("commits", limit=limit or 0, filter=filters)["commits"]]

    def export(
        self, path: str | Path | BinaryIO, format: str, types: Sequence[str] | None, overwrite: bool
    ) -> ExportReport:
        if format != "ndjson":
            raise not_over_http(f"export(format={format!r})", "Over HTTP an export is NDJSON")
        query = {**self.position, "type": list(types) if types is not None else None}
        with self.transport.download(self.path("export"), query) as (headers, chunks):
            return write_export(path, chunks, headers["etag"].strip('"'), overwrite=overwrite)

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        query = {**self.position, "type": type_name, "id": row_id, "property": name}
        try:
            return self.transport.get(self.path("blob"), query).content
        except NotFound as error:
            if error.code == "no_blob":
                return None
            raise


class RemoteView:
    """A graph pinned to one commit, read over HTTP."""

    def __init__(self, endpoint: GraphEndpoint, commit_id: str) -> None:
        self._endpoint = endpoint
        self.commit_id = commit_id

    @over_http(GraphView.query)
    def query(self, source: str, params: Mapping[str, Any] | None, name: str | None, limits: object) -> Result:
        """Run a reading query on this commit."""
        return self._endpoint.query(source, params, name, limits)

    @over_http(GraphView.snapshot)
    def snapshot(self, indexes: bool) -> dict[str, Any]:
        """Commit, storage format, and per type the pin, counts and overlay."""
        document: dict[str, Any] = self._endpoint.read("snapshot", indexes=indexes)
        document.pop("branch")
        return document

    @over_http(GraphView.commits)
    def commits(self, limit: int | None, actor: str | None, kind: str | None, branch: str | None) -> list[CommitInfo]:
        return self._endpoint.commits(limit, actor, kind, branch)

    @over_http(GraphView.commit)
    def commit(self) -> dict[str, Any]:
        document: dict[str, Any] = self._endpoint.get(f"commits/{self.commit_id}")
        return document

    @over_http(GraphView.blob)
    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        return self._endpoint.blob(type_name, row_id, name)

    @over_http(GraphView.export)
    def export(
        self, path: str | Path | BinaryIO, format: str, types: Sequence[str] | None, overwrite: bool
    ) -> ExportReport:
        """Write this commit to a file or a stream, as NDJSON."""
        return self._endpoint.export(path, format, types, overwrite)

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(name, "RemoteView", GraphView)
