"""Opens a `Backend`: the store, the tables and the threads for a graph at an address."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.errors import Forbidden, Unavailable, Unsupported
from omnigraph.storage.address import lists_in_order, open_store, parse_address
from omnigraph.storage.backend import Backend
from omnigraph.storage.keys import TEMPORARY_PREFIX
from omnigraph.storage.lance import TableStore
from omnigraph.storage.local import LocalStore, no_hard_links
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.storage.store import ObjectMissing, PutResult, Store, innermost

_NOT_IMPLEMENTED = 501


def probe_conditional_put(store: Store, key: str, data: bytes) -> None:
    """Refuse a store that lets an existing key be created again.

    `key` must exist and hold exactly `data`, so that a store which ignores the condition overwrites it unchanged.
    """
    try:
        answer = store.put_if_absent(key, data)
    except Unavailable as error:
        if error.details.get("status") != _NOT_IMPLEMENTED:
            raise
        answer = PutResult.CREATED
    if answer is PutResult.EXISTS:
        return
    raise Unsupported(
        f"the store at {store.root} does not support conditional PUT (If-None-Match: *): "
        f"it accepted a second creation of {key!r}, so two writers could overwrite each other's commits",
        code="no_conditional_put",
        advice="Use a store with conditional writes (Amazon S3, Google Cloud Storage, Azure, a recent SeaweedFS)",
        root=store.root,
    )


def probe_missing_key(store: Store, key: str) -> None:
    """Refuse a store that does not say plainly that a key is missing. `key` must never have been written."""
    try:
        store.get(key)
    except ObjectMissing:
        return
    except Forbidden as error:
        raise Forbidden(
            f"the store at {store.root} answers 403 for a key that does not exist, so 'missing' and 'not allowed' "
            "cannot be told apart: the permission to list is lacking",
            code="list_permission_missing",
            advice="Grant the permission to list (s3:ListBucket on the bucket itself, not on its objects), "
            "or check the credentials",
            root=store.root,
        ) from error
    raise Unsupported(
        f"the store at {store.root} returned an object for {key!r}, which was never written",
        code="invents_objects",
        advice="Check what answers at that address: a proxy or a web server is no object store",
        root=store.root,
    )


def probe_hard_links(store: Store, ids: IdSource | None = None) -> None:
    """Refuse a local directory where a hard link cannot be made, or where one replaces an existing name (H41).

    Stores that are not local pass.
    """
    local = innermost(store)
    if not isinstance(local, LocalStore):
        return
    stem = f"{local.root}/{TEMPORARY_PREFIX}probe-{(ids or SystemIds()).token(12)}"
    first_path, second_path = f"{stem}-a", f"{stem}-b"
    with local.typed_errors("probe", TEMPORARY_PREFIX):
        os.makedirs(local.root, exist_ok=True)
        try:
            for path in (first_path, second_path):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
            if not _link_refuses(first_path, second_path) or not _link_works(first_path, f"{stem}-c"):
                raise no_hard_links(local.root)
        finally:
            for path in (first_path, second_path, f"{stem}-c"):
                with suppress(FileNotFoundError):
                    os.unlink(path)


def _link_refuses(source: str, existing: str) -> bool:
    try:
        os.link(source, existing)
    except FileExistsError:
        return True
    except OSError:
        return False
    return False


def _link_works(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError:
        return False
    return os.path.samefile(source, target)


def make_backend(
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    config: Config | None = None,
    *,
    wrap: Callable[[Store], Store] | None = None,
    pauses: Pauses = NO_PAUSES,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Backend:
    """The backend of the graph at `uri`. `wrap` puts a meter, or in tests a throttle or faults, around the store."""
    config = config or Config.from_environment()
    store = open_store(uri, storage_options, fsync=config.fsync)
    address = parse_address(uri, storage_options)
    local_root = Path(address.uri) if address.is_local else None
    tables = TableStore(address.uri, address.options, fsync=config.fsync, local_root=local_root)
    return Backend(
        store=wrap(store) if wrap else store,
        tables=tables,
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
        pauses=pauses,
        config=config,
        lists_in_order=lists_in_order(store.root),
    )
