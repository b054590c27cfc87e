"""Filling the tables of a statement: which rows of which table version, and by which way.

Every leaf gets at least the rows that can matter. Leaves are filled smallest first; what is known then about a
variable, a set of ids, lets the next leaf be read by its index instead of whole. What is known flows into `optional`
and `not` blocks, never out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.limits import Budget, Deadline
from omnigraph.engine.pushdown import Given, exact_ids, to_filter
from omnigraph.lang.schema.model import TypeDef
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.view import TableView
from omnigraph.plan import nodes as n
from omnigraph.plan.facts import Facts

#: Sets of ids larger than this are not used to look up rows one by one.
PROBE_IDS = 4_096

Known = dict[str, pa.Array]
"""Ids that a variable can have; a variable that is not named can have any."""


@dataclass(frozen=True, slots=True)
class Step:
    """How one leaf was filled, for explain."""

    leaf: n.Leaf
    access: str
    rows: int


@dataclass
class Loader:
    """Fills the leaves of one plan for one run."""

    snapshot: Snapshot
    facts: Facts
    given: Given
    deadline: Deadline
    budget: Budget
    tables: dict[n.Leaf, pa.Table] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def load(self, plan: n.Plan, known: Known | None = None) -> None:
        """Fill every leaf of `plan`; `known` learns what the rows of this part can be."""
        known = {} if known is None else known
        match plan:
            case n.Scan() | n.Pairs() | n.Edges() | n.Reach():
                self._fill([plan], known)
            case n.Join():
                for one in plan.inputs:
                    if not isinstance(one, (n.Scan, n.Pairs, n.Edges, n.Reach)):
                        self.load(one, known)
                self._fill([one for one in plan.inputs if isinstance(one, (n.Scan, n.Pairs, n.Edges, n.Reach))], known)
            case n.LeftJoin() | n.AntiJoin():
                self.load(plan.left, known)
                self.load(plan.right, dict(known))
            case _:
                self.load(n.children(plan)[0], known)

    def _fill(self, todo: list[n.Leaf], known: Known) -> None:
        while todo:
            best = min(todo, key=lambda leaf: (self._cost(leaf, known), todo.index(leaf)))
            todo.remove(best)
            self.deadline.check()
            if best not in self.tables:
                table, access = self._read(best, known)
                self.budget.take(table.nbytes)
                self.tables[best] = table
                self.steps.append(Step(best, access, table.num_rows))
            self._learn(best, self.tables[best], known)

    def _cost(self, leaf: n.Leaf, known: Known) -> float:
        if isinstance(leaf, n.Scan):
            ids = known.get(leaf.var)
            estimate = self.facts.estimate(leaf)
            return min(estimate, len(ids)) if ids is not None else estimate
        sizes = [
            len(known[end]) * max(1.0, self.facts.fan_out(leaf, end)) for end in (leaf.left, leaf.right) if end in known
        ]
        return min(sizes) if sizes else 10.0 * self.facts.estimate(leaf)

    def _learn(self, leaf: n.Leaf, table: pa.Table, known: Known) -> None:
        ends = {leaf.var: "k"} if isinstance(leaf, n.Scan) else {leaf.left: "l", leaf.right: "r"}
        for var, column in ends.items():
            if table.num_rows <= PROBE_IDS * 8:
                ids = table[column].unique()
                if len(ids) <= PROBE_IDS and len(ids) < len(known.get(var, range(PROBE_IDS + 1))):
                    known[var] = ids

    def _read(self, leaf: n.Leaf, known: Known) -> tuple[pa.Table, str]:
        match leaf:
            case n.Scan():
                return self._scan(leaf, known)
            case n.Pairs() | n.Edges():
                return self._edges(leaf, known)
            case n.Reach():
                raise NotImplementedError

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def _scan(self, leaf: n.Scan, known: Known) -> tuple[pa.Table, str]:
        one = self.facts.type(leaf.type.type_id)
        view = self.snapshot.view(one)
        columns = list(dict.fromkeys(("id", *leaf.columns)))
        ids = exact_ids(one, leaf.where, self.given)
        if ids is not None:
            rows, access = view.find(ids, columns), "lookup by id"
        elif leaf.var in known:
            rows, access = view.find(known[leaf.var].to_pylist(), columns), "lookup of known ids"
        else:
            where = to_filter(leaf.where, self.given)
            rows, access = view.scan(columns, where), "scan" if where is None else "filtered scan"
        table = {"k": rows["id"], **{f"c{at}": rows[name] for at, name in enumerate(leaf.columns)}}
        return pa.table(table), access

    # ---- edges -------------------------------------------------------------------------------------------------------

    def _edges(self, leaf: n.Pairs | n.Edges, known: Known) -> tuple[pa.Table, str]:
        one = self.facts.type(leaf.type.type_id if isinstance(leaf, n.Edges) else leaf.edge)
        view = self.snapshot.view(one)
        own = leaf.columns if isinstance(leaf, n.Edges) else ()
        columns = list(dict.fromkeys(("id", "src", "dst", *own)))
        rows, access = self._edge_rows(leaf, one, view, columns, known)
        parts = []
        if leaf.direction != "backward":
            parts.append(_oriented(rows, own, "src", "dst"))
        if leaf.direction != "forward":
            turned = rows
            if leaf.direction == "either":
                # A loop read the other way is the same row.
                turned = rows.filter(pc.not_equal(rows["src"], rows["dst"]))
            parts.append(_oriented(turned, own, "dst", "src"))
        table = pa.concat_tables(parts)
        if isinstance(leaf, n.Pairs):
            table = table.select(["l", "r"])
            if leaf.distinct:
                table = table.group_by(["l", "r"]).aggregate([])
        return _with_ids(table, leaf), access

    def _edge_rows(
        self, leaf: n.Pairs | n.Edges, one: TypeDef, view: TableView, columns: list[str], known: Known
    ) -> tuple[pa.Table, str]:
        where = leaf.where if isinstance(leaf, n.Edges) else ()
        ids = exact_ids(one, where, self.given)
        if ids is not None:
            return view.find(ids, columns), "lookup by id"
        ends = [end for end in (leaf.left, leaf.right) if end in known]
        if ends:
            end = min(ends, key=lambda var: len(known[var]))
            wanted = known[end].to_pylist()
            names = _columns_of(leaf, end)
            parts = [view.find_by(name, wanted, columns) for name in names]
            rows = parts[0] if len(parts) == 1 else _first_of_each(pa.concat_tables(parts))
            return rows, f"lookup by {' and '.join(names)}"
        pushed = to_filter(where, self.given)
        return view.scan(columns, pushed), "scan" if pushed is None else "filtered scan"


def _columns_of(leaf: n.Hop, end: str) -> Sequence[str]:
    """The columns of the edge table where an end of the hop can stand."""
    if leaf.direction == "either":
        return ("src", "dst")
    return ("src",) if (leaf.left == end) == (leaf.direction == "forward") else ("dst",)


def _first_of_each(rows: pa.Table) -> pa.Table:
    places = pa.array(range(rows.num_rows), pa.int64())
    kept = pa.table({"id": rows["id"], "at": places}).group_by("id").aggregate([("at", "min")])
    return rows.take(kept["at_min"])


def _oriented(rows: pa.Table, columns: Sequence[str], left: str, right: str) -> pa.Table:
    data = {"k": rows["id"], "l": rows[left], "r": rows[right]}
    return pa.table({**data, **{f"c{at}": rows[name] for at, name in enumerate(columns)}})


def _with_ids(table: pa.Table, leaf: n.Hop) -> pa.Table:
    for end, name in ((leaf.left, "l"), (leaf.right, "r")):
        if end in leaf.ids:
            table = table.append_column(f"{name}i", table[name])
    return table


Progress = Callable[[], None]
