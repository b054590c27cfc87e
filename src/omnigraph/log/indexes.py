"""The indexes that a schema asks for, table by table, and how much of a table version each of them covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.catalog import DEFAULT_METRIC, SYSTEM_COLUMNS, DeclaredIndex, Scalar, TypeDef
from omnigraph.storage.lance import IndexSpec, PinnedTable

_ROWS_PER_PARTITION = 4096
_MOST_PARTITIONS = 4096

#: The index must cut texts into words just as the query engine does: no stems, no stop words; positions for phrases.
_TEXT_PARAMS = (("with_position", True), ("stem", False), ("remove_stop_words", False), ("ascii_folding", False))


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of a table one index covers. Other rows are found by a scan: answers do not depend on coverage."""

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


def list_schema_indexes(type_def: TypeDef, pinned: PinnedTable) -> list[IndexSpec]:
    """The indexes that the schema asks for, as far as this table version has their columns.

    Sorted: `id`, the ends of an edge, keys, unique values, and `@index` of scalars and enums. Full text: `@index` of a
    String. Vector: `@index` of a vector.
    """
    sorted_columns = dict.fromkeys(
        [
            *SYSTEM_COLUMNS[type_def.kind],
            *type_def.key,
            *(column for columns in type_def.uniques for column in columns),
            *(index.column for index in type_def.indexes if _is_sorted(type_def, index)),
        ]
    )
    specs = [IndexSpec(f"by_{column}", column, "BTREE") for column in sorted_columns]
    for index in type_def.indexes:
        kind = type_def.by_id[index.column].type
        if kind.vector_size is not None:
            specs.append(_vector_index(index, pinned.rows))
        elif not _is_sorted(type_def, index):
            specs.append(IndexSpec(f"text_{index.column}", index.column, "INVERTED", _TEXT_PARAMS))
    return [spec for spec in specs if spec.column in pinned.schema.names]


def list_obsolete_indexes(pinned: PinnedTable, specs: Sequence[IndexSpec]) -> list[str]:
    """Names of indexes that the schema no longer asks for."""
    names = {spec.name for spec in specs}
    return sorted(info.name for info in pinned.indices() if info.name not in names)


def measure_coverage(pinned: PinnedTable, specs: Sequence[IndexSpec]) -> list[IndexCoverage]:
    """How much of the table each of these indexes covers; an index that was not built yet covers nothing."""
    rows = {fragment.id: fragment.num_rows for fragment in pinned.metadata}
    built = {info.name: info for info in pinned.indices()}
    coverages = []
    for spec in specs:
        info = built.get(spec.name)
        covered = info.covered_fragments if info else frozenset()
        covered_rows = sum(rows[fragment_id] for fragment_id in covered)
        segments = len(info.segments) if info else 0
        coverages.append(
            IndexCoverage(
                spec.name, spec.column, spec.kind, len(covered), len(rows), covered_rows, pinned.rows, segments
            )
        )
    return coverages


def measure_table_coverage(snapshot: Snapshot, type_def: TypeDef) -> list[IndexCoverage]:
    """Coverage of every index that the schema asks for; empty if the table has no version yet."""
    pinned = snapshot.view(type_def).pinned
    return measure_coverage(pinned, list_schema_indexes(type_def, pinned)) if pinned is not None else []


def _is_sorted(type_def: TypeDef, index: DeclaredIndex) -> bool:
    kind = type_def.by_id[index.column].type
    return kind.vector_size is None and (kind.scalar is not Scalar.STRING or bool(kind.enum_values))


def _vector_index(index: DeclaredIndex, rows: int) -> IndexSpec:
    metric = index.metric or DEFAULT_METRIC
    partitions = min(_MOST_PARTITIONS, rows // _ROWS_PER_PARTITION + 1)
    params = (("metric", metric), ("num_partitions", partitions))
    return IndexSpec(f"near_{index.column}_{metric}", index.column, "IVF_FLAT", params)
