"""Reading one stream of commit records, and finding its newest one.

Names count downwards, so that the first key of a listing is the newest record. A listing may be stale, so the
reader always probes upward from what was listed; no pointer exists that could be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from omnigraph.errors import BranchClosed, Corruption
from omnigraph.log.commit_record import CommitRecord, Header, Stub, decode_record, no_such_commit
from omnigraph.storage.store import ObjectInfo, ObjectMissing, Store

_HIGHEST = 10**16 - 1
_SUFFIX = ".rec"

Entry = CommitRecord | Stub


def record_key(stream: str, seq: int) -> str:
    return f"__manifest/{stream}/{_HIGHEST - seq:016d}{_SUFFIX}"


def seq_of_key(key: str) -> int:
    name = key.rsplit("/", 1)[-1]
    digits = name.removesuffix(_SUFFIX)
    if not (name.endswith(_SUFFIX) and len(digits) == 16 and digits.isdecimal()):
        raise Corruption(f"{key} does not belong into a stream of records", advice="Move it away", key=key)
    return _HIGHEST - int(digits)


class RecordStream:
    """The records of one branch incarnation. Holds no state: what is newest is asked of the store."""

    def __init__(self, store: Store, stream: str, *, listed_in_order: bool = True, read_ahead: int = 16) -> None:
        self.stream = stream
        self._store = store
        self._listed_in_order = listed_in_order
        self._read_ahead = read_ahead

    def get(self, seq: int) -> Entry | None:
        key = record_key(self.stream, seq)
        try:
            return self._decode(key, self._store.get(key), seq)
        except ObjectMissing:
            return None

    def record(self, seq: int) -> CommitRecord:
        """The commit at `seq`, or a typed answer why there is none to read."""
        found = self.get(seq)
        if found is None:
            raise no_such_commit(f"{self.stream}.{seq}")
        if isinstance(found, Stub):
            raise found.expired()
        return found

    def newest(self) -> CommitRecord | None:
        """The head by one listing and a probe; None if the stream was never born.

        Raises BranchClosed if the stream has ended and its last record was collected.
        """
        prefix = f"__manifest/{self.stream}/"
        listed = self._store.list(prefix, first_page=self._listed_in_order)
        if not listed:
            found = self.get(0)
            return self._newest_from(found) if found else None
        seqs = _contiguous(self.stream, listed)
        head, later = self._store.get_many([record_key(self.stream, seqs[0]), record_key(self.stream, seqs[0] + 1)])
        if head is None:
            raise Corruption(
                f"record {self.stream}.{seqs[0]} is listed but cannot be read", advice="Run `omnigraph verify`"
            )
        entry = self._decode(record_key(self.stream, seqs[0]), head, seqs[0])
        if later is not None:
            entry = self._decode(record_key(self.stream, seqs[0] + 1), later, seqs[0] + 1)
            return self._newest_from(entry)
        return _readable(entry)

    def after(self, seq: int, limit: int | None = None) -> list[Entry]:
        """Every record above `seq`, oldest first. One GET when there is none.

        More than `limit` of them means that there may be further ones.
        """
        first = self.get(seq + 1)
        return [first, *self.after_many(seq + 1, limit)] if first else []

    def after_many(self, seq: int, limit: int | None = None) -> list[Entry]:
        """Like `after`, but reads ahead in parallel from the start: for those who know that they are behind."""
        found: list[Entry] = []
        while limit is None or len(found) < limit:
            ahead = self.read_ahead(seq + 1 + len(found))
            found += ahead
            if len(ahead) < self._read_ahead:
                break
        return found

    def read_ahead(self, seq: int) -> list[Entry]:
        """The record at `seq` and those that follow, as many as one hop may bring; stops at the first absent one."""
        keys = [record_key(self.stream, seq + step) for step in range(self._read_ahead)]
        found: list[Entry] = []
        for step, data in enumerate(self._store.get_many(keys)):
            if data is None:
                break
            found.append(self._decode(keys[step], data, seq + step))
        return found

    def headers(self, head: Entry) -> Iterator[Header]:
        """Headers from `head` down to the birth of the stream: one GET per 32 commits.

        Ends early, without an error, at the first commit whose body was collected and whose trail is gone.
        """
        record: Entry | None = head
        while record is not None:
            yield record.header
            if isinstance(record, Stub):
                record = self.get(record.seq - 1) if record.seq else None
                continue
            yield from reversed(record.trail)
            oldest = record.trail[0].seq if record.trail else record.seq
            record = self.get(oldest - 1) if oldest else None

    def _newest_from(self, entry: Entry) -> CommitRecord:
        later = self.after_many(entry.seq)
        return _readable(later[-1] if later else entry)

    def _decode(self, key: str, data: bytes, seq: int) -> Entry:
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


def _readable(entry: Entry) -> CommitRecord:
    if isinstance(entry, Stub) and entry.header.kind == "close":
        raise branch_closed(entry.stream)
    if isinstance(entry, Stub):
        raise Corruption(f"the newest record {entry.header.commit_id} is a stub", advice="Run `omnigraph verify`")
    return entry


def _contiguous(stream: str, listed: list[ObjectInfo]) -> list[int]:
    """Seqs of a listing, newest first. A missing one in between is damage, never the end of the log."""
    seqs = sorted((seq_of_key(one.key) for one in listed), reverse=True)
    for newer, older in pairwise(seqs):
        if newer != older + 1:
            raise Corruption(
                f"stream {stream} has no record {newer - 1}, though {newer} exists",
                advice="Restore the missing object; the graph is read-only at older commits until then",
                stream=stream,
                seq=newer - 1,
            )
    return seqs
