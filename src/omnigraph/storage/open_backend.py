"""Opens a `Backend`: the store, the tables and the threads for a graph at an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.storage.address import lists_in_order, open_store, parse_address
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import TableStore
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.storage.store import Store


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
