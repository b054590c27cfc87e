"""Ancestry of commits: first parents, merge bases, and the commit that made a state.

A stream is a line: every record of a stream is an ancestor of all later ones. Only a record with a parent in another
stream leads out of the line. Every record names the newest such record up to itself (`crossing_seq`), so the search
for merge bases jumps from crossing to crossing, and its cost depends on merges and forks, not on the number of
commits between them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omnigraph.log.commit_record import CommitRecord, Header, Stub, no_such_commit
from omnigraph.log.stream import RecordStream, StreamEntry

_OURS, _THEIRS, _STALE = 1, 2, 4
_BOTH = _OURS | _THEIRS

OpenStream = Callable[[str], RecordStream]
"""The reader of a stream by its name."""


class RecordCache:
    """Commit records and stubs of any stream, each read from the store once.

    Meant for one decision: a caller that must see a stub which cleanup writes meanwhile reads the stream itself.
    """

    def __init__(self, open_stream: OpenStream, entries: Iterable[StreamEntry] = ()) -> None:
        self._open_stream = open_stream
        self._entries: dict[tuple[str, int], StreamEntry | None] = {
            (entry.stream, entry.seq): entry for entry in entries
        }

    def get(self, stream: str, seq: int) -> StreamEntry | None:
        if (stream, seq) not in self._entries:
            self._entries[stream, seq] = self._open_stream(stream).get(seq)
        return self._entries[stream, seq]


def first_parents(open_stream: OpenStream, head: CommitRecord) -> Iterator[Header]:
    """Headers from `head` to record 0 of `main`. A branch continues in the stream that it was forked from."""
    entry: StreamEntry | None = head
    while entry is not None:
        header = entry.header
        for header in open_stream(entry.stream).headers(entry):
            yield header
        if not header.parents or header.seq != 0:
            return
        parent = header.parents[0]
        # A collected parent is read as well: its stub still has the header.
        entry = open_stream(parent.stream).get(parent.seq)


def merge_bases(
    records: RecordCache, our_heads: Sequence[CommitRecord], their_head: CommitRecord
) -> list[CommitRecord]:
    """The lowest common ancestors of two commits; several of them after criss-cross merges.

    `our_heads` is one commit, or the several commits that a virtual merge base was made of: the virtual base has the
    ancestors of all of them. Collected commits on the way do not matter. Raises SnapshotExpired if a base itself was
    collected.
    """
    return _MergeBaseSearch(records).run(our_heads, their_head)


def find_content_commit(records: RecordCache, commit_record: CommitRecord) -> tuple[str, int]:
    """(stream, seq) of the commit that made the state of `commit_record`: folds, upkeep and forks only repeat it.

    Two records of one state lead to the same commit, whether or not that commit can still be read.
    """
    entry: StreamEntry | None = commit_record
    stream, seq = commit_record.stream, commit_record.seq
    while entry is not None:
        if entry.header.kind == "fork":
            stream, seq = entry.header.parents[0].stream, entry.header.parents[0].seq
        elif isinstance(entry, CommitRecord) and entry.content_seq != seq:
            seq = entry.content_seq
            if seq > 0:
                break  # only the first record of a stream can be a fork
        else:
            break
        entry = records.get(stream, seq)
    return stream, seq


@dataclass(order=True)
class _SearchPoint:
    """A commit that the search has reached; the heap yields the highest generation first."""

    order: int
    entry: StreamEntry = field(compare=False)
    flags: int = field(compare=False)


class _MergeBaseSearch:
    """Walks from both heads towards their ancestors, newest generation first.

    A flag says from where a commit is reached: from our heads, from their head, or from a merge base that was found
    already (`_STALE`). `_covered` holds, for each flag and stream, the highest seq that the flag holds for: it then
    holds for all lower seqs of that stream as well.
    """

    def __init__(self, records: RecordCache) -> None:
        self._records = records
        self._covered: dict[int, dict[str, int]] = {_OURS: {}, _THEIRS: {}, _STALE: {}}
        self._heap: list[_SearchPoint] = []

    def run(self, our_heads: Sequence[CommitRecord], their_head: CommitRecord) -> list[CommitRecord]:
        for head in our_heads:
            self._push(head, _OURS)
        self._push(their_head, _THEIRS)
        bases: list[CommitRecord] = []
        while any(not point.flags & _STALE for point in self._heap):
            point = heapq.heappop(self._heap)
            entry, flags = point.entry, point.flags | self._covering_flags(point.entry)
            if flags & _BOTH == _BOTH and not flags & _STALE:
                if isinstance(entry, Stub):
                    raise entry.make_expired_error()
                bases.append(entry)
                flags |= _STALE
            self._cover(entry, flags)
            self._descend(entry, flags)
        return bases

    def _covering_flags(self, entry: StreamEntry) -> int:
        """The flags that hold for `entry` because they hold for a later record of its stream."""
        return sum(flag for flag, seqs in self._covered.items() if seqs.get(entry.stream, -1) >= entry.seq)

    def _cover(self, entry: StreamEntry, flags: int) -> None:
        for flag, seqs in self._covered.items():
            if flags & flag:
                seqs[entry.stream] = max(seqs.get(entry.stream, -1), entry.seq)

    def _descend(self, entry: StreamEntry, flags: int) -> None:
        crossing = entry if entry.crossing_seq == entry.seq else self._get(entry.stream, entry.crossing_seq)
        for parent in crossing.header.parents:
            if parent.stream == entry.stream and parent.seq <= self._highest_stale_seq(entry.stream):
                continue
            self._push(self._get(parent.stream, parent.seq), flags)

    def _highest_stale_seq(self, stream: str) -> int:
        return self._covered[_STALE].get(stream, -1)

    def _push(self, entry: StreamEntry, flags: int) -> None:
        heapq.heappush(self._heap, _SearchPoint(-entry.header.gen, entry, flags))

    def _get(self, stream: str, seq: int) -> StreamEntry:
        entry = self._records.get(stream, seq)
        if entry is None:
            raise no_such_commit(f"{stream}.{seq}")
        return entry
