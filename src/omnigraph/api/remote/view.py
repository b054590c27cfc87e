"""What can be read over HTTP, on a branch or at a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from omnigraph.api.remote.branches import commit_info
from omnigraph.api.remote.files import write_export
from omnigraph.api.remote.params import plain_params
from omnigraph.api.remote.refusals import missing, refuse_limits, refuse_options, refused
from omnigraph.api.remote.transport import Transport
from omnigraph.api.view import CommitInfo, GraphView
from omnigraph.errors import NotFound
from omnigraph.load.export.export import ExportReport

if TYPE_CHECKING:
    from omnigraph.query.run.result import Result


@dataclass(frozen=True)
class Reader:
    """What a branch and a commit have in common: `where` says which of them is read."""

    _wire: Transport
    _name: str
    _where: Mapping[str, str]

    def path(self, rest: str) -> str:
        return f"/graphs/{quote(self._name, safe='')}/{rest}"

    def get(self, rest: str, **query: Any) -> Any:
        return self._wire.get(self.path(rest), {**self._where, **query}).json()

    def query(self, source: str, params: Mapping[str, Any] | None, name: str | None) -> Result:
        from omnigraph.api.remote.wire import ARROW_TYPE, result_of

        body = {"source": source, "params": plain_params(params or {}), "name": name, **self._where}
        return result_of(self._wire.ask(self.path("query"), body, {"Accept": ARROW_TYPE}).content)

    def commits(self, limit: int | None, actor: str | None, kind: str | None, branch: str | None) -> list[CommitInfo]:
        wanted = {"actor": actor, "kind": kind, "branch": branch}
        filters = [f"{name}={value}" for name, value in wanted.items() if value is not None]
        if limit == 0:
            return []
        return [commit_info(one) for one in self.get("commits", limit=limit or 0, filter=filters)["commits"]]

    def export(
        self,
        path: str | Path | BinaryIO,
        format: str,
        types: Sequence[str] | None,
        overwrite: bool,
        others: Mapping[str, object],
    ) -> ExportReport:
        refuse_options("export", others, GraphView.export)
        if format != "ndjson":
            raise refused(f"export(format={format!r})", "Over HTTP an export is NDJSON")
        query = {**self._where, "type": list(types) if types is not None else None}
        with self._wire.download(self.path("export"), query) as (headers, chunks):
            return write_export(path, chunks, headers["etag"].strip('"'), overwrite=overwrite)

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        query = {**self._where, "type": type_name, "id": row_id, "property": name}
        try:
            return self._wire.get(self.path("blob"), query).content
        except NotFound as error:
            if error.code == "no_blob":
                return None
            raise


class RemoteView:
    """A graph pinned to one commit, read over HTTP."""

    def __init__(self, reader: Reader, commit_id: str) -> None:
        self._reader = reader
        self.commit_id = commit_id

    def query(
        self, source: str, params: Mapping[str, Any] | None = None, *, name: str | None = None, limits: object = None
    ) -> Result:
        """Run a reading query on this commit."""
        refuse_limits(limits)
        return self._reader.query(source, params, name)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        """Commit, storage format, and per type the pin, counts and overlay."""
        found: dict[str, Any] = self._reader.get("snapshot", indexes=indexes)
        found.pop("branch")
        return found

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        """This commit and those before it, newest first, along first parents; only those that match."""
        return self._reader.commits(limit, actor, kind, branch)

    def commit(self) -> dict[str, Any]:
        """This one commit: its place, who made it, and what it did to each table."""
        found: dict[str, Any] = self._reader._wire.get(self._reader.path(f"commits/{self.commit_id}")).json()
        return found

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity; None if it has none."""
        return self._reader.blob(type_name, row_id, name)

    def export(
        self,
        path: str | Path | BinaryIO,
        format: str = "ndjson",
        *,
        types: Sequence[str] | None = None,
        overwrite: bool = False,
        **others: object,
    ) -> ExportReport:
        """Write this commit to a file or a stream, as NDJSON."""
        return self._reader.export(path, format, types, overwrite, others)

    def __getattr__(self, name: str) -> Any:
        raise missing(name, "RemoteView", GraphView)
