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
    """A note by a long reader that it needs one commit. It holds for `seconds` after it was written or renewed."""

    key: str
    commit_id: str
    seconds: float


def take_lease(runtime: GraphRuntime, commit_id: str, seconds: float) -> Lease:
    """Protect a commit from cleanup for this time. The lease is written first, then the commit is read again (H33)."""
    lease = Lease(f"{LEASES}{runtime.backend.ids.ulid()}.json", commit_id, seconds)
    renew_lease(runtime, lease)
    stream, seq = parse_commit_id(commit_id)
    entry = runtime.records(stream).get(seq)
    if not isinstance(entry, CommitRecord):
        end_lease(runtime, lease)
        raise _commit_gone_error(entry, commit_id)
    return lease


def renew_lease(runtime: GraphRuntime, lease: Lease) -> None:
    """Let the lease hold for its whole time again, from now."""
    runtime.backend.store.put(lease.key, json.dumps({"commit_id": lease.commit_id, "seconds": lease.seconds}).encode())


def end_lease(runtime: GraphRuntime, lease: Lease) -> None:
    """Give the lease up, by a duration of zero: only cleanup deletes objects."""
    runtime.backend.store.put(lease.key, json.dumps({"commit_id": lease.commit_id, "seconds": 0}).encode())


def scan_leases(runtime: GraphRuntime) -> Iterator[tuple[Lease, ObjectInfo]]:
    """Every lease, expired or not. Raises Corruption for a lease that cannot be read, since it may protect a commit."""
    infos = runtime.backend.store.list(LEASES)
    for info, data in zip(infos, runtime.backend.store.get_many([info.key for info in infos]), strict=True):
        try:
            raw = json.loads(data or b"")
            yield Lease(info.key, raw["commit_id"], float(raw["seconds"])), info
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{info.key} cannot be read", advice="Run `omnigraph verify`", key=info.key) from error


def holds(lease: Lease, info: ObjectInfo, store_now: datetime) -> bool:
    return info.modified_at + timedelta(seconds=lease.seconds) > store_now


def _commit_gone_error(stub: Stub | None, commit_id: str) -> OmnigraphError:
    return stub.make_expired_error() if stub is not None else no_such_commit(commit_id)
