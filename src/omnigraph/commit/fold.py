"""Folding: moves overlay entries into table versions, in a commit record of its own that changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import pyarrow as pa

from omnigraph.commit.publish_plan import PinReplacement, PublishPlan, WriteOptions
from omnigraph.commit.publisher import PlanFailed, PlanPublished, Publisher, PublishOutcome
from omnigraph.commit.staging import base_table, commit_staged
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.overlay import OverlayTable, overlay_size
from omnigraph.log.stream import StreamEntry
from omnigraph.schema.arrow import kind_of
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import TableDelta

FOLD_ACTOR = "omnigraph:fold"

SchemaOf = Callable[[CommitRecord, str], pa.Schema]
"""The physical schema of a table at a commit."""


def fullness(record: CommitRecord, config: Config) -> float:
    """The share of the soft bound that the overlay of `record` uses; 1.0 is the bound."""
    size_bytes, entries = overlay_size(record.overlay)
    return max(size_bytes / config.overlay_soft_bytes, entries / config.overlay_soft_entries)


def must_fold_first(record: CommitRecord, config: Config) -> bool:
    return config.fold != "never" and fullness(record, config) >= config.overlay_hard_factor


class Folder:
    """Folds one stream, one fold at a time per process. A fold whose entries are gone ends without an error."""

    def __init__(self, backend: Backend, publisher: Publisher, schema_of: SchemaOf) -> None:
        self._backend = backend
        self._publisher = publisher
        self._schema_of = schema_of
        self._busy = Lock()

    def fold(self, holder: str | None = None) -> StreamEntry | None:
        """Move all entries of the overlay into tables. Returns the fold record; None if there was nothing to do."""
        with self._busy:
            return self._fold(holder)

    def fold_if_free(self, holder: str | None = None) -> None:
        """Fold as a volunteer in the background; does nothing if another thread of the process folds."""
        if self._busy.acquire(blocking=False):
            try:
                self._fold(holder)
            finally:
                self._busy.release()

    def fold_if_over(self, holder: str | None = None) -> None:
        """Fold as a writer at the hard bound: wait for a fold of another thread, then fold if it is still needed."""
        with self._busy:
            if must_fold_first(self._publisher.head, self._backend.config):
                self._fold(holder)

    def wants_volunteer(self, record: CommitRecord) -> bool:
        """Whether this process should fold now: decided by chance, the likelier the fuller the overlay is."""
        config = self._backend.config
        if config.fold == "always":
            return bool(record.overlay)
        if config.fold == "random":
            return bool(record.overlay) and self._backend.ids.uniform(0, 1) < 0.5
        if config.fold == "never":
            return False
        chance = 2 * (fullness(record, config) - 0.5)
        return chance > 0 and self._backend.ids.uniform(0, 1) < chance**2

    def _fold(self, holder: str | None) -> StreamEntry | None:
        record = self._publisher.head
        if not record.overlay or record.kind == "close" or record.epoch.holder != holder:
            return None
        plan = self.plan(record, holder)
        deadline = self._backend.clock.monotonic() + self._backend.config.publish_deadline_s
        outcome: PublishOutcome = self._publisher.publish(plan, deadline)
        if isinstance(outcome, PlanFailed):
            raise outcome.error
        return outcome.record if isinstance(outcome, PlanPublished) else None

    def plan(self, record: CommitRecord, holder: str | None = None) -> PublishPlan:
        """Stage every table that has entries in `record`. The plan removes exactly those entries, by (id, rid)."""
        backend = self._backend
        backend.pauses.reach("fold.captured")
        folds = backend.in_parallel(lambda item: self._fold_table(record, *item), record.overlay.items())
        backend.pauses.reach("fold.staged")
        return PublishPlan(
            kind="fold",
            op_id=backend.ids.ulid(),
            base=record,
            pin_replacements=tuple(folds),
            options=WriteOptions(actor=FOLD_ACTOR),
            holder=holder,
        )

    def _fold_table(self, record: CommitRecord, table: str, entries: OverlayTable) -> PinReplacement:
        schema = self._schema_of(record, table)
        expected, base = base_table(self._backend, record, table, kind_of(schema))
        delta = TableDelta(
            schema=schema,
            rows=entries.rows,
            delete_ids=tuple(entries.tombstones),
            present_ids=() if expected is None else None,
        )
        staged = self._backend.tables.stage(base, delta)
        return PinReplacement(table, commit_staged(self._backend, expected, base, staged), entries.entry_keys)
