"""Trees of hops, counted: how often each node of the kept variables stands in a row, without making the rows.

Every variable has a *factor*: the nodes it can be, each with the number of rows it stands for so far. A variable that
is only counted is folded into its neighbour, cheapest first: along the edges of its own nodes, or, where the neighbour
can be less, along those of the neighbour's. What is left connects the kept variables, and only its rows are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from omnigraph.adjacency.coded_tables import CodedTables
from omnigraph.adjacency.reachability import Adjacency
from omnigraph.query.limits import Budget, Deadline
from omnigraph.query.plan.join_tree import TreeBody
from omnigraph.query.plan.nodes import Leaf, Pairs
from omnigraph.query.run.leaf_rows import ReadStep
from omnigraph.query.run.ranked_columns import EXACT_FLOAT_BOUND, Ints, NeedsSqlFallback, RankedColumns

#: A message to at least one in so many nodes is added up in an array over all of them.
_DENSE_RATIO = 16
_BYTES = 8


@dataclass(frozen=True)
class Factor:
    """Nodes, ascending, and how many rows each stands for. None: all nodes; once each."""

    nodes: Ints | None = None
    weights: Ints | None = None

    @property
    def is_free(self) -> bool:
        return self.nodes is None and self.weights is None

    def size(self, all_nodes: int) -> int:
        return all_nodes if self.nodes is None else len(self.nodes)

    def list_nodes(self, all_nodes: int) -> tuple[Ints, Ints | None]:
        """Its nodes one by one, without those that stand for no row."""
        if self.nodes is not None:
            return self.nodes, self.weights
        if self.weights is None:
            return np.arange(all_nodes), None
        nodes = np.flatnonzero(self.weights)
        return nodes, self.weights[nodes]

    def spread(self, all_nodes: int) -> Ints:
        """The weight of every node, 0 for those it has not."""
        if self.nodes is None:
            return np.ones(all_nodes, np.int64) if self.weights is None else self.weights
        made = np.zeros(all_nodes, np.int64)
        made[self.nodes] = 1 if self.weights is None else self.weights
        return made

    def times(self, other: Factor) -> Factor:
        """Nodes that both have, with the product of their weights."""
        if self.nodes is None and other.nodes is None:
            return Factor(None, _product(self.weights, other.weights))
        if self.nodes is None or (other.nodes is not None and len(other.nodes) < len(self.nodes)):
            return other.times(self)
        if other.nodes is None:
            weights = None if other.weights is None else other.weights[self.nodes]
            return _positive(self.nodes, _product(self.weights, weights))
        places = np.minimum(np.searchsorted(other.nodes, self.nodes), max(0, len(other.nodes) - 1))
        both = other.nodes[places] == self.nodes if len(other.nodes) else np.zeros(len(self.nodes), np.bool_)
        own = None if self.weights is None else self.weights[both]
        others = None if other.weights is None else other.weights[places[both]]
        return Factor(self.nodes[both], _product(own, others))


def _product(one: Ints | None, two: Ints | None) -> Ints | None:
    if one is None or two is None:
        return two if one is None else one
    if len(one) and float(one.max()) * float(two.max()) >= EXACT_FLOAT_BOUND:
        raise NeedsSqlFallback
    return one * two


def _positive(nodes: Ints, weights: Ints | None) -> Factor:
    if weights is None:
        return Factor(nodes)
    kept = weights > 0
    return Factor(nodes, weights) if kept.all() else Factor(nodes[kept], weights[kept])


def sum_by_position(places: npt.NDArray[np.integer], weights: Ints | None, size: int) -> Ints:
    """The sum of weights per place; exact, or Beyond."""
    if weights is None:
        return np.bincount(places, minlength=size)
    found = np.bincount(places, weights, minlength=size)
    if len(found) and found.max() >= EXACT_FLOAT_BOUND:
        raise NeedsSqlFallback
    return found.astype(np.int64)


@dataclass(frozen=True)
class WeightedRows:
    """Assignments of the kept variables side by side, each standing for so many rows (None: one)."""

    nodes: dict[str, Ints]
    weights: Ints | None
    count: int


@dataclass
class TreeCounter:
    """Counts one tree in one run."""

    coded_tables: CodedTables
    ranked_columns: RankedColumns
    deadline: Deadline
    budget: Budget
    steps: list[ReadStep] = field(default_factory=list)

    def total(self, body: TreeBody) -> int:
        """The number of rows."""
        factors, _ = self._fold_variables(body, ())
        ((var, factor),) = factors.items()
        _, weights = factor.list_nodes(self._size(body, var))
        if weights is None:
            return factor.size(self._size(body, var))
        if float(weights.max(initial=0)) * max(1, len(weights)) >= 2.0**62:
            raise NeedsSqlFallback
        return int(weights.sum())

    def rows(self, body: TreeBody, kept: tuple[str, ...]) -> WeightedRows:
        """The rows of the kept variables, of which there is at least one."""
        factors, links = self._fold_variables(body, kept)
        start = min(factors, key=lambda var: factors[var].size(self._size(body, var)))
        nodes, weights = factors[start].list_nodes(self._size(body, start))
        self._take(len(nodes))
        columns = {start: nodes}
        known = {start}
        while links:
            link = min((one for one in links if {one.left, one.right} & known), key=self._fan_out(known))
            links.remove(link)
            columns, weights = self._expand(columns, weights, link, factors)
            known |= {link.left, link.right}
            needed = {*kept, *(end for one in links for end in (one.left, one.right))}
            columns = {var: column for var, column in columns.items() if var in needed}
        count = len(next(iter(columns.values())))
        return WeightedRows(columns, weights, count)

    def _expand(
        self, columns: dict[str, Ints], weights: Ints | None, link: Pairs, factors: dict[str, Factor]
    ) -> tuple[dict[str, Ints], Ints | None]:
        self.deadline.check()
        near, far = (link.left, link.right) if link.left in columns else (link.right, link.left)
        graph = self._adjacency(link, near)
        self._take(graph.count(columns[near]) * (len(columns) + 2))
        at, ends = _neighbours(graph, columns[near])
        self._note(link, f"adjacency of ${near}", len(ends))
        made = {var: column if at is None else column[at] for var, column in columns.items()} | {far: ends}
        own = weights if weights is None or at is None else weights[at]
        if not factors[far].is_free:
            times = factors[far].spread(self._adjacency(link, far).nodes)[ends]
            kept = times > 0
            made = {var: column[kept] for var, column in made.items()}
            own = None if own is None else own[kept]
            own = _product(own, None if factors[far].weights is None else times[kept])
        return made, own

    def _fan_out(self, known: set[str]) -> Callable[[Pairs], float]:
        def cost(link: Pairs) -> float:
            graph = self._adjacency(link, link.left if link.left in known else link.right)
            return len(graph.targets) / max(1, graph.nodes)

        return cost

    # ---- folding -----------------------------------------------------------------------------------------------------

    def _fold_variables(self, body: TreeBody, kept: tuple[str, ...]) -> tuple[dict[str, Factor], list[Pairs]]:
        """The factors of the variables between the kept ones (any one, if none is kept), and the hops among them."""
        factors = self._factors(body)
        links = list(body.links)
        while True:
            choices = [one for link in links for one in self._fold_choices(body, link, links, factors, kept)]
            if not choices:
                return factors, links
            self.deadline.check()
            _, link, gone, pull = min(choices, key=lambda one: one[0])
            stays = link.right if gone == link.left else link.left
            way = self._count_ends if factors[gone].is_free else self._pull_weights if pull else self._push_weights
            factors[stays] = factors[stays].times(way(link, gone, factors))
            del factors[gone]
            links.remove(link)

    def _fold_choices(
        self, body: TreeBody, link: Pairs, links: list[Pairs], factors: dict[str, Factor], kept: tuple[str, ...]
    ) -> Iterator[tuple[float, Pairs, str, bool]]:
        """How an end of the hop that has no other hop can be folded into the other: the cost, and whether by pull."""
        for gone, stays in ((link.left, link.right), (link.right, link.left)):
            if gone in kept or sum(gone in (one.left, one.right) for one in links) > 1:
                continue
            if factors[gone].is_free:
                yield 0.0, link, gone, False
                continue
            sizes = {var: self._size(body, var) for var in (gone, stays)}
            edges = self._edges(link)
            yield factors[gone].size(sizes[gone]) * edges / max(1, sizes[gone]), link, gone, False
            if factors[stays].nodes is not None:
                yield factors[stays].size(sizes[stays]) * edges / max(1, sizes[stays]), link, gone, True

    def _factors(self, body: TreeBody) -> dict[str, Factor]:
        factors = {var: Factor() for var in body.types}
        for scan in body.scans:
            if scan.where:
                rows = self.ranked_columns.rows(scan.type.type_id, scan.where)
                factors[scan.var] = factors[scan.var].times(Factor(rows))
                self._note(scan, "ranks", len(rows))
        for one in body.degrees:
            link = Pairs(*((one.var, "") if one.end == "left" else ("", one.var)), one.edge, one.direction)
            factors[one.var] = factors[one.var].times(self._degrees(link, one.var, factors[one.var].nodes))
            self._note(one, "degrees", factors[one.var].size(self._size(body, one.var)))
        for var, inner in body.excluded:
            found, _ = self._fold_variables(inner, (var,))
            present = found[var].spread(self._size(body, var)) > 0
            factors[var] = factors[var].times(Factor(np.flatnonzero(~present)))
        return factors

    def _count_ends(self, link: Pairs, gone: str, factors: dict[str, Factor]) -> Factor:
        """An end that can be anything contributes its number."""
        stays = link.right if gone == link.left else link.left
        nodes = factors[stays].nodes
        found = self._degrees(link, stays, nodes)
        self._note(link, f"degrees of ${stays}", self._other_size(link, stays) if nodes is None else len(nodes))
        return found

    def _degrees(self, link: Pairs, var: str, nodes: Ints | None) -> Factor:
        starts = self._adjacency(link, var).starts
        if nodes is None:
            return Factor(None, np.diff(starts))
        return _positive(nodes, starts[nodes + 1] - starts[nodes])

    def _push_weights(self, link: Pairs, gone: str, factors: dict[str, Factor]) -> Factor:
        """What the nodes of an end contribute to those of the other."""
        stays = link.right if gone == link.left else link.left
        graph = self._adjacency(link, gone)
        nodes, weights = factors[gone].list_nodes(graph.nodes)
        self._take(graph.count(nodes) * 3)
        at, ends = _neighbours(graph, nodes)
        self._note(link, f"adjacency of {len(nodes)} ${gone}", len(ends))
        carried = weights if weights is None or at is None else weights[at]
        all_nodes = self._other_size(link, stays)
        if len(ends) * _DENSE_RATIO > all_nodes:
            weights = sum_by_position(ends, carried, all_nodes)
            nodes = np.flatnonzero(weights)
            return Factor(nodes, weights[nodes])
        nodes, places = np.unique(ends, return_inverse=True)
        return Factor(nodes, sum_by_position(places, carried, len(nodes)))

    def _pull_weights(self, link: Pairs, gone: str, factors: dict[str, Factor]) -> Factor:
        """The same, looked up from the few nodes of the end that stays."""
        stays = link.right if gone == link.left else link.left
        nodes = factors[stays].nodes
        assert nodes is not None
        graph = self._adjacency(link, stays)
        self._take(graph.count(nodes) * 3)
        at, ends = _neighbours(graph, nodes)
        self._note(link, f"adjacency of {len(nodes)} ${stays}", len(ends))
        found = factors[gone].spread(self._other_size(link, gone))[ends]
        weights = found if at is None else sum_by_position(at, found, len(nodes))
        return _positive(nodes, weights)

    # ---- sizes -------------------------------------------------------------------------------------------------------

    def _adjacency(self, link: Pairs, start: str) -> Adjacency:
        backwards = start != link.left
        return self.coded_tables.adjacency(link.edge, link.direction, distinct=link.distinct, backwards=backwards)

    def _size(self, body: TreeBody, var: str) -> int:
        return len(self.coded_tables.ids(body.types[var]))

    def _edges(self, link: Pairs) -> int:
        pin = self.coded_tables.snapshot.record.pins.get(link.edge)
        return max(1, pin.rows if pin is not None else 0)

    def _other_size(self, link: Pairs, end: str) -> int:
        return self.coded_tables.sizes(link.edge, link.direction)[0 if end == link.left else 1]

    def _take(self, values: int) -> None:
        self.budget.take(values * _BYTES)

    def _note(self, leaf: Leaf, access: str, rows: int) -> None:
        self.steps.append(ReadStep(leaf, access, rows))


def _neighbours(graph: Adjacency, nodes: Ints) -> tuple[Ints | None, Ints]:
    """Places of the nodes in the input, None if they are the input's own, and the neighbours."""
    if graph.is_function:
        return None, graph.targets[nodes].astype(np.int64)
    return graph.neighbours(nodes)
