"""Merge bases: the lowest common ancestors of two commits.

A stream is a line, so all its records up to one are ancestors of that one; only records with a parent in another
stream lead anywhere else. Every record knows the newest of those below it, so the walk jumps from crossing to crossing
and its cost depends on merges and forks, not on the number of commits between.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from omnigraph.log.commit_record import CommitRecord, Stub, no_such_commit
from omnigraph.log.stream import Entry

_OURS, _THEIRS, _STALE = 1, 2, 4
_BOTH = _OURS | _THEIRS


class Records(Protocol):
    """One stream, as far as lineage reads it."""

    def get(self, seq: int) -> Entry | None: ...


RecordsOf = Callable[[str], Records]


def remembered(records_of: RecordsOf, *known: CommitRecord) -> RecordsOf:
    """The same records, each asked for once: for the time of one decision, in which none of them changes."""
    seen: dict[tuple[str, int], Entry | None] = {(one.stream, one.seq): one for one in known}
    return lambda stream: _Remembered(records_of(stream), stream, seen)


@dataclass(frozen=True, slots=True)
class _Remembered:
    records: Records
    stream: str
    seen: dict[tuple[str, int], Entry | None]

    def get(self, seq: int) -> Entry | None:
        place = (self.stream, seq)
        if place not in self.seen:
            self.seen[place] = self.records.get(seq)
        return self.seen[place]


def merge_bases(records_of: RecordsOf, ours: Sequence[CommitRecord], theirs: CommitRecord) -> list[CommitRecord]:
    """Common ancestors of both that are not ancestors of another common one; several after criss-cross merges.

    `ours` is one commit, or several of which a virtual one was made: that one has the ancestors of all. Collected
    commits on the way do not matter; a base that was collected is SnapshotExpired.
    """
    return _Walk(records_of).run(ours, theirs)


def content_place(records_of: RecordsOf, record: CommitRecord) -> tuple[str, int]:
    """(stream, seq) of the commit that made the state of `record`: folds, upkeep and forks only repeat it.

    Two records of one state have the same place, whether or not that commit can still be read.
    """
    entry: Entry | None = record
    stream, seq = record.stream, record.seq
    while entry is not None:
        if entry.header.kind == "fork":
            stream, seq = entry.header.parents[0].stream, entry.header.parents[0].seq
        elif isinstance(entry, CommitRecord) and entry.content_seq != seq:
            seq = entry.content_seq
            if seq > 0:
                break  # only the first record of a stream can be a fork
        else:
            break
        entry = records_of(stream).get(seq)
    return stream, seq


@dataclass(order=True)
class _Point:
    """A commit reached by the walk; the highest generation comes first."""

    order: int
    record: Entry = field(compare=False)
    flags: int = field(compare=False)


class _Walk:
    def __init__(self, records_of: RecordsOf) -> None:
        self._records_of = records_of
        self._known: dict[tuple[str, int], Entry] = {}
        self._covered: dict[int, dict[str, int]] = {_OURS: {}, _THEIRS: {}, _STALE: {}}
        self._heap: list[_Point] = []

    def run(self, ours: Sequence[CommitRecord], theirs: CommitRecord) -> list[CommitRecord]:
        for one in ours:
            self._push(one, _OURS)
        self._push(theirs, _THEIRS)
        found: list[CommitRecord] = []
        while any(not point.flags & _STALE for point in self._heap):
            point = heapq.heappop(self._heap)
            record, flags = point.record, point.flags | self._flags_of(point.record)
            if flags & _BOTH == _BOTH and not flags & _STALE:
                if isinstance(record, Stub):
                    raise record.expired()
                found.append(record)
                flags |= _STALE
            self._cover(record, flags)
            self._descend(record, flags)
        return found

    def _flags_of(self, record: Entry) -> int:
        """What is known to lead here because it covers the stream up to a later record."""
        return sum(flag for flag, seqs in self._covered.items() if seqs.get(record.stream, -1) >= record.seq)

    def _cover(self, record: Entry, flags: int) -> None:
        for flag, seqs in self._covered.items():
            if flags & flag:
                seqs[record.stream] = max(seqs.get(record.stream, -1), record.seq)

    def _descend(self, record: Entry, flags: int) -> None:
        crossing = record if record.crossing_seq == record.seq else self._get(record.stream, record.crossing_seq)
        for parent in crossing.header.parents:
            if parent.stream == record.stream and parent.seq <= self._lowest_of_interest(record.stream):
                continue
            self._push(self._get(parent.stream, parent.seq), flags)

    def _lowest_of_interest(self, stream: str) -> int:
        """Below a record that is stale already, everything in its stream is."""
        return self._covered[_STALE].get(stream, -1)

    def _push(self, record: Entry, flags: int) -> None:
        heapq.heappush(self._heap, _Point(-record.header.gen, record, flags))

    def _get(self, stream: str, seq: int) -> Entry:
        if (stream, seq) not in self._known:
            found = self._records_of(stream).get(seq)
            if found is None:
                raise no_such_commit(f"{stream}.{seq}")
            self._known[stream, seq] = found
        return self._known[stream, seq]
