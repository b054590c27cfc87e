"""Graphs for queries: the same content laid out in storage in different ways, and the engine against the interpreter.

A row may live in a table version under an index, in one without, or in the overlay; the overlay may hide older images
of a row and removed rows that the table version still holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from omnigraph.api import make_backend
from omnigraph.config import Config
from omnigraph.embed.providers import Embedder
from omnigraph.log.commit_record import CommitRecord, Epoch, Header, Pin, WriteSet
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.checked import CheckedQuery, CheckedRead, Const, Param
from omnigraph.query.language.parse import pick_query
from omnigraph.query.limits import QueryLimits
from omnigraph.query.run.result import Result
from omnigraph.query.run.run_query import Coding, prepare_run
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, Scalar, TypeDef
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.values import convert, derive_id
from omnigraph.storage.backend import Backend
from omnigraph.storage.lance import IndexSpec, PinnedTable, TableDelta
from tests.query.run.interpreter import Graph, Interpreter, Row

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Layout = Literal["indexed", "plain", "overlay"]
Content = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by type name, under the users' names; edges have `from` and `to`. `_at` places a row, `_ghost` removes it."""


@dataclass
class QueryBed:
    """One graph at one commit."""

    backend: Backend
    catalog: Catalog
    snapshot: Snapshot
    graph: Graph
    coding: Coding = "auto"

    def check(self, source: str, name: str | None = None) -> CheckedQuery:
        return check_query(pick_query(source, name), self.catalog)

    def run(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        limits: QueryLimits | None = None,
        embedder: Embedder | None = None,
    ) -> Result:
        checked = self.check(source)
        bound = bind_params(checked, params or {})
        run = prepare_run(
            self.snapshot, checked, bound, now=NOW, limits=limits, backend=self.backend, embedder=embedder
        )
        return run.result(self.coding)

    def rows(self, source: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        return self.run(source, params).rows

    def expected(
        self, source: str, params: Mapping[str, Any] | None = None, embedder: Embedder | None = None
    ) -> tuple[CheckedRead, list[list[Any]]]:
        """The interpreter's rows, before limit and offset."""
        checked = self.check(source)
        assert isinstance(checked.body, CheckedRead)
        bound = bind_params(checked, params or {})
        return checked.body, Interpreter(self.catalog, self.graph, bound, NOW, embedder).run(checked.body)

    def agree(
        self, source: str, params: Mapping[str, Any] | None = None, *, embedder: Embedder | None = None
    ) -> list[dict[str, Any]]:
        """Assert that the engine gives what the interpreter gives. The engine's rows."""
        result = self.run(source, params, embedder=embedder)
        read, expected = self.expected(source, params, embedder)
        bound = bind_params(self.check(source), params or {})
        actual = [list(row.values()) for row in result.rows]
        assert (
            [column.name for column in result.columns]
            == result.table.column_names
            == [column.name for column in read.columns]
        )
        limit = _number(read.limit, bound)
        offset = _number(read.offset, bound) or 0
        expected_count = len(expected[offset:]) if limit is None else len(expected[offset : offset + limit])
        assert len(actual) == expected_count, (source, actual, expected)
        if read.order:
            expected = expected[offset:] if limit is None else expected[offset : offset + limit]
            assert all(
                same(actual_row, expected_row) for actual_row, expected_row in zip(actual, expected, strict=True)
            ), (source, actual, expected)
        else:
            _assert_contained(actual, expected, source)
        return result.rows


def _number(value: Const | Param | None, bound: Mapping[str, Any]) -> int | None:
    if value is None:
        return None
    return int(value.value if isinstance(value, Const) else bound[value.slot])


def _assert_contained(actual: list[list[Any]], expected: list[list[Any]], source: str) -> None:
    unmatched = list(expected)
    for row in actual:
        position = next((at for at, candidate in enumerate(unmatched) if same(row, candidate)), None)
        assert position is not None, (source, "unexpected", row, "among", actual, "expected", expected)
        unmatched.pop(position)


def same(first: Any, second: Any) -> bool:
    """Equal values; floats up to rounding, NaN equal to itself."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, float) and isinstance(second, (int, float)):
        return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
    return type(first) is type(second) and bool(first == second)


# ---- building --------------------------------------------------------------------------------------------------------


def make_bed(root: Path, schema: str, content: Content) -> QueryBed:
    """A graph with this content, each row where its `_at` says (default: the overlay)."""
    catalog = compile_schema(schema, mint=lambda: "t")
    backend = make_backend(str(root), None, Config(fsync=False))
    pins: dict[str, Pin] = {}
    overlay: dict[str, OverlayTable] = {}
    graph: dict[str, list[Row]] = {}
    for type_def in catalog.types:
        placed = _Placed(
            type_def, content.get(type_def.table_key) or _of_kind(type_def, content.get(type_def.name, ()))
        )
        graph[type_def.id] = placed.alive
        pinned = placed.pin(backend)
        entries = placed.overlay()
        if pinned is not None or entries is not None:
            pins[type_def.id] = Pin(
                pinned.version if pinned else None,
                len(placed.alive),
                pinned.size_bytes if pinned else 0,
                pinned.fragments if pinned else 0,
                1,
            )
        if entries is not None:
            overlay[type_def.id] = entries
    header = Header("0" * 26, 1, "r", "mutate", (), 1, catalog.hash, NOW, None, None, (), "main")
    record = CommitRecord(header, Epoch(), 1, pins, {}, WriteSet(), overlay)
    return QueryBed(backend, catalog, Snapshot(backend, record, catalog), graph)


def _of_kind(type_def: TypeDef, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """A node type and an edge type may have one name."""
    return [row for row in rows if ("from" in row) == (type_def.kind == "edge")]


def with_overlay_folded(bed: QueryBed) -> QueryBed:
    """The same content with every overlay entry in its table version."""
    pins = dict(bed.snapshot.record.pins)
    for type_def in bed.catalog.types:
        entries = bed.snapshot.record.overlay.get(type_def.id)
        if entries is None:
            continue
        base = bed.snapshot.view(type_def).pinned or bed.backend.tables.birth(type_def.id, type_def.kind)
        delta = TableDelta(arrow_schema(type_def), entries.rows, tuple(entries.tombstones))
        version = bed.backend.tables.commit(base, bed.backend.tables.stage(base, delta))
        pins[type_def.id] = replace(pins[type_def.id], version=version.version)
    record = replace(bed.snapshot.record, pins=pins, overlay={})
    return QueryBed(bed.backend, bed.catalog, Snapshot(bed.backend, record, bed.catalog), bed.graph)


@dataclass
class _Placed:
    """The rows of one type by place."""

    type: TypeDef
    given: Iterable[Mapping[str, Any]]
    alive: list[Row] = field(default_factory=list)
    by_place: dict[str, list[Row]] = field(default_factory=lambda: {"indexed": [], "plain": [], "overlay": []})
    gone: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, raw in enumerate(self.given):
            row = self._stored_row(raw, number)
            layer = str(raw.get("_at", "overlay"))
            if raw.get("_ghost"):
                layer = "plain" if layer == "overlay" else layer
                self.gone.append(row["id"])
            else:
                self.alive.append(row)
                if raw.get("_was") and layer == "overlay":
                    # An older image that the overlay hides.
                    self.by_place["indexed"].append({**row, **self._blank_row()})
            self.by_place[layer].append(row)

    def _blank_row(self) -> dict[str, Any]:
        return {prop.id: None for prop in self.type.properties if prop.id not in self.type.key}

    def _stored_row(self, raw: Mapping[str, Any], number: int) -> Row:
        row = {prop.id: _as_arrow_returns(prop, raw.get(prop.name)) for prop in self.type.properties}
        if self.type.key:
            row_id = derive_id(self.type, row)
        else:
            row_id = str(raw.get("id", f"{self.type.name.lower()}{number:04d}"))
        ends = {"src": raw["from"], "dst": raw["to"]} if self.type.kind == "edge" else {}
        return {"id": row_id, **ends, **row}

    def pin(self, backend: Backend) -> PinnedTable | None:
        if not self.by_place["indexed"] and not self.by_place["plain"]:
            return None
        schema = arrow_schema(self.type)
        staged = backend.tables.birth(self.type.id, self.type.kind)
        if self.by_place["indexed"]:
            staged = _stage_rows(backend, staged, schema, self.by_place["indexed"])
            staged = backend.tables.commit(staged, backend.tables.stage_index(staged, index_specs(self.type)))
        if self.by_place["plain"]:
            staged = _stage_rows(backend, staged, schema, self.by_place["plain"])
        return staged

    def overlay(self) -> OverlayTable | None:
        rows = self.by_place["overlay"]
        if not rows and not self.gone:
            return None
        schema = arrow_schema(self.type)
        return OverlayTable.of_change(schema, _table(schema, rows), self.gone, "r")


def _as_arrow_returns(prop: Any, value: Any) -> Any:
    """The value as Arrow gives it back."""
    stored = convert(prop, value)
    return list(stored) if prop.type.vector_size is not None and stored is not None else stored


def _table(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {field.name: pa.array([row[field.name] for row in rows], field.type) for field in schema}, schema=schema
    )


def _stage_rows(backend: Backend, base: PinnedTable, schema: pa.Schema, rows: Sequence[Row]) -> PinnedTable:
    delta = TableDelta(schema, _table(schema, rows), present_ids=())
    return backend.tables.commit(base, backend.tables.stage(base, delta))


def index_specs(type_def: TypeDef) -> list[IndexSpec]:
    """Every index that a table of this type could have."""
    specs = [
        IndexSpec(f"by_{name}", name, "BTREE")
        for name in ("id", "src", "dst")
        if name == "id" or type_def.kind == "edge"
    ]
    for prop in type_def.properties:
        kind = prop.type
        if kind.vector_size is not None or kind.scalar is Scalar.BLOB:
            continue
        if kind.is_list:
            if kind.scalar is Scalar.STRING:
                specs.append(IndexSpec(f"by_{prop.id}", prop.id, "LABEL_LIST"))
        elif kind.scalar is Scalar.STRING and not kind.enum_values:
            specs.append(IndexSpec(f"text_{prop.id}", prop.id, "INVERTED", (("with_position", True),)))
            specs.append(IndexSpec(f"by_{prop.id}", prop.id, "BTREE"))
        else:
            specs.append(IndexSpec(f"by_{prop.id}", prop.id, "BTREE"))
    return specs


def place_all(content: Content, where: Layout) -> dict[str, list[dict[str, Any]]]:
    """The same content, all of it in one place."""
    return {name: [{**row, "_at": where} for row in rows] for name, rows in content.items()}


def spread(content: Content) -> dict[str, list[dict[str, Any]]]:
    """The same content, each third of the rows in another place; some overlay rows hide an older image."""
    places: tuple[Layout, ...] = ("indexed", "plain", "overlay")
    return {
        name: [{**row, "_at": places[at % 3], "_was": at % 2} for at, row in enumerate(rows)]
        for name, rows in content.items()
    }


def day(text: str) -> date:
    return date.fromisoformat(text)
