"""The change feed: commits of a branch in order, each with what it changed against its first parent.

A cursor names the last commit a reader has seen, by its stream, seq and rid. It keeps nothing in the graph, survives
restarts of both sides, and is refused rather than bent when the branch was re-created or history was collected.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.history.diff import Change, diff
from omnigraph.log.commit_record import CommitRecord, CommitRef, Header, parse_commit_id
from omnigraph.log.snapshot import Catalogs, Snapshot
from omnigraph.log.stream import RecordStream, StreamEntry
from omnigraph.storage.backend import Backend


class ChangeFeedGap(NotFound):
    """The commits after the cursor cannot be told any more: read the graph anew and go on from its cursor."""

    default_code = "change_feed_gap"


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """The bounds of one page; a commit is never cut in two, so a large one may exceed them alone."""

    changes: int = 1000
    size_bytes: int = 4 << 20
    commits: int = 512


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """One commit of the feed."""

    commit: Header
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """What comes next, and the cursor to go on from. `more` says that the page was full."""

    commits: tuple[CommitChanges, ...]
    cursor: str
    more: bool


def encode_cursor(ref: CommitRef) -> str:
    return base64.urlsafe_b64encode(json.dumps([1, ref.stream, ref.seq, ref.rid]).encode()).decode().rstrip("=")


def decode_cursor(text: str) -> CommitRef:
    try:
        version, stream, seq, rid = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if version != 1 or not (isinstance(stream, str) and isinstance(seq, int) and isinstance(rid, str)):
            raise ValueError("another cursor")
    except (ValueError, TypeError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInput(f"{text!r} is not a cursor", code="bad_cursor", advice="Use one that a page gave") from error
    return CommitRef(stream, seq, rid)


class Feed:
    """The feed of one branch incarnation."""

    def __init__(self, backend: Backend, catalogs: Catalogs, records: RecordStream, limits: FeedLimits) -> None:
        self._backend = backend
        self._catalogs = catalogs
        self._records = records
        self._limits = limits

    def page(self, since: str | None) -> Page:
        """Commits after `since`, oldest first; without it from the birth of the branch.

        `since` is the cursor of a page or the id of a commit. Caught up, it costs the commit's GET and one more.
        """
        seen = self._seen(since) if since is not None else self._birth()
        found: list[CommitChanges] = []
        changes = size_bytes = 0
        before = seen
        for record in self._following(seen):
            told = self._told(before, record) if record.is_logical else ()
            weight = sum(len(json.dumps(one.to_json())) for one in told)
            full = changes + len(told) > self._limits.changes or size_bytes + weight > self._limits.size_bytes
            if found and full:
                return Page(tuple(found), encode_cursor(before.ref), more=True)
            changes, size_bytes, before = changes + len(told), size_bytes + weight, record
            if record.is_logical:
                found.append(CommitChanges(record.header, told))
            if len(found) == self._limits.commits:
                return Page(tuple(found), encode_cursor(before.ref), more=True)
        return Page(tuple(found), encode_cursor(before.ref), more=before.seq - seen.seq >= self._reach)

    def _told(self, before: CommitRecord, record: CommitRecord) -> tuple[Change, ...]:
        return tuple(diff(self._snapshot(before), self._snapshot(record)))

    def _snapshot(self, record: CommitRecord) -> Snapshot:
        return Snapshot(self._backend, record, self._catalogs.get(record.schema))

    @property
    def _reach(self) -> int:
        """How many records one page looks at: folds and upkeep are passed over, but not without end."""
        return self._limits.commits * 2

    def _following(self, seen: CommitRecord) -> Iterator[CommitRecord]:
        """The records after one, read as they are asked for. One GET when there is none."""
        first = self._records.get(seen.seq + 1)
        ahead = [first] if first else []
        last = seen.seq
        while ahead and last - seen.seq < self._reach:
            for entry in ahead[: self._reach - (last - seen.seq)]:
                last = entry.seq
                yield self._readable(entry)
            ahead = self._records.read_ahead(last + 1)

    def _birth(self) -> CommitRecord:
        return self._readable(self._records.get(0))

    def _seen(self, since: str) -> CommitRecord:
        """The commit that a cursor or a commit id names."""
        if "." in since:
            stream, seq = parse_commit_id(since)
            rid = None
        else:
            cursor = decode_cursor(since)
            stream, seq, rid = cursor.stream, cursor.seq, cursor.rid
        if stream != self._records.stream:
            raise _gap("the commit belongs to another branch, or the branch was deleted and created again since")
        record = self._readable(self._records.get(seq))
        if rid not in (None, record.rid):
            raise _gap("the commit of the cursor is another one now")
        if record.kind == "close":
            raise _gap("the branch was deleted")
        return record

    def _readable(self, entry: StreamEntry | None) -> CommitRecord:
        if not isinstance(entry, CommitRecord):
            raise _gap("the commits after the cursor have been collected")
        return entry


def _gap(reason: str) -> ChangeFeedGap:
    return ChangeFeedGap(
        f"the change feed has a gap: {reason}", advice="Read the graph as it is now and go on from its commit id"
    )


def page_json(page: Page) -> dict[str, Any]:
    """The shape shared by `--json` and HTTP."""
    return {
        "commits": [
            {
                "commit_id": one.commit.commit_id,
                "parents": [parent.commit_id for parent in one.commit.parents],
                "kind": one.commit.kind,
                "actor": one.commit.actor,
                "created_at": one.commit.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "message": one.commit.message,
                "changes": [change.to_json() for change in one.changes],
            }
            for one in page.commits
        ],
        "cursor": page.cursor,
        "more": page.more,
    }
