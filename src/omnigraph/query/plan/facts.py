"""What the rewrite rules know besides the plan: the schema, and the table sizes of the commit record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.query.language.checked import (
    AnyOf,
    CheckedCompare,
    CheckedNullTest,
    Const,
    Entity,
    Param,
    Prop,
    TextFilter,
)
from omnigraph.query.plan.expressions import conjuncts
from omnigraph.query.plan.nodes import Degrees, Edges, HopLeaf, Leaf, Pairs, PlanCondition, Reach, Scan
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Catalog, Scalar, TypeDef

#: Estimated share of rows that satisfy a condition. Only the order of these numbers matters.
_EQUAL, _RANGE, _TEXT, _NOT_NULL = 0.01, 0.3, 0.05, 0.9


@dataclass(frozen=True, slots=True)
class Facts:
    """The schema and the number of rows per type id; a type without an entry has no rows."""

    catalog: Catalog
    rows: Mapping[str, int] = field(default_factory=dict)

    def type_def(self, type_id: str) -> TypeDef:
        return self.catalog.by_id[type_id]

    def estimate(self, leaf: Leaf) -> float:
        """Estimates how many rows a leaf has."""
        match leaf:
            case Scan() | Edges():
                rows = float(max(1, self.rows.get(leaf.type.type_id, 0)))
                for condition in conjuncts(leaf.where):
                    rows = min(rows * _selectivity(condition), rows)
                    if point_column(self.type_def(leaf.type.type_id), condition) is not None:
                        return 1.0
                return max(1.0, rows)
            case Pairs():
                return float(max(1, self.rows.get(leaf.edge, 0)))
            case Reach():
                return 4.0 * max(1, self.rows.get(leaf.edge, 0))
            case Degrees():
                edge = self.type_def(leaf.edge)
                at_source = (leaf.end == "left") == (leaf.direction != "backward")
                nodes = self.rows.get((edge.source if at_source else edge.target) or "", 0)
                return float(max(1, min(nodes, self.rows.get(leaf.edge, 0))))

    def rows_touched(self, leaf: Leaf) -> float:
        """Estimates how many rows must be read to find the leaf's rows: all of the table unless an index helps."""
        if not isinstance(leaf, (Scan, Edges)):
            return self.estimate(leaf)
        type_def = self.type_def(leaf.type.type_id)
        indexed = {"id", *type_def.key, *(index.column for index in type_def.indexes)}
        if any(_equal_column(condition) in indexed for condition in conjuncts(leaf.where)):
            return self.estimate(leaf)
        return float(max(1, self.rows.get(type_def.id, 0)))

    def fan_out(self, hop: HopLeaf, start: str) -> float:
        """Estimates how many rows of a hop each node at its end `start` has."""
        edge = self.type_def(hop.type.type_id if isinstance(hop, Edges) else hop.edge)
        is_forward = hop.direction == "forward"
        at_source = (start == hop.left) == is_forward or hop.direction == "either"
        nodes = self.rows.get((edge.source if at_source else edge.target) or "", 0)
        rows_per_node = self.estimate(hop) / max(1, nodes)
        return rows_per_node * 2 if hop.direction == "either" else rows_per_node


def _selectivity(condition: PlanCondition) -> float:
    match condition:
        case TextFilter():
            return _TEXT
        case CheckedNullTest(_, negated):
            return _NOT_NULL if negated else 1 - _NOT_NULL
        case CheckedCompare(_, op, _):
            return _EQUAL if op in ("=", "in", "contains") else _RANGE if op != "!=" else _NOT_NULL
        case AnyOf():
            return min(1.0, sum(_selectivity(part) for part in condition.parts))
        case _:
            return 1.0


def point_column(type_def: TypeDef, condition: PlanCondition) -> str | None:
    """Returns the column if the condition fixes `id` or a single-column key to one value, else None."""
    if not isinstance(condition, CheckedCompare) or condition.op != "=":
        return None
    for prop, value in ((condition.left, condition.right), (condition.right, condition.left)):
        if not isinstance(prop, Prop) or not isinstance(value, (Const, Param)):
            continue
        if prop.column == "id" or type_def.key == (prop.column,):
            return prop.column
    return None


def _equal_column(condition: PlanCondition) -> str | None:
    """Returns the column if the condition lists its possible values, else None."""
    if isinstance(condition, CheckedCompare) and condition.op in ("=", "in"):
        for prop, value in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(prop, Prop) and not isinstance(value, (Prop, Entity)):
                return prop.column
    return None


def entity_columns(type_def: TypeDef) -> tuple[str, ...]:
    """Returns the columns of a whole entity in a result: all except blobs."""
    return (
        *SYSTEM_COLUMNS[type_def.kind],
        *(prop.id for prop in type_def.properties if prop.type.scalar is not Scalar.BLOB),
    )
