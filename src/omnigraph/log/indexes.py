"""The indexes that a schema asks for, table by table, and how much of a table version each of them covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import SYSTEM_COLUMNS, DeclaredIndex, Scalar, TypeDef
from omnigraph.storage.lance import IndexSpec, PinnedTable

DEFAULT_METRIC = "cosine"
_ROWS_PER_PARTITION = 4096
_MOST_PARTITIONS = 4096

#: Texts are cut into words as the engine cuts them: no stems, no stop words; positions for phrases.
_TEXT_PARAMS = (("with_position", True), ("stem", False), ("remove_stop_words", False), ("ascii_folding", False))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a table one index knows. Rows outside are found by reading, so answers never depend on it."""

    name: str
    column: str
    kind: str
    covered_fragments: int
    fragments: int
    covered_rows: int
    rows: int
    segments: int

    @property
    def is_complete(self) -> bool:
        return self.covered_fragments == self.fragments


def wanted_indexes(one: TypeDef, pinned: PinnedTable) -> list[IndexSpec]:
    """What the schema asks for, of the columns that this version has.

    Sorted: `id`, the ends of an edge, keys, unique values, and `@index` of scalars and enums. Words: `@index` of a
    String. Nearness: `@index` of a vector.
    """
    sorted_columns = dict.fromkeys(
        [
            *SYSTEM_COLUMNS[one.kind],
            *one.key,
            *(column for rule in one.uniques for column in rule),
            *(rule.column for rule in one.indexes if _is_sorted(one, rule)),
        ]
    )
    specs = [IndexSpec(f"by_{column}", column, "BTREE") for column in sorted_columns]
    for rule in one.indexes:
        kind = one.by_id[rule.column].type
        if kind.vector_size is not None:
            specs.append(_vector_index(rule, pinned.rows))
        elif not _is_sorted(one, rule):
            specs.append(IndexSpec(f"text_{rule.column}", rule.column, "INVERTED", _TEXT_PARAMS))
    return [spec for spec in specs if spec.column in pinned.schema.names]


def unwanted_indexes(pinned: PinnedTable, wanted: Sequence[IndexSpec]) -> list[str]:
    """Names of indexes that the schema no longer asks for."""
    known = {spec.name for spec in wanted}
    return sorted(info.name for info in pinned.indices() if info.name not in known)


def coverage(pinned: PinnedTable, wanted: Sequence[IndexSpec]) -> list[Coverage]:
    """How much of the table every wanted index covers; an index that is not there covers nothing."""
    rows = {one.id: one.num_rows for one in pinned.metadata}
    built = {info.name: info for info in pinned.indices()}
    found = []
    for spec in wanted:
        info = built.get(spec.name)
        covered = info.covered_fragments if info else frozenset()
        covered_rows = sum(rows[one] for one in covered)
        segments = len(info.segments) if info else 0
        found.append(
            Coverage(spec.name, spec.column, spec.kind, len(covered), len(rows), covered_rows, pinned.rows, segments)
        )
    return found


def table_coverage(snapshot: Snapshot, one: TypeDef) -> list[Coverage]:
    """Coverage of every index that the schema wants for a type; nothing if no version of its table exists."""
    pinned = snapshot.view(one).pinned
    return coverage(pinned, wanted_indexes(one, pinned)) if pinned is not None else []


def _is_sorted(one: TypeDef, rule: DeclaredIndex) -> bool:
    kind = one.by_id[rule.column].type
    return kind.vector_size is None and (kind.scalar is not Scalar.STRING or bool(kind.enum_values))


def _vector_index(rule: DeclaredIndex, rows: int) -> IndexSpec:
    metric = rule.metric or DEFAULT_METRIC
    partitions = min(_MOST_PARTITIONS, rows // _ROWS_PER_PARTITION + 1)
    params = (("metric", metric), ("num_partitions", partitions))
    return IndexSpec(f"near_{rule.column}_{metric}", rule.column, "IVF_FLAT", params)
