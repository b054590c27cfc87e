"""What the rewrite rules know besides the plan: the schema, and the sizes that the commit record tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.query.language import checked as c
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.expressions import conjuncts
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Catalog, Scalar, TypeDef

#: Shares of rows that a condition is thought to leave. Only their order matters.
_EQUAL, _RANGE, _TEXT, _NOT_NULL = 0.01, 0.3, 0.05, 0.9


@dataclass(frozen=True, slots=True)
class Facts:
    """`rows` by type id; a type that is not named has none."""

    catalog: Catalog
    rows: Mapping[str, int] = field(default_factory=dict)

    def type(self, type_id: str) -> TypeDef:
        return self.catalog.by_id[type_id]

    def estimate(self, leaf: n.Leaf) -> float:
        """Rows that a leaf is thought to have."""
        match leaf:
            case n.Scan() | n.Edges():
                rows = float(max(1, self.rows.get(leaf.type.type_id, 0)))
                for one in conjuncts(leaf.where):
                    rows = min(rows * self._share(leaf.type.type_id, one), rows)
                    if self._is_point(leaf.type.type_id, one):
                        return 1.0
                return max(1.0, rows)
            case n.Pairs():
                return float(max(1, self.rows.get(leaf.edge, 0)))
            case n.Reach():
                return 4.0 * max(1, self.rows.get(leaf.edge, 0))
            case n.Degrees():
                edge = self.type(leaf.edge)
                at_source = (leaf.end == "left") == (leaf.direction != "backward")
                nodes = self.rows.get((edge.source if at_source else edge.target) or "", 0)
                return float(max(1, min(nodes, self.rows.get(leaf.edge, 0))))

    def touched(self, leaf: n.Leaf) -> float:
        """Rows that finding the leaf's rows is thought to read: all of them, unless an index leads to them."""
        if not isinstance(leaf, (n.Scan, n.Edges)):
            return self.estimate(leaf)
        one = self.type(leaf.type.type_id)
        indexed = {"id", *one.key, *(rule.column for rule in one.indexes)}
        if any(_equal_column(condition) in indexed for condition in conjuncts(leaf.where)):
            return self.estimate(leaf)
        return float(max(1, self.rows.get(one.id, 0)))

    def fan_out(self, hop: n.Hop, start: str) -> float:
        """Rows per node at one end of a hop."""
        edge = hop.type.type_id if isinstance(hop, n.Edges) else hop.edge
        one = self.type(edge)
        forward = hop.direction == "forward"
        at_source = (start == hop.left) == forward or hop.direction == "either"
        nodes = self.rows.get((one.source if at_source else one.target) or "", 0)
        share = self.estimate(hop) / max(1, nodes)
        return share * 2 if hop.direction == "either" else share

    def _is_point(self, type_id: str, one: n.Condition) -> bool:
        return point_column(self.type(type_id), one) is not None

    def _share(self, type_id: str, one: n.Condition) -> float:
        match one:
            case c.TextFilter():
                return _TEXT
            case c.NullTest(_, negated):
                return _NOT_NULL if negated else 1 - _NOT_NULL
            case c.Compare(_, op, _):
                return _EQUAL if op in ("=", "in", "contains") else _RANGE if op != "!=" else _NOT_NULL
            case c.AnyOf():
                return min(1.0, sum(self._share(type_id, part) for part in one.parts))
            case _:
                return 1.0


def point_column(one: TypeDef, condition: n.Condition) -> str | None:
    """The column, `id` or a key of one member, of which the condition names the only value; None if it does not."""
    if not isinstance(condition, c.Compare) or condition.op != "=":
        return None
    for prop, value in ((condition.left, condition.right), (condition.right, condition.left)):
        if not isinstance(prop, c.Prop) or not isinstance(value, (c.Const, c.Param)):
            continue
        if prop.column == "id" or one.key == (prop.column,):
            return prop.column
    return None


def _equal_column(condition: n.Condition) -> str | None:
    """The column of which the condition names the values."""
    if isinstance(condition, c.Compare) and condition.op in ("=", "in"):
        for prop, value in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(prop, c.Prop) and not isinstance(value, (c.Prop, c.Entity)):
                return prop.column
    return None


def shown_columns(one: TypeDef) -> tuple[str, ...]:
    """The columns of a whole entity: everything but blobs."""
    return (
        *SYSTEM_COLUMNS[one.kind],
        *(prop.id for prop in one.properties if prop.type.scalar is not Scalar.BLOB),
    )
