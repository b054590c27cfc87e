"""The change feed: commits of a branch in order, each with what it changed against its first parent.

A cursor names the last commit that a reader has seen, by its stream, seq and rid. The graph stores nothing for it. It
survives restarts of both sides. The feed refuses a cursor if the branch was created again or its history collected.
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


class ChangeFeedGap(NotFound, code="change_feed_gap"):
    """The commits after the cursor are no longer readable: read the whole graph and go on from its commit."""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """The bounds of one page. A commit is never split, so a page of one large commit may exceed them."""

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
    """The next commits, and the cursor to go on from. `more` says that the page was full."""

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

        `since` is the cursor of a page or the id of a commit. Without newer commits it costs two GETs.
        """
        last_seen = self._find_seen(since) if since is not None else self._read_birth()
        commits: list[CommitChanges] = []
        changes = size_bytes = 0
        before = last_seen
        for commit_record in self._read_following(last_seen):
            commit_changes = self._find_changes(before, commit_record) if commit_record.is_logical else ()
            weight = sum(len(json.dumps(change.to_json())) for change in commit_changes)
            is_full = (
                changes + len(commit_changes) > self._limits.changes or size_bytes + weight > self._limits.size_bytes
            )
            if commits and is_full:
                return Page(tuple(commits), encode_cursor(before.ref), more=True)
            changes, size_bytes, before = changes + len(commit_changes), size_bytes + weight, commit_record
            if commit_record.is_logical:
                commits.append(CommitChanges(commit_record.header, commit_changes))
            if len(commits) == self._limits.commits:
                return Page(tuple(commits), encode_cursor(before.ref), more=True)
        return Page(tuple(commits), encode_cursor(before.ref), more=before.seq - last_seen.seq >= self._reach)

    def _find_changes(self, before: CommitRecord, commit_record: CommitRecord) -> tuple[Change, ...]:
        return tuple(diff(self._snapshot(before), self._snapshot(commit_record)))

    def _snapshot(self, commit_record: CommitRecord) -> Snapshot:
        return Snapshot(self._backend, commit_record, self._catalogs.get(commit_record.schema))

    @property
    def _reach(self) -> int:
        """How many commit records one page reads at most; folds and upkeep count, although they are not in the page."""
        return self._limits.commits * 2

    def _read_following(self, last_seen: CommitRecord) -> Iterator[CommitRecord]:
        """The commit records after `last_seen`, read as they are needed. One GET if there is none."""
        first = self._records.get(last_seen.seq + 1)
        ahead = [first] if first else []
        last = last_seen.seq
        while ahead and last - last_seen.seq < self._reach:
            for entry in ahead[: self._reach - (last - last_seen.seq)]:
                last = entry.seq
                yield self._require_readable(entry)
            ahead = self._records.read_ahead(last + 1)

    def _read_birth(self) -> CommitRecord:
        return self._require_readable(self._records.get(0))

    def _find_seen(self, since: str) -> CommitRecord:
        """The commit that a cursor or a commit id names."""
        if "." in since:
            stream, seq = parse_commit_id(since)
            rid = None
        else:
            cursor = decode_cursor(since)
            stream, seq, rid = cursor.stream, cursor.seq, cursor.rid
        if stream != self._records.stream:
            raise _gap_error("the commit belongs to another branch, or the branch was deleted and created again since")
        commit_record = self._require_readable(self._records.get(seq))
        if rid not in (None, commit_record.rid):
            raise _gap_error("the commit of the cursor is another one now")
        if commit_record.kind == "close":
            raise _gap_error("the branch was deleted")
        return commit_record

    def _require_readable(self, entry: StreamEntry | None) -> CommitRecord:
        if not isinstance(entry, CommitRecord):
            raise _gap_error("the commits after the cursor have been collected")
        return entry


def _gap_error(reason: str) -> ChangeFeedGap:
    return ChangeFeedGap(
        f"the change feed has a gap: {reason}", advice="Read the graph as it is now and go on from its commit id"
    )


def page_to_json(page: Page) -> dict[str, Any]:
    """The shape shared by `--json` and HTTP."""
    return {
        "commits": [
            {
                "commit_id": entry.commit.commit_id,
                "parents": [parent.commit_id for parent in entry.commit.parents],
                "kind": entry.commit.kind,
                "actor": entry.commit.actor,
                "created_at": entry.commit.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "message": entry.commit.message,
                "changes": [change.to_json() for change in entry.changes],
            }
            for entry in page.commits
        ],
        "cursor": page.cursor,
        "more": page.more,
    }
