"""What must hold of every record whatever the operations meant: the chain, the pins, the counts, one row per id."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import OPS_SCHEMA, OPS_TYPE
from omnigraph.log.commit_record import NON_LOGICAL, CommitRecord, Pin, Stub
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stream import seq_of_key

_NO_PIN = Pin(None, 0, 0, 0, 0)
_BIRTH = "1"


def stream_ids(runtime: GraphRuntime) -> list[str]:
    """Every stream there is, registered or not."""
    infos = runtime.backend.store.list("__manifest/")
    return sorted({info.key.split("/")[1] for info in infos})


def entries_of(runtime: GraphRuntime, stream: str) -> list[CommitRecord | Stub]:
    """All records by seq; a gap fails here."""
    seqs = sorted(seq_of_key(info.key) for info in runtime.backend.store.list(f"__manifest/{stream}/"))
    assert seqs == list(range(len(seqs))), f"stream {stream} has a gap: {seqs}"
    records = runtime.records(stream)
    entries = [records.get(seq) for seq in seqs]
    return [entry for entry in entries if entry is not None]


def structure_violations(runtime: GraphRuntime) -> list[str]:
    """Everything wrong with the chains and pins of all streams, in words."""
    return [text for stream in stream_ids(runtime) for text in _stream_violations(runtime, stream)]


def _stream_violations(runtime: GraphRuntime, stream: str) -> Iterator[str]:
    previous: CommitRecord | None = None
    for entry in entries_of(runtime, stream):
        if isinstance(entry, Stub):
            previous = None
            continue
        if previous is not None:
            yield from chain_violations(previous, entry)
            yield from pin_violations(runtime, previous, entry)
        yield from table_violations(runtime, entry)
        previous = entry


def chain_violations(previous: CommitRecord, record: CommitRecord) -> Iterator[str]:
    """One parent in the stream, numbers that grow by one, time that never goes back, nothing after a close."""
    where, header = record.commit_id, record.header
    if header.parents[:1] != (previous.ref,):
        yield f"{where}: its parent is {header.parents[:1]}, not {previous.ref}"
    if header.seq != previous.seq + 1 or header.gen < previous.header.gen + 1:
        yield f"{where}: seq {header.seq} gen {header.gen} after seq {previous.seq} gen {previous.header.gen}"
    if header.created_at < previous.header.created_at:
        yield f"{where}: created before its parent"
    if previous.kind == "close":
        yield f"{where}: a record after the stream was closed"
    expected = previous.content_seq if record.kind in NON_LOGICAL else record.seq
    if record.content_seq != expected:
        yield f"{where}: content_seq {record.content_seq}, not {expected}"
    holder, before = record.epoch.holder, previous.epoch.holder
    if record.kind != "epoch" and record.epoch != previous.epoch:
        yield f"{where}: the epoch changed from {before} to {holder} without an epoch record"


def pin_violations(runtime: GraphRuntime, previous: CommitRecord, record: CommitRecord) -> Iterator[str]:
    """A pin moves only to a version that was built on the pin before it (H5)."""
    for table, pin in record.pins.items():
        before = previous.pins.get(table, _NO_PIN)
        if pin.version == before.version:
            continue
        if pin.version is None:
            yield f"{record.commit_id}: {table} lost its pin"
            continue
        if pin.version == _BIRTH:
            base, expected_base = None, before.version
        else:
            base, expected_base = (
                runtime.backend.tables.open(table, pin.version).base_version(),
                before.version or _BIRTH,
            )
        if base != expected_base:
            yield f"{record.commit_id}: {table} moved from {before.version} to {pin.version}, which was built on {base}"
    for table in previous.pins.keys() - record.pins.keys():
        if record.kind != "schema":
            yield f"{record.commit_id}: {table} is gone"


def table_violations(runtime: GraphRuntime, record: CommitRecord) -> Iterator[str]:
    """No id twice in any table, and the row counts of the record are those of its tables."""
    snapshot = Snapshot(runtime.backend, record, runtime.catalogs.get(record.schema))
    type_defs = snapshot.catalog.by_id
    for table, pin in record.pins.items():
        view = snapshot.view_of(OPS_TYPE.id, OPS_SCHEMA) if table == OPS_TYPE.id else snapshot.view(type_defs[table])
        ids = view.scan(["id"])["id"].to_pylist()
        if len(set(ids)) != len(ids):
            twice = sorted({row_id for row_id in ids if ids.count(row_id) > 1})
            yield f"{record.commit_id}: {table} holds {twice} twice"
        if len(ids) != pin.rows:
            yield f"{record.commit_id}: {table} says {pin.rows} rows and has {len(ids)}"
