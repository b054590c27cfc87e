"""One table of one snapshot, cut into parts that any process can read: the plan of a distributed scan.

A part is a plain value: the location of the pinned version, some of its fragments, and the ids that the overlay hides;
or the rows of the overlay. A reader of a part does not read the log again, so all parts see the same commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.errors import Corruption
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.query.language.check_statements import column_of
from omnigraph.query.language.statements import Condition
from omnigraph.query.plan.arrow_predicate import condition_to_expression
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.lance import PinnedTable
from omnigraph.storage.lance.bulk_tables import TableLocation

#: Bytes of data files that one part aims at: small enough to be retried, large enough to be worth a task.
PART_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PinnedPart:
    """Some fragments of a pinned version, without the rows that the overlay hides."""

    place: TableLocation
    table: str
    version: str
    fragment_ids: tuple[int, ...]
    hidden_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OverlayPart:
    """The rows of the overlay in the commit record, encoded."""

    rows: bytes


Part = PinnedPart | OverlayPart


@dataclass(frozen=True, slots=True)
class TableScan:
    """Which columns, under the names that users know, and which rows are read of each part."""

    type: TypeDef
    columns: tuple[str, ...]
    where: Condition | None = None

    @classmethod
    def of(cls, type_def: TypeDef, columns: Sequence[str] | None = None, where: Condition | None = None) -> TableScan:
        """All columns by default. Names that the type lacks are refused here, not by a worker."""
        names = tuple(columns) if columns is not None else tuple(list_columns(type_def))
        for name in names:
            column_of(type_def, name)
        if where is not None:
            condition_to_expression(type_def, where)
        return cls(type_def, names, where)

    @property
    def ids(self) -> list[str]:
        """The columns as storage names them."""
        return [column_of(self.type, name).id for name in self.columns]

    @property
    def schema(self) -> pa.Schema:
        """What `read` yields; a property is nullable if the schema of the graph says so."""
        physical = arrow_schema(self.type)
        return pa.schema(
            [
                pa.field(name, physical.field(column).type, self._nullable(column))
                for name, column in zip(self.columns, self.ids, strict=True)
            ]
        )

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in bounded memory. Runs anywhere."""
        schema, physical = self.schema, arrow_schema(self.type)
        where = condition_to_expression(self.type, self.where) if self.where is not None else None
        if isinstance(part, OverlayPart):
            batches = TableView(physical, None, OverlayTable.decode(part.rows)).batches(self.ids, where)
        else:
            pinned = part.place.open().open(part.table, part.version)
            batches = pinned.batches(
                self.ids, where, part.hidden_ids, schema=physical, fragment_ids=set(part.fragment_ids)
            )
        for batch in batches:
            yield self._require_values(batch, schema)

    def _nullable(self, column: str) -> bool:
        prop = self.type.by_id.get(column)
        return prop is not None and prop.nullable

    def _require_values(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Raises Corruption if a required value is missing: engines believe NOT NULL and would return wrong rows."""
        for at, field in enumerate(schema):
            if not field.nullable and batch.column(at).null_count:
                raise Corruption(
                    f"{self.type.table_key} has rows without {field.name}, which the schema requires",
                    advice="Run `omnigraph verify`",
                    table=self.type.table_key,
                )
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def plan_parts(snapshot: Snapshot, type_def: TypeDef, part_bytes: int = PART_BYTES) -> list[Part]:
    """All rows of a type, each in exactly one part. Costs the table's manifest, no data."""
    view = snapshot.view(type_def)
    hidden = tuple(view.overlay.hidden_ids) if view.overlay else ()
    parts: list[Part] = []
    if view.pinned is not None:
        location = snapshot.backend.tables.location
        parts += [
            PinnedPart(location, view.pinned.table, view.pinned.version, group, hidden)
            for group in group_fragments(view.pinned, part_bytes)
        ]
    if view.overlay is not None and view.overlay.rows.num_rows:
        parts.append(OverlayPart(view.overlay.as_bytes))
    return parts


def group_fragments(pinned: PinnedTable, part_bytes: int) -> Iterator[tuple[int, ...]]:
    """Neighbouring fragments together, as long as their data files stay within the bound."""
    group: list[int] = []
    size = 0
    for fragment in pinned.metadata:
        fragment_bytes = sum(file.file_size_bytes or 0 for file in fragment.files)
        if group and size + fragment_bytes > part_bytes:
            yield tuple(group)
            group, size = [], 0
        group.append(fragment.id)
        size += fragment_bytes
    if group:
        yield tuple(group)


def list_columns(type_def: TypeDef) -> Collection[str]:
    """`id`, for edges `from` and `to`, then all properties."""
    return [*(["id", "from", "to"] if type_def.kind == "edge" else ["id"]), *type_def.by_name]
