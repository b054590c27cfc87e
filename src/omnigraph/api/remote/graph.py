"""`RemoteGraph`: the facade over HTTP, verb by verb."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import quote, urlsplit

from omnigraph.api import Graph
from omnigraph.api.remote.branches import FeedCommit, FeedPage, RemoteBranches, RemoteSchema, Writing, receipt_of
from omnigraph.api.remote.files import chunks_of, line_files
from omnigraph.api.remote.params import plain_params
from omnigraph.api.remote.refusals import missing, refuse_limits, refuse_options, refused
from omnigraph.api.remote.transport import Transport
from omnigraph.api.remote.view import Reader, RemoteView
from omnigraph.api.view import CommitInfo
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.history.diff import Change
from omnigraph.history.diff_pages import PAGE_LIMIT, DiffPage
from omnigraph.load.export.export import ExportReport
from omnigraph.load.report import LoadReport
from omnigraph.log.branches import MAIN

if TYPE_CHECKING:
    from omnigraph.history.feed import FeedLimits
    from omnigraph.query.run.result import Result


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
    prefix, found, named = parts.path.rstrip("/").rpartition("/graphs/")
    base = f"{parts.scheme}://{parts.netloc}{prefix if found else parts.path.rstrip('/')}"
    wire = Transport(base, token, ca)
    try:
        made = RemoteGraph(wire, graph or (named if found else None) or _only_graph(wire), branch)
        made.refresh()
    except BaseException:
        wire.close()
        raise
    return made


def _only_graph(wire: Transport) -> str:
    names = [one["name"] for one in wire.get("/graphs").json()["graphs"]]
    if len(names) != 1:
        raise NotFound(
            f"the server has {len(names)} graphs", code="which_graph", advice=f"Name one of them: {', '.join(names)}"
        )
    return str(names[0])


class RemoteGraph:
    """A handle on one branch of a graph behind a server, with the interface of one that is opened here.

    The actor of a write is the token's; what needs the tables themselves is refused by name.
    """

    def __init__(self, wire: Transport, name: str, branch: str = MAIN) -> None:
        self._wire = wire
        self._name = name
        self._reader = Reader(wire, name, {"branch": branch})
        self.branch_name = branch
        self.branch = RemoteBranches(self)
        self.schema = RemoteSchema(self)

    @property
    def uri(self) -> str:
        return f"{self._wire.base}{self._reader.path('')}".rstrip("/")

    @property
    def graph_id(self) -> str:
        return str(self.snapshot()["graph_id"])

    def query(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: object = None,
        engine: str = "local",
    ) -> Result:
        """Run a reading query on the branch as it is now; the result names the commit it was read from."""
        refuse_limits(limits)
        if engine != "local":
            raise refused(f"query(engine={engine!r})", "The server runs queries in its own process")
        return self._reader.query(source, params, name)

    def mutate(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run a mutation of the query language as one atomic commit. `name` picks one of several in the text."""
        body = {"source": source, "params": plain_params(params or {}), "name": name, "strict": strict}
        return self._mutate(body, on_conflict, Writing(actor, message, client_key, if_commit))

    def mutate_many(
        self,
        source: str,
        params: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run one mutation for every set of parameters, all in one commit."""
        batch = [plain_params(one) for one in params]
        body = {"source": source, "batch": batch, "name": name, "strict": strict}
        return self._mutate(body, on_conflict, Writing(actor, message, client_key, if_commit))

    def transaction(self, **_: Any) -> Any:
        """Refused: a transaction is a conversation, and a server keeps no state between requests."""
        raise refused("transaction", "Use mutate with several statements, mutate_many, or if_commit")

    def view(self, *, fresh: bool | None = None) -> RemoteView:
        """The branch as it is now, pinned. A server always looks; `fresh` is there for those that need not."""
        newest = self.refresh()
        return RemoteView(Reader(self._wire, self._name, {"at": newest}), newest)

    def at(self, commit_id: str) -> RemoteView:
        """The graph at a commit of any branch."""
        reader = Reader(self._wire, self._name, {"at": commit_id})
        self._wire.get(self._reader.path(f"commits/{quote(commit_id, safe='')}"))
        return RemoteView(reader, commit_id)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        """Branch, commit, storage format, and per type the pin, counts and overlay."""
        found: dict[str, Any] = self._reader.get("snapshot", indexes=indexes)
        return found

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        """Commits of this branch, newest first; only those that match."""
        return self._reader.commits(limit, actor, kind, branch)

    def diff(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Iterator[Change]:
        """What changed from `old` to `new`: commits or branches; by default up to this branch as it is now."""
        first = self.diff_page(old, new, kinds=kinds, types=types, ops=ops)

        def rest(page: DiffPage) -> Iterator[Change]:
            yield from page.changes
            while page.cursor is not None:
                page = self.diff_page(old, new, kinds=kinds, types=types, ops=ops, cursor=page.cursor)
                yield from page.changes

        return rest(first)

    def diff_page(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """The same in pages that stay with the same two commits."""
        query = {"old": old, "new": new or self.branch_name, "kind": [*kinds], "type": [*types], "op": [*ops]}
        return _diff_page(self._wire.get(self._reader.path("diff"), {**query, "limit": limit, "cursor": cursor}).json())

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """What one commit changed against its first parent, in pages."""
        query = {"kind": [*kinds], "type": [*types], "op": [*ops], "limit": limit, "cursor": cursor}
        path = self._reader.path(f"commits/{quote(commit_id, safe='')}/changes")
        return _diff_page(self._wire.get(path, query).json())

    def changes(self, since: str | None = None, *, limits: FeedLimits | None = None) -> FeedPage:
        """Commits of this branch after the cursor `since`, each with its changes, and the cursor to go on from."""
        bounds = {"limit": limits.commits, "changes": limits.changes} if limits else {}
        found = self._reader.get("changes", since=since, **bounds)
        commits = tuple(FeedCommit.of(one, self.branch_name) for one in found["commits"])
        return FeedPage(commits, found["cursor"], found["more"])

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity, on the branch as it is now."""
        return self._reader.blob(type_name, row_id, name)

    def queries(self) -> list[dict[str, Any]]:
        """The server's stored queries as typed tools."""
        found: list[dict[str, Any]] = self._reader.get("queries")["queries"]
        return found

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
        **others: object,
    ) -> LoadReport:
        """Send NDJSON files and load them as one commit. `progress` hears the steps as the server tells them."""
        refuse_options("load", others, Graph.load)
        writing = Writing(actor, message, client_key, if_commit)
        query = {
            "mode": mode,
            "on_error": on_error,
            "on_duplicate": on_duplicate,
            "engine": engine,
            "on_conflict": on_conflict,
            **self._reader._where,
        }
        if not isinstance(paths, (str, Path, list, tuple)):
            raise refused(f"load({type(paths).__name__})", "Send files of mixed records, one JSON object per line")
        files = line_files(paths)
        heard = progress if callable(progress) else None
        found = self._wire.upload(
            self._reader.path("load"), chunks_of(files), {**query, **writing.body()}, client_key, heard
        )
        found.pop("branch")
        return LoadReport(**{**found, "sample": tuple(found["sample"])})

    def export(
        self,
        path: str | Path | BinaryIO,
        format: str = "ndjson",
        *,
        types: Sequence[str] | None = None,
        branch: str | None = None,
        at: str | None = None,
        overwrite: bool = False,
        **others: object,
    ) -> ExportReport:
        """Write this branch as it is now, another branch, or a commit, to a file or a stream, as NDJSON."""
        if branch is not None and at is not None:
            raise InvalidInput("branch and at contradict each other", advice="Leave out one of the two")
        where = {"at": at} if at is not None else {"branch": branch or self.branch_name}
        return Reader(self._wire, self._name, where).export(path, format, types, overwrite, others)

    def refresh(self) -> str:
        """The newest commit's id."""
        return str(self._reader.get("snapshot")["commit_id"])

    def on_branch(self, name: str) -> RemoteGraph:
        """A handle on another branch of the same graph."""
        made = RemoteGraph(self._wire, self._name, name)
        made.refresh()
        return made

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise missing(name, "RemoteGraph", Graph)

    def _mutate(self, body: Mapping[str, Any], on_conflict: str, writing: Writing) -> Receipt:
        whole = {**body, "on_conflict": on_conflict, **self._reader._where, **writing.body()}
        return receipt_of(self._wire.write("POST", self._reader.path("mutate"), whole, client_key=writing.client_key))


def _diff_page(found: Mapping[str, Any]) -> DiffPage:
    return DiffPage(found["old"], found["new"], tuple(Change(**one) for one in found["changes"]), found["cursor"])
