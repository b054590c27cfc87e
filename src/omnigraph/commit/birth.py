"""The birth of a graph: the stamp `graph.json`, and record 0 of `main`, which is a pure function of the stamp.

A process that dies in between leaves either nothing, or a stamp from which any later writer completes record 0.
"""

from __future__ import annotations

from contextlib import suppress

from omnigraph.commit.next_record import first_record
from omnigraph.commit.put_record import FINAL_FAILURES
from omnigraph.errors import Conflict, Forbidden, Unavailable, Unknown
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.snapshot import schema_key
from omnigraph.log.stamp import STAMP_KEY, Stamp
from omnigraph.log.stream import record_key
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.backend import Backend
from omnigraph.storage.open_backend import probe_conditional_put, probe_hard_links
from omnigraph.storage.store import NOT_DURABLE, ObjectMissing, PutResult

_RETRY_WAIT_S = 0.05


class GraphExists(Conflict, code="graph_exists"):
    """The address holds a graph already; a graph is never replaced."""

    retryable = False


def birth_record(stamp: Stamp) -> CommitRecord:
    return first_record(
        stamp.main_stream, stamp.main_stream[-16:].lower(), stamp.graph_id, stamp.schema, stamp.creation_time
    )


def init_graph(backend: Backend, catalog: Catalog) -> Stamp:
    """Create the graph, or refuse if there is one. The number of requests does not depend on the schema.

    The schema object is written first and used to test whether the store supports put-if-absent: it is named by its
    content, so writers of the same object cannot disturb each other. A store without put-if-absent is thus refused
    before the stamp exists, that is, before readers would find a graph.
    """
    store = backend.store
    probe_hard_links(store, backend.ids)
    try:
        store.get(STAMP_KEY)
    except ObjectMissing:
        pass
    else:
        raise _exists(store.root)
    create_object(backend, schema_key(catalog.hash), catalog.encode())
    probe_conditional_put(store, schema_key(catalog.hash), catalog.encode())
    created_at = backend.clock.now().isoformat(timespec="milliseconds")
    stamp = Stamp(backend.ids.ulid(), backend.ids.ulid(), catalog.hash, created_at)
    if create_object(backend, STAMP_KEY, stamp.encode()) != stamp.encode():
        raise _exists(store.root)
    backend.pauses.reach("init.stamped")
    with suppress(Unavailable, Forbidden, Unknown):
        # The graph exists once its stamp does; the next open for writing completes it.
        complete_birth(backend, stamp)
    return stamp


def complete_birth(backend: Backend, stamp: Stamp) -> CommitRecord:
    """Write record 0 unless it exists. A read-write open does this as well, after a crash of `init`."""
    record = birth_record(stamp)
    create_object(backend, record_key(record.stream, 0), record.as_bytes)
    return record


def probe_for_writing(backend: Backend, stamp_bytes: bytes) -> None:
    """Check before writing that the store supports put-if-absent: one conditional PUT that must be refused."""
    probe_hard_links(backend.store, backend.ids)
    probe_conditional_put(backend.store, STAMP_KEY, stamp_bytes)


def create_object(backend: Backend, key: str, data: bytes) -> bytes:
    """Create the object `key` unless it exists. Returns the bytes that are stored under it, by this or another process.

    Sending the same bytes to the same key again is safe, so an unclear answer is followed by another try until the
    deadline. Raises Unknown if the outcome is still unclear then.
    """
    deadline = backend.clock.monotonic() + backend.config.publish_deadline_s
    unclear = False
    while True:
        try:
            if backend.store.put_if_absent(key, data) is PutResult.CREATED:
                return data
        except Unavailable as error:
            if error.code in FINAL_FAILURES and not unclear:
                raise
            unclear = True
            if backend.clock.monotonic() >= deadline:
                raise _unknown(key) from error
            if error.code == NOT_DURABLE:
                backend.clock.sleep(_RETRY_WAIT_S)
                continue
        try:
            return backend.store.get(key)
        except (Unavailable, ObjectMissing) as error:
            if backend.clock.monotonic() >= deadline:
                raise _unknown(key) from error
        backend.clock.sleep(_RETRY_WAIT_S)


def _unknown(key: str) -> Unknown:
    return Unknown(f"the store did not tell whether {key} was written", advice="Look whether it is there", key=key)


def _exists(root: str) -> GraphExists:
    return GraphExists(f"there is a graph at {root} already", advice="Open it, or choose another address", graph=root)
