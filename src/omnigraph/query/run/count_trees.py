"""Counts a join tree: how often each node of the output variables occurs in a row, without producing the rows.

Every variable has a *factor*: the nodes that it can be, each with the number of rows that it stands for so far. A
variable that is only counted is folded into its neighbour, the cheapest first: its weights are pushed along the edges
of its own nodes, or pulled along the edges of the neighbour's nodes where those are fewer. The remaining links connect
the output variables, and only their rows are produced.
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
from omnigraph.query.run.ranked_columns import EXACT_FLOAT_BOUND, Int64Array, NeedsSqlFallback, RankedColumns

#: Weights for more than 1 / `_DENSE_RATIO` of all nodes are summed in an array over all nodes.
_DENSE_RATIO = 16
_BYTES_PER_VALUE = 8


@dataclass(frozen=True)
class Factor:
    """Ascending nodes (None: all) and how many rows each stands for (None: one)."""

    nodes: Int64Array | None = None
    weights: Int64Array | None = None

    @property
    def is_free(self) -> bool:
        return self.nodes is None and self.weights is None

    def size(self, all_nodes: int) -> int:
        return all_nodes if self.nodes is None else len(self.nodes)

    def list_nodes(self, all_nodes: int) -> tuple[Int64Array, Int64Array | None]:
        """Returns the nodes and their weights, without nodes of weight 0."""
        if self.nodes is not None:
            return self.nodes, self.weights
        if self.weights is None:
            return np.arange(all_nodes), None
        nodes = np.flatnonzero(self.weights)
        return nodes, self.weights[nodes]

    def spread(self, all_nodes: int) -> Int64Array:
        """Returns the weight of every node; 0 for a node that the factor excludes."""
        if self.nodes is None:
            return np.ones(all_nodes, np.int64) if self.weights is None else self.weights
        weights = np.zeros(all_nodes, np.int64)
        weights[self.nodes] = 1 if self.weights is None else self.weights
        return weights

    def times(self, factor: Factor) -> Factor:
        """Returns the nodes of both factors, with the products of their weights."""
        if self.nodes is None and factor.nodes is None:
            return Factor(None, _product(self.weights, factor.weights))
        if self.nodes is None or (factor.nodes is not None and len(factor.nodes) < len(self.nodes)):
            return factor.times(self)
        if factor.nodes is None:
            weights = None if factor.weights is None else factor.weights[self.nodes]
            return _drop_zero_weights(self.nodes, _product(self.weights, weights))
        positions = np.minimum(np.searchsorted(factor.nodes, self.nodes), max(0, len(factor.nodes) - 1))
        in_both = factor.nodes[positions] == self.nodes if len(factor.nodes) else np.zeros(len(self.nodes), np.bool_)
        self_weights = None if self.weights is None else self.weights[in_both]
        factor_weights = None if factor.weights is None else factor.weights[positions[in_both]]
        return Factor(self.nodes[in_both], _product(self_weights, factor_weights))


def _product(first: Int64Array | None, second: Int64Array | None) -> Int64Array | None:
    if first is None or second is None:
        return second if first is None else first
    if len(first) and float(first.max()) * float(second.max()) >= EXACT_FLOAT_BOUND:
        raise NeedsSqlFallback
    return first * second


def _drop_zero_weights(nodes: Int64Array, weights: Int64Array | None) -> Factor:
    if weights is None:
        return Factor(nodes)
    is_positive = weights > 0
    return Factor(nodes, weights) if is_positive.all() else Factor(nodes[is_positive], weights[is_positive])


def sum_by_position(positions: npt.NDArray[np.integer], weights: Int64Array | None, size: int) -> Int64Array:
    """Returns the sum of weights per position. Raises NeedsSqlFallback if a sum might be inexact."""
    if weights is None:
        return np.bincount(positions, minlength=size)
    sums = np.bincount(positions, weights, minlength=size)
    if len(sums) and sums.max() >= EXACT_FLOAT_BOUND:
        raise NeedsSqlFallback
    return sums.astype(np.int64)


@dataclass(frozen=True)
class WeightedRows:
    """Columns of nodes per output variable; each row stands for `weights` rows of the query (None: one)."""

    nodes: dict[str, Int64Array]
    weights: Int64Array | None
    count: int


@dataclass(frozen=True)
class _Fold:
    """A way to fold the variable `removed` into `neighbour`, the other end of `link`, which is its only link."""

    cost: float
    link: Pairs
    removed: str
    neighbour: str
    is_pull: bool = False


@dataclass
class TreeCounter:
    """Counts one join tree in one run."""

    coded_tables: CodedTables
    ranked_columns: RankedColumns
    deadline: Deadline
    budget: Budget
    steps: list[ReadStep] = field(default_factory=list)

    def total(self, body: TreeBody) -> int:
        """Returns the number of rows."""
        factors, _ = self._fold_variables(body, ())
        ((var, factor),) = factors.items()
        _, weights = factor.list_nodes(self._node_count(body, var))
        if weights is None:
            return factor.size(self._node_count(body, var))
        if float(weights.max(initial=0)) * max(1, len(weights)) >= 2.0**62:
            raise NeedsSqlFallback
        return int(weights.sum())

    def rows(self, body: TreeBody, output_variables: tuple[str, ...]) -> WeightedRows:
        """Returns the rows of the output variables, of which there is at least one."""
        factors, links = self._fold_variables(body, output_variables)
        start = min(factors, key=lambda var: factors[var].size(self._node_count(body, var)))
        nodes, weights = factors[start].list_nodes(self._node_count(body, start))
        self._take_memory(len(nodes))
        columns = {start: nodes}
        reached = {start}
        while links:
            connected = [link for link in links if {link.left, link.right} & reached]
            link = min(connected, key=self._fan_out_from(reached))
            links.remove(link)
            columns, weights = self._expand(columns, weights, link, factors)
            reached |= {link.left, link.right}
            needed = {*output_variables, *(end for remaining in links for end in (remaining.left, remaining.right))}
            columns = {var: column for var, column in columns.items() if var in needed}
        count = len(next(iter(columns.values())))
        return WeightedRows(columns, weights, count)

    def _expand(
        self, columns: dict[str, Int64Array], weights: Int64Array | None, link: Pairs, factors: dict[str, Factor]
    ) -> tuple[dict[str, Int64Array], Int64Array | None]:
        """Joins the rows with the link: adds the column of its far end."""
        self.deadline.check()
        near, far = (link.left, link.right) if link.left in columns else (link.right, link.left)
        graph = self._adjacency(link, near)
        self._take_memory(graph.count(columns[near]) * (len(columns) + 2))
        positions, ends = _neighbours(graph, columns[near])
        self._note(link, f"adjacency of ${near}", len(ends))
        columns = {var: column if positions is None else column[positions] for var, column in columns.items()}
        columns |= {far: ends}
        weights = weights if weights is None or positions is None else weights[positions]
        if not factors[far].is_free:
            end_weights = factors[far].spread(self._adjacency(link, far).nodes)[ends]
            is_present = end_weights > 0
            columns = {var: column[is_present] for var, column in columns.items()}
            weights = None if weights is None else weights[is_present]
            weights = _product(weights, None if factors[far].weights is None else end_weights[is_present])
        return columns, weights

    def _fan_out_from(self, reached: set[str]) -> Callable[[Pairs], float]:
        def fan_out(link: Pairs) -> float:
            graph = self._adjacency(link, link.left if link.left in reached else link.right)
            return len(graph.targets) / max(1, graph.nodes)

        return fan_out

    # ---- folding -----------------------------------------------------------------------------------------------------

    def _fold_variables(
        self, body: TreeBody, output_variables: tuple[str, ...]
    ) -> tuple[dict[str, Factor], list[Pairs]]:
        """Folds all variables that no path between output variables needs; returns the other factors and their links.

        Without output variables one variable remains.
        """
        factors = self._initial_factors(body)
        links = list(body.links)
        while True:
            folds = [fold for link in links for fold in self._folds(body, link, links, factors, output_variables)]
            if not folds:
                return factors, links
            self.deadline.check()
            fold = min(folds, key=lambda candidate: candidate.cost)
            factors[fold.neighbour] = factors[fold.neighbour].times(self._message(fold, factors))
            del factors[fold.removed]
            links.remove(fold.link)

    def _folds(
        self,
        body: TreeBody,
        link: Pairs,
        links: list[Pairs],
        factors: dict[str, Factor],
        output_variables: tuple[str, ...],
    ) -> Iterator[_Fold]:
        """Yields how an end of the link that has no other link can be folded into the other end."""
        for removed, neighbour in ((link.left, link.right), (link.right, link.left)):
            if removed in output_variables or sum(removed in (sibling.left, sibling.right) for sibling in links) > 1:
                continue
            if factors[removed].is_free:
                yield _Fold(0.0, link, removed, neighbour)
                continue
            pin = self.coded_tables.snapshot.record.pins.get(link.edge)
            edges = max(1, pin.rows if pin is not None else 0)
            removed_nodes, neighbour_nodes = self._node_count(body, removed), self._node_count(body, neighbour)
            push_cost = factors[removed].size(removed_nodes) * edges / max(1, removed_nodes)
            yield _Fold(push_cost, link, removed, neighbour)
            if factors[neighbour].nodes is not None:
                pull_cost = factors[neighbour].size(neighbour_nodes) * edges / max(1, neighbour_nodes)
                yield _Fold(pull_cost, link, removed, neighbour, is_pull=True)

    def _initial_factors(self, body: TreeBody) -> dict[str, Factor]:
        factors = {var: Factor() for var in body.types}
        for scan in body.scans:
            if scan.where:
                rows = self.ranked_columns.rows(scan.type.type_id, scan.where)
                factors[scan.var] = factors[scan.var].times(Factor(rows))
                self._note(scan, "ranks", len(rows))
        for leaf in body.degrees:
            ends = (leaf.var, "") if leaf.end == "left" else ("", leaf.var)
            link = Pairs(*ends, leaf.edge, leaf.direction)
            factors[leaf.var] = factors[leaf.var].times(self._degrees(link, leaf.var, factors[leaf.var].nodes))
            self._note(leaf, "degrees", factors[leaf.var].size(self._node_count(body, leaf.var)))
        for var, excluded_body in body.excluded:
            excluded_factors, _ = self._fold_variables(excluded_body, (var,))
            is_excluded = excluded_factors[var].spread(self._node_count(body, var)) > 0
            factors[var] = factors[var].times(Factor(np.flatnonzero(~is_excluded)))
        return factors

    def _message(self, fold: _Fold, factors: dict[str, Factor]) -> Factor:
        """Returns what the removed variable contributes to the nodes of its neighbour."""
        if factors[fold.removed].is_free:
            return self._count_ends(fold, factors)
        return self._pull_weights(fold, factors) if fold.is_pull else self._push_weights(fold, factors)

    def _count_ends(self, fold: _Fold, factors: dict[str, Factor]) -> Factor:
        """A variable that can be any node contributes the number of its edges."""
        nodes = factors[fold.neighbour].nodes
        degrees = self._degrees(fold.link, fold.neighbour, nodes)
        counted = self._end_node_count(fold.link, fold.neighbour) if nodes is None else len(nodes)
        self._note(fold.link, f"degrees of ${fold.neighbour}", counted)
        return degrees

    def _degrees(self, link: Pairs, var: str, nodes: Int64Array | None) -> Factor:
        starts = self._adjacency(link, var).starts
        if nodes is None:
            return Factor(None, np.diff(starts))
        return _drop_zero_weights(nodes, starts[nodes + 1] - starts[nodes])

    def _push_weights(self, fold: _Fold, factors: dict[str, Factor]) -> Factor:
        """Sums the weights of the removed variable's nodes at their neighbours."""
        graph = self._adjacency(fold.link, fold.removed)
        nodes, weights = factors[fold.removed].list_nodes(graph.nodes)
        self._take_memory(graph.count(nodes) * 3)
        positions, ends = _neighbours(graph, nodes)
        self._note(fold.link, f"adjacency of {len(nodes)} ${fold.removed}", len(ends))
        edge_weights = weights if weights is None or positions is None else weights[positions]
        all_nodes = self._end_node_count(fold.link, fold.neighbour)
        if len(ends) * _DENSE_RATIO > all_nodes:
            weights = sum_by_position(ends, edge_weights, all_nodes)
            nodes = np.flatnonzero(weights)
            return Factor(nodes, weights[nodes])
        nodes, end_positions = np.unique(ends, return_inverse=True)
        return Factor(nodes, sum_by_position(end_positions, edge_weights, len(nodes)))

    def _pull_weights(self, fold: _Fold, factors: dict[str, Factor]) -> Factor:
        """Computes the same as `_push_weights`, from the few nodes of the neighbour."""
        nodes = factors[fold.neighbour].nodes
        assert nodes is not None
        graph = self._adjacency(fold.link, fold.neighbour)
        self._take_memory(graph.count(nodes) * 3)
        positions, ends = _neighbours(graph, nodes)
        self._note(fold.link, f"adjacency of {len(nodes)} ${fold.neighbour}", len(ends))
        end_weights = factors[fold.removed].spread(self._end_node_count(fold.link, fold.removed))[ends]
        weights = end_weights if positions is None else sum_by_position(positions, end_weights, len(nodes))
        return _drop_zero_weights(nodes, weights)

    # ---- sizes -------------------------------------------------------------------------------------------------------

    def _adjacency(self, link: Pairs, start: str) -> Adjacency:
        backwards = start != link.left
        return self.coded_tables.adjacency(link.edge, link.direction, distinct=link.distinct, backwards=backwards)

    def _node_count(self, body: TreeBody, var: str) -> int:
        return len(self.coded_tables.ids(body.types[var]))

    def _end_node_count(self, link: Pairs, end: str) -> int:
        return self.coded_tables.sizes(link.edge, link.direction)[0 if end == link.left else 1]

    def _take_memory(self, values: int) -> None:
        self.budget.take(values * _BYTES_PER_VALUE)

    def _note(self, leaf: Leaf, access: str, rows: int) -> None:
        self.steps.append(ReadStep(leaf, access, rows))


def _neighbours(graph: Adjacency, nodes: Int64Array) -> tuple[Int64Array | None, Int64Array]:
    """Returns the neighbours, and for each the position of its node in the input (None: its own position)."""
    if graph.is_function:
        return None, graph.targets[nodes].astype(np.int64)
    return graph.neighbours(nodes)
