"""The verbs of a graph that look back: commits, differences, the change feed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from omnigraph.api.handle import Handle
from omnigraph.api.view import CommitInfo
from omnigraph.history.diff import Change, diff
from omnigraph.history.diff_pages import PAGE_LIMIT, DiffCursor, DiffPage, page_of
from omnigraph.history.feed import Feed, FeedLimits, Page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class HistoryVerbs(Handle):
    """Commits, differences between them, and the feed of changes."""

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        return self.view().commits(limit, actor=actor, kind=kind, branch=branch)

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
        before, after = self._state(old), self._state(new)
        return diff(before, after, kinds=kinds, types=types, ops=ops)

    def diff_spark(
        self,
        old: str,
        new: str | None = None,
        spark: SparkSession | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> DataFrame:
        """The same changes as `diff`, of any number, as a Spark frame: op, kind, type, id, before, after.

        `before` and `after` are JSON. Workers find them when the frame is used; it stays at the commits of this call.
        """
        from omnigraph.history.spark.diff import diff_frame
        from omnigraph.spark.session import get_session

        before, after = self._state(old), self._state(new)
        return diff_frame(get_session(existing=spark), before, after, kinds=kinds, types=types, ops=ops)

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
        """The same in pages. `cursor`, of the page before, names the commits: branches may have moved since."""
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        before, after = self._state(old), self._state(new)
        return page_of(before, after, diff(before, after, kinds=kinds, types=types, ops=ops), limit)

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
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        parents = self.at(commit_id).state.record.header.parents
        if not parents:
            return DiffPage(None, commit_id, (), None)
        return self.diff_page(parents[0].commit_id, commit_id, kinds=kinds, types=types, ops=ops, limit=limit)

    def changes(self, since: str | None = None, *, limits: FeedLimits | None = None) -> Page:
        """Commits of this branch after the cursor `since`, each with its changes, and the cursor to go on from."""
        runtime = self._runtime
        return Feed(runtime.backend, runtime.catalogs, self._branch.publisher.records, limits or FeedLimits()).page(
            since
        )

    def _page_after(
        self, place: DiffCursor, kinds: Collection[str], types: Collection[str], ops: Collection[str], limit: int | None
    ) -> DiffPage:
        before, after = self.at(place.old).state, self.at(place.new).state
        last = (place.type_id, place.row_id)
        return page_of(before, after, diff(before, after, kinds=kinds, types=types, ops=ops, after=last), limit)
