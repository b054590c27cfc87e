"""The base of `Graph`: a handle on one branch of one graph, and the pinned views that its verbs read."""

from __future__ import annotations

from typing import Literal

from omnigraph.api.view import GraphView
from omnigraph.commit.graph_runtime import Branch, GraphRuntime
from omnigraph.errors import BranchClosed, Unsupported
from omnigraph.log.commit_record import CommitRecord, parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import Catalog

Freshness = Literal["latest"] | float

_STREAM_LENGTH = 26


class Handle:
    """A handle on one branch, which can be viewed as it is now or at a commit."""

    def __init__(
        self, runtime: GraphRuntime, branch: Branch, *, freshness: Freshness = "latest", holder: str | None = None
    ) -> None:
        self._runtime = runtime
        self._branch = branch
        self._freshness = freshness
        self._holder = holder
        self._refreshed_at = float("-inf")

    @property
    def uri(self) -> str:
        return self._runtime.backend.store.root

    @property
    def graph_id(self) -> str:
        return self._runtime.stamp.graph_id

    @property
    def branch_name(self) -> str:
        return self._branch.name

    def view(self, *, fresh: bool | None = None) -> GraphView:
        """The branch as it is now, pinned. `fresh` overrides the handle's freshness for this call."""
        return self._open_view(self._branch, self._head(fresh))

    def at(self, commit_id: str) -> GraphView:
        """The graph at a commit of any branch."""
        stream, seq = parse_commit_id(commit_id)
        # Names as this handle knows them: an old commit must be readable even if the newest record is not.
        current_catalog = self._runtime.catalogs.get(self._branch.publisher.head.schema)
        return self._view_of(self._runtime.records(stream).record(seq), current_catalog)

    def _view_named(self, branch: str | None) -> GraphView:
        if branch is None or branch == self.branch_name:
            return self.view()
        opened = self._runtime.branch(branch)
        return self._open_view(opened, opened.publisher.refresh())

    def _open_view(self, branch: Branch, record: CommitRecord) -> GraphView:
        if record.kind == "close":
            raise BranchClosed(
                f"branch {branch.name!r} was deleted",
                advice="Open the branch again by its name if it was re-created",
                branch=branch.name,
            )
        return self._view_of(record)

    def _state(self, name: str | None) -> Snapshot:
        """A commit, or the newest commit of a branch."""
        if name is None:
            return self.view().state
        source = self._resolve(name)
        record = source if isinstance(source, CommitRecord) else source.publisher.refresh()
        return self._view_of(record).state

    def _resolve(self, source: str | None) -> Branch | CommitRecord:
        """A commit by its id or a branch by its name; by default this handle's branch."""
        if source is None:
            return self._branch
        if "." in source and source.rpartition(".")[2].isdecimal() and len(source.partition(".")[0]) == _STREAM_LENGTH:
            stream, seq = parse_commit_id(source)
            return self._runtime.records(stream).record(seq)
        return self._runtime.branch(source)

    def _head(self, fresh: bool | None) -> CommitRecord:
        clock, publisher = self._runtime.backend.clock, self._branch.publisher
        if fresh is None:
            fresh = self._freshness == "latest" or clock.monotonic() - self._refreshed_at >= float(self._freshness)
        if not fresh:
            return publisher.head
        started_at = clock.monotonic()
        newest = publisher.refresh()
        self._refreshed_at = started_at
        return newest

    def _view_of(self, record: CommitRecord, current_catalog: Catalog | None = None) -> GraphView:
        catalog = self._runtime.catalogs.get(record.schema)
        return GraphView(self._runtime, Snapshot(self._runtime.backend, record, catalog), current_catalog)

    def _require_writable(self) -> None:
        if self._runtime.read_only:
            raise Unsupported(
                "this graph was opened read-only", code="read_only", advice="Open it without read_only=True"
            )


def not_built(feature: str, advice: str) -> Unsupported:
    return Unsupported(f"{feature}: not built yet in this version", code="not_built", advice=advice)
