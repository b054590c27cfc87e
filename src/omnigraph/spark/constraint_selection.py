"""Chooses the constraints that a bulk change could violate, so that the others are never evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.constraints.compile import (
    ChangedImages,
    Constraint,
    ConstraintCode,
    compile_constraints,
    input_rows_to_reject,
)
from omnigraph.constraints.relations import Relation, WithoutMatch
from omnigraph.schema.catalog import Catalog, EntityKind
from omnigraph.storage.lance.row_address import ROW_ADDRESS

#: A load evaluates these three sets one after the other: keys are decided first, and the constraints of the schema
#: are about the rows that remain.
DUPLICATE_KEYS: frozenset[ConstraintCode] = frozenset({"duplicate_key"})
EXISTING_KEYS: frozenset[ConstraintCode] = frozenset({"key_exists"})
SCHEMA_CONSTRAINTS: frozenset[ConstraintCode] = frozenset({"unique", "endpoint", "orphan_edge", "cardinality"})


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What is known about one table of a load before its rows are read."""

    kind: EntityKind
    input_has_rows: bool
    graph_has_rows: bool
    is_overwritten: bool
    may_replace_existing_ids: bool
    may_repeat_ids: bool  # within the input itself

    @property
    def images(self) -> ChangedImages:
        if self.is_overwritten:
            return ChangedImages(
                has_new=self.input_has_rows,
                has_old=self.graph_has_rows,
                has_gone=self.graph_has_rows,
                has_kept=False,
            )
        return ChangedImages(
            has_new=self.input_has_rows,
            has_old=self.may_replace_existing_ids and self.graph_has_rows,
            has_kept=self.graph_has_rows,
        )


@dataclass(frozen=True, slots=True)
class ConstraintQuery:
    """A constraint to evaluate; `relation` returns its violations, with the address of the input row to reject.

    Without a row of the input to reject, the relation has no address column. `table` holds the rows to reject.
    """

    constraint: Constraint
    table: str
    relation: Relation


@dataclass(frozen=True)
class ConstraintSelection:
    """Chooses the constraints that a load could violate.

    `tables_with_rows` are the tables in which the graph has rows, loaded or not.
    """

    catalog: Catalog
    loaded_tables: Mapping[str, LoadedTable]
    tables_with_rows: frozenset[str]
    codes: frozenset[ConstraintCode] = SCHEMA_CONSTRAINTS

    @property
    def needs_screening(self) -> bool:
        """Whether the screening query must run first. Keys that the graph already has are found without it."""
        return self.codes != EXISTING_KEYS

    @property
    def changed_images(self) -> dict[str, ChangedImages]:
        """The images that hold rows, for every table of the schema."""
        untouched = {
            type_def.id: ChangedImages(has_kept=type_def.id in self.tables_with_rows) for type_def in self.catalog.types
        }
        return {**untouched, **{table: loaded.images for table, loaded in self.loaded_tables.items()}}

    @property
    def may_repeat_nodes(self) -> bool:
        return any(loaded.may_repeat_ids and loaded.kind == "node" for loaded in self.loaded_tables.values())

    def queries(self, suspected_node_types: frozenset[str]) -> Iterator[ConstraintQuery]:
        """The constraints that could be violated, each with its query.

        `suspected_node_types` are the node types of which the screening query returned ids.
        """
        changed_images = self.changed_images
        constraints = compile_constraints(
            self.catalog,
            changed_images,
            strict="key_exists" in self.codes,
            ordinal=ROW_ADDRESS if "duplicate_key" in self.codes else None,
            screened=bool(suspected_node_types),
        )
        for constraint in constraints:
            if constraint.code not in self.codes or self._cannot_be_violated(constraint, suspected_node_types):
                continue
            to_reject = {
                table: relation
                for table, relation in input_rows_to_reject(constraint, self.catalog, ROW_ADDRESS).items()
                if changed_images[table].has_new
            }
            for table, relation in to_reject.items():
                yield ConstraintQuery(constraint, table, relation)
            if constraint.code in ("orphan_edge", "cardinality"):
                without_culprit: Relation = constraint.query
                for relation in to_reject.values():
                    without_culprit = WithoutMatch(without_culprit, relation, (("id", "id"),))
                yield ConstraintQuery(constraint, constraint.type_id, without_culprit)

    def tables_with_repeated_ids(self, suspected_node_types: frozenset[str]) -> list[str]:
        """Tables whose input may contain the same id twice. The screening query clears node types."""
        return [
            table
            for table, loaded in self.loaded_tables.items()
            if loaded.may_repeat_ids
            and loaded.input_has_rows
            and (loaded.kind == "edge" or table in suspected_node_types)
        ]

    def _cannot_be_violated(self, constraint: Constraint, suspected_node_types: frozenset[str]) -> bool:
        """Whether the screening query, or what is known about the input, has already ruled a violation out."""
        loaded = self.loaded_tables.get(constraint.type_id)
        if constraint.code == "duplicate_key":
            assert loaded is not None
            is_cleared = loaded.kind == "node" and constraint.type_id not in suspected_node_types
            return not loaded.may_repeat_ids or is_cleared
        if constraint.code == "key_exists":
            return loaded is None or not loaded.may_replace_existing_ids
        return not suspected_node_types and constraint.code in ("endpoint", "cardinality")
