"""Stores a commit record and learns the outcome: it landed, it was refused, or nobody can tell (raises Unknown)."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.errors import Corruption, Forbidden, InvalidInput, NotFound, OmnigraphError, Unavailable, Unknown
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.stream import RecordStream, StreamEntry, record_key
from omnigraph.storage.backend import Backend
from omnigraph.storage.store import NOT_DURABLE, PutResult

FINAL_FAILURES = frozenset({"disk_full", "read_only_file_system", "root_vanished", "too_many_open_files"})
"""Failures of a local directory after which no write is still on its way: a record that is absent did not land."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.5


@dataclass(frozen=True, slots=True)
class RecordLanded:
    """The record is durable under its seq."""


@dataclass(frozen=True, slots=True)
class RecordRefused:
    """Another record has the seq: this one did not land and never will. `entries` are that record and its followers."""

    entries: tuple[StreamEntry, ...]


def put_record(
    backend: Backend, records: RecordStream, record: CommitRecord, deadline: float
) -> RecordLanded | RecordRefused:
    """Create `record` under its seq. Raises Unknown if the outcome is unclear at `deadline` (monotonic seconds).

    The answer "exists" may mean an earlier try of this call, another writer's record, or a store that answers 409
    without having looked; a PUT that failed may have landed. In both cases the seq is read: if it holds the rid of
    `record`, the record has landed; another rid means refused. If the seq is absent nothing is known, since the first
    PUT may still arrive: the same bytes go to the same seq again.
    """
    key = record_key(record.stream, record.seq)
    wait_s = _FIRST_WAIT_S
    may_have_landed = False  # an earlier PUT of this call may have landed, or may land later
    while True:
        try:
            if backend.store.put_if_absent(key, record.as_bytes) is PutResult.CREATED:
                return RecordLanded()
            may_have_landed = True
            outcome = _look_up_outcome(records, record)
        except Forbidden as error:
            # The store's client may have repeated the request by itself, and an earlier try may have landed.
            outcome = _try_look_up_outcome(records, record)
            if outcome is None and may_have_landed:
                raise _unknown_error(record) from error
            if outcome is None:
                raise
        except (InvalidInput, NotFound) as error:
            # The store refused this request as invalid, which says nothing about an earlier one.
            if may_have_landed:
                raise _unknown_error(record) from error
            raise
        except Unavailable as error:
            outcome = _try_look_up_outcome(records, record)
            if error.code == NOT_DURABLE and isinstance(outcome, RecordLanded):
                outcome = None  # readable, but a power cut could lose it: the next PUT makes it durable
            if outcome is None and error.code in FINAL_FAILURES and not may_have_landed:
                raise
            may_have_landed = True
            if outcome is None and backend.clock.monotonic() >= deadline:
                raise _unknown_error(record) from error
        if outcome is not None:
            return outcome
        if backend.clock.monotonic() >= deadline:
            raise _unknown_error(record)
        backend.clock.sleep(backend.ids.uniform(wait_s / 2, wait_s))
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _look_up_outcome(records: RecordStream, record: CommitRecord) -> RecordLanded | RecordRefused | None:
    entries = records.read_ahead(record.seq)
    if not entries:
        return None
    return RecordLanded() if entries[0].rid == record.rid else RecordRefused(tuple(entries))


def _try_look_up_outcome(records: RecordStream, record: CommitRecord) -> RecordLanded | RecordRefused | None:
    try:
        return _look_up_outcome(records, record)
    except Corruption:
        raise
    except OmnigraphError:
        return None


def _unknown_error(record: CommitRecord) -> Unknown:
    member = record.members[0]
    return Unknown(
        f"the store did not tell whether commit {record.commit_id} landed",
        advice="Repeat the write with the same client key, or read the graph, before anything else",
        op_id=member.op_id,
        client_key=member.client_key,
    )
