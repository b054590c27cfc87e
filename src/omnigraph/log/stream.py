"""Reads one stream of commit records and finds its newest record.

Object names count downwards, so that the first key of a listing is the newest record. A listing may be stale, so the
reader always probes upward from the newest record that was listed. No object points to the newest record, because
such a pointer could be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from omnigraph.errors import BranchClosed, Corruption
from omnigraph.log.commit_record import CommitRecord, Header, Stub, decode_record, no_such_commit
from omnigraph.storage.backend import Backend
from omnigraph.storage.store import ObjectInfo, ObjectMissing, Store

_HIGHEST = 10**16 - 1
_SUFFIX = ".rec"

StreamEntry = CommitRecord | Stub
"""What stands at one seq of a stream: a commit record, or the stub that cleanup left of it."""


def record_key(stream: str, seq: int) -> str:
    return f"__manifest/{stream}/{_HIGHEST - seq:016d}{_SUFFIX}"


def seq_of_key(key: str) -> int:
    name = key.rsplit("/", 1)[-1]
    digits = name.removesuffix(_SUFFIX)
    if not (name.endswith(_SUFFIX) and len(digits) == 16 and digits.isdecimal()):
        raise Corruption(f"{key} does not belong into a stream of records", advice="Move it away", key=key)
    return _HIGHEST - int(digits)


class RecordStream:
    """Reads the commit records of one stream, that is, of one life of one branch.

    Holds no state: every call asks the store, also for the newest record.
    """

    def __init__(self, store: Store, stream: str, *, listed_in_order: bool = True, read_ahead: int = 16) -> None:
        self.stream = stream
        self._store = store
        self._listed_in_order = listed_in_order
        self._read_ahead = read_ahead

    @classmethod
    def open(cls, backend: Backend, stream: str) -> RecordStream:
        """The reader of `stream` as this process is configured to read it."""
        return cls(
            backend.store,
            stream,
            listed_in_order=backend.lists_in_order,
            read_ahead=backend.config.read_ahead,
        )

    def get(self, seq: int) -> StreamEntry | None:
        key = record_key(self.stream, seq)
        try:
            return self._decode(self._store.get(key), seq)
        except ObjectMissing:
            return None

    def get_many(self, seqs: Sequence[int]) -> list[StreamEntry | None]:
        """The entries at `seqs`, read in parallel; None for each that is absent."""
        objects = self._store.get_many([record_key(self.stream, seq) for seq in seqs])
        return [self._decode(data, seq) if data is not None else None for seq, data in zip(seqs, objects, strict=True)]

    def record(self, seq: int) -> CommitRecord:
        """The commit record at `seq`.

        Raises NotFound if the stream has no such seq, and SnapshotExpired if cleanup has collected the commit.
        """
        entry = self.get(seq)
        if entry is None:
            raise no_such_commit(f"{self.stream}.{seq}")
        if isinstance(entry, Stub):
            raise entry.make_expired_error()
        return entry

    def newest(self) -> CommitRecord | None:
        """The newest record, by one listing and a look for the seq after it; None if the stream does not exist.

        Raises BranchClosed if the stream has ended and cleanup has collected its last record.
        """
        prefix = f"__manifest/{self.stream}/"
        objects = self._store.list(prefix, first_page=self._listed_in_order)
        if not objects:
            first_entry = self.get(0)
            return self._newest_from(first_entry) if first_entry else None
        newest_seq = _contiguous_seqs(self.stream, objects)[0]
        keys = [record_key(self.stream, newest_seq), record_key(self.stream, newest_seq + 1)]
        head_data, later_data = self._store.get_many(keys)
        if head_data is None:
            raise Corruption(
                f"record {self.stream}.{newest_seq} is listed but cannot be read", advice="Run `omnigraph verify`"
            )
        entry = self._decode(head_data, newest_seq)
        if later_data is not None:
            return self._newest_from(self._decode(later_data, newest_seq + 1))
        return _require_readable(entry)

    def after(self, seq: int, limit: int | None = None) -> list[StreamEntry]:
        """Every entry above `seq`, oldest first. Costs one GET if there is none.

        A result of more than `limit` entries means that the stream may hold further ones.
        """
        first = self.get(seq + 1)
        return [first, *self.after_many(seq + 1, limit)] if first else []

    def after_many(self, seq: int, limit: int | None = None) -> list[StreamEntry]:
        """Like `after`, but reads ahead in parallel from the start: for a caller that knows of newer records."""
        entries: list[StreamEntry] = []
        while limit is None or len(entries) < limit:
            ahead = self.read_ahead(seq + 1 + len(entries))
            entries += ahead
            if len(ahead) < self._read_ahead:
                break
        return entries

    def read_ahead(self, seq: int) -> list[StreamEntry]:
        """The entry at `seq` and those that follow, as many as one hop may bring; stops at the first absent one."""
        keys = [record_key(self.stream, seq + step) for step in range(self._read_ahead)]
        entries: list[StreamEntry] = []
        for step, data in enumerate(self._store.get_many(keys)):
            if data is None:
                break
            entries.append(self._decode(data, seq + step))
        return entries

    def headers(self, head: StreamEntry) -> Iterator[Header]:
        """Headers from `head` down to record 0 of the stream: one GET per 32 commits.

        A stub has no trail, so a stretch of collected commits costs one GET per commit.
        """
        entry: StreamEntry | None = head
        while entry is not None:
            yield entry.header
            if isinstance(entry, Stub):
                entry = self.get(entry.seq - 1) if entry.seq else None
                continue
            yield from reversed(entry.trail)
            oldest_seq = entry.trail[0].seq if entry.trail else entry.seq
            entry = self.get(oldest_seq - 1) if oldest_seq else None

    def _newest_from(self, entry: StreamEntry) -> CommitRecord:
        later = self.after_many(entry.seq)
        return _require_readable(later[-1] if later else entry)

    def _decode(self, data: bytes, seq: int) -> StreamEntry:
        key = record_key(self.stream, seq)
        entry = decode_record(data, key)
        if (entry.header.stream, entry.seq) != (self.stream, seq):
            raise Corruption(
                f"{key} holds the record {entry.header.commit_id}", advice="Run `omnigraph verify`", key=key
            )
        return entry


def branch_closed(stream: str) -> BranchClosed:
    return BranchClosed(
        f"the branch of stream {stream} was deleted",
        advice="Open the branch again by its name if it was re-created",
        stream=stream,
    )


def _require_readable(entry: StreamEntry) -> CommitRecord:
    if isinstance(entry, Stub) and entry.header.kind == "close":
        raise branch_closed(entry.stream)
    if isinstance(entry, Stub):
        raise Corruption(f"the newest record {entry.header.commit_id} is a stub", advice="Run `omnigraph verify`")
    return entry


def _contiguous_seqs(stream: str, objects: list[ObjectInfo]) -> list[int]:
    """Seqs of a listing, newest first. A missing seq in between is damage, never the end of the stream."""
    seqs = sorted((seq_of_key(info.key) for info in objects), reverse=True)
    for newer, older in pairwise(seqs):
        if newer != older + 1:
            raise Corruption(
                f"stream {stream} has no record {newer - 1}, though {newer} exists",
                advice="Restore the missing object; the graph is read-only at older commits until then",
                stream=stream,
                seq=newer - 1,
            )
    return seqs
