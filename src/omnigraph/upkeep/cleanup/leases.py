"""Leases: a long reader says which commit it needs, and until when, so that cleanup leaves it alone.

A lease lives by the store's clock: it was last written then and then, and holds for so many seconds from there. Nobody
removes one but cleanup; a reader that is done lets it end at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, OmnigraphError
from omnigraph.log.commit_record import CommitRecord, Stub, no_such_commit, parse_commit_id
from omnigraph.storage.store import ObjectInfo

LEASES = "__leases/"


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim on one commit."""

    key: str
    commit_id: str
    seconds: float


def take_lease(runtime: GraphRuntime, commit_id: str, seconds: float) -> Lease:
    """Keep a commit for so long. Written first, then the commit is read again (H33)."""
    lease = Lease(f"{LEASES}{runtime.backend.ids.ulid()}.json", commit_id, seconds)
    renew_lease(runtime, lease)
    stream, seq = parse_commit_id(commit_id)
    found = runtime.records(stream).get(seq)
    if not isinstance(found, CommitRecord):
        end_lease(runtime, lease)
        raise _gone(found, commit_id)
    return lease


def renew_lease(runtime: GraphRuntime, lease: Lease) -> None:
    """Let it hold for its whole time again, from now."""
    runtime.backend.store.put(lease.key, json.dumps({"commit_id": lease.commit_id, "seconds": lease.seconds}).encode())


def end_lease(runtime: GraphRuntime, lease: Lease) -> None:
    """Give it up."""
    runtime.backend.store.put(lease.key, json.dumps({"commit_id": lease.commit_id, "seconds": 0}).encode())


def scan_leases(runtime: GraphRuntime) -> Iterator[tuple[Lease, ObjectInfo]]:
    """Every lease, over or not; one that cannot be read is an error, since it protects something."""
    listed = runtime.backend.store.list(LEASES)
    for info, data in zip(listed, runtime.backend.store.get_many([one.key for one in listed]), strict=True):
        try:
            raw = json.loads(data or b"")
            yield Lease(info.key, raw["commit_id"], float(raw["seconds"])), info
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{info.key} cannot be read", advice="Run `omnigraph verify`", key=info.key) from error


def holds(lease: Lease, info: ObjectInfo, store_now: datetime) -> bool:
    return info.modified_at + timedelta(seconds=lease.seconds) > store_now


def _gone(found: Stub | None, commit_id: str) -> OmnigraphError:
    return found.make_expired_error() if found is not None else no_such_commit(commit_id)
