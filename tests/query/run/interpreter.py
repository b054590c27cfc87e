"""A reference interpreter of reading queries: plain Python over dicts, slow and meant to be obviously right.

It works from the checked query and knows nothing of plans, SQL, Arrow or storage. Only the cutting of texts into terms
is shared with the engine: it is a definition.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from omnigraph.embed.providers import Embedder
from omnigraph.embed.words import terms
from omnigraph.query.language import checked as c
from omnigraph.schema.catalog import SYSTEM_COLUMNS, Catalog, Scalar

Row = Mapping[str, Any]
Binding = dict[str, Row | None]
Graph = Mapping[str, list[Row]]
"""Rows by type id; columns are property ids, `id`, `src`, `dst`."""

CEILING = 16


@dataclass(frozen=True)
class Interpreter:
    catalog: Catalog
    graph: Graph
    bound: Mapping[str, Any]
    now: Any
    embedder: Embedder | None = None

    def run(self, read: c.CheckedRead) -> list[list[Any]]:
        """The rows of the result, before limit and offset, in order if there is one."""
        bindings = list(self.match(read.pattern, {}))
        fused = self._fuse_ranks(read, bindings)
        self_ = _Rows(self, fused)
        if read.grouping is None and not read.distinct:
            keyed = [([self_.value(column.value, row) for column in read.columns], [row]) for row in bindings]
            names = _binds(read.pattern)

            def ties(rows: list[Binding]) -> list[Any]:
                return [entity["id"] if (entity := rows[0][var]) else None for var in names]

        else:
            places = read.grouping if read.grouping is not None else tuple(range(len(read.columns)))
            keyed = self._groups(read, places, bindings, self_)

            def ties(rows: list[Binding]) -> list[Any]:
                values = [read.columns[location].value for location in places]
                whole = [self_.identity(value, rows[0]) for value in values if isinstance(value, c.Entity)]
                return whole + [self_.value(value, rows[0]) for value in values if not isinstance(value, c.Entity)]

        if read.order:
            tagged = [([self_.of_rows(key.value, rows) for key in read.order], ties(rows), out) for out, rows in keyed]
            tagged.sort(key=cmp_to_key(lambda one, two: _compare_rows(read.order, one, two)))
            return [out for _, _, out in tagged]
        return [out for out, _ in keyed]

    def _groups(
        self, read: c.CheckedRead, places: tuple[int, ...], bindings: list[Binding], rows_: _Rows
    ) -> list[tuple[list[Any], list[Binding]]]:
        groups: dict[Any, list[Binding]] = {}
        for row in bindings:
            key = tuple(_hashable(rows_.identity(read.columns[location].value, row)) for location in places)
            groups.setdefault(key, []).append(row)
        if read.grouping == () and not groups:
            groups[()] = []
        return [([rows_.of_rows(column.value, rows) for column in read.columns], rows) for rows in groups.values()]

    # ---- patterns ----------------------------------------------------------------------------------------------------

    def match(self, pattern: c.Pattern, outer: Binding) -> Iterator[Binding]:
        nodes = [variable for variable in pattern.variables if variable.type.kind == "node"]
        for choice in itertools.product(*(self.graph.get(node.type.type_id, []) for node in nodes)):
            row: Binding = {**outer, **{one.name: found for one, found in zip(nodes, choice, strict=True)}}
            for extended in self._hops(pattern.hops, row):
                yield from self._rest(pattern, extended)

    def _hops(self, hops: tuple[c.Hop, ...], row: Binding) -> Iterator[Binding]:
        if not hops:
            yield row
            return
        hop, *rest = hops
        left, right = row[hop.left], row[hop.right]
        if left is None or right is None:
            return
        if hop.var is not None:
            for edge in self.graph.get(hop.edge, []):
                if (left["id"], right["id"]) in _ends(edge, hop.direction):
                    yield from self._hops(tuple(rest), {**row, hop.var: edge})
        elif self._is_connected(hop, left["id"], right["id"]):
            yield from self._hops(tuple(rest), row)

    def _is_connected(self, hop: c.Hop, left: str, right: str) -> bool:
        pairs = {pair for edge in self.graph.get(hop.edge, []) for pair in _ends(edge, hop.direction)}
        if hop.is_plain:
            return (left, right) in pairs
        if left == right:
            return hop.low == 1 and (left, left) in pairs
        distance, frontier, seen = 0, {left}, {left}
        while frontier and distance < (hop.high or CEILING):
            distance += 1
            frontier = {two for one, two in pairs if one in frontier} - seen
            seen |= frontier
            if right in frontier:
                return distance >= hop.low
        return False

    def _rest(self, pattern: c.Pattern, row: Binding) -> Iterator[Binding]:
        rows = [row]
        for block in pattern.optionals:
            rows = [extended for one in rows for extended in self._optional(block, one, row)]
        for one in rows:
            if not all(self._holds(condition, one) for condition in pattern.filters):
                continue
            if not all(self._matches_text(text, one) for text in pattern.texts):
                continue
            if any(True for block in pattern.nots for _ in self.match(block, one)):
                continue
            yield one

    def _optional(self, block: c.Pattern, row: Binding, visible: Binding) -> list[Binding]:
        """Sibling blocks do not see each other: the block is matched against what the scope itself binds."""
        found = [{**row, **extended} for extended in self.match(block, visible)]
        return found or [{**row, **dict.fromkeys(_binds(block))}]

    # ---- conditions --------------------------------------------------------------------------------------------------

    def _holds(self, predicate: c.Predicate, row: Binding) -> bool:
        match predicate:
            case c.AnyOf(parts):
                return any(self._holds(part, row) for part in parts)
            case c.AllOf(parts):
                return all(self._holds(part, row) for part in parts)
            case c.CheckedNullTest(operand, negated):
                return (self.plain(operand, row) is None) != negated
            case c.CheckedCompare(left, op, right):
                one, two = self.plain(left, row), self.plain(right, row)
                return one is not None and two is not None and _compare(one, op, two)

    def _matches_text(self, text: c.TextFilter, row: Binding) -> bool:
        value = self.plain(text.prop, row)
        wanted = terms(self.plain(text.query, row))
        if value is None or not wanted:
            return False
        words = terms(value)
        if text.function == "search":
            return any(one in words for one in wanted)
        if text.function == "match_text":
            return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
        edits = self.plain(text.edits, row) if text.edits is not None else 0
        return any(_edit_distance(one, word) <= edits for one in wanted for word in words)

    def plain(self, value: c.Expr, row: Binding) -> Any:
        """An expression of one row without ranks; an entity is its id."""
        match value:
            case c.Prop():
                entity = row[value.var]
                return None if entity is None else entity.get(value.column)
            case c.Entity():
                entity = row[value.var]
                return None if entity is None else entity["id"]
            case c.Const():
                return value.value
            case c.Param():
                return self.bound[value.slot]
            case c.Now():
                return self.now
            case c.ListOf():
                return [self.plain(item, row) for item in value.items]
        raise AssertionError(value)

    # ---- ranks -------------------------------------------------------------------------------------------------------

    def rank(self, value: c.Bm25 | c.Nearest, row: Binding) -> float | None:
        found = self.plain(value.prop, row)
        if found is None:
            return None
        return self._bm25(value, found) if isinstance(value, c.Bm25) else self._distance(value, found)

    def _bm25(self, value: c.Bm25, text: str) -> float:
        corpus = [
            terms(one[value.prop.column])
            for one in self.graph[value.prop.type_id]
            if one[value.prop.column] is not None
        ]
        mean = sum(map(len, corpus)) / len(corpus)
        words = terms(text)
        score = 0.0
        for term in dict.fromkeys(terms(self.plain(value.query, {}))):
            rows = sum(term in one for one in corpus)
            count = words.count(term)
            if count:
                weight = math.log(1 + (len(corpus) - rows + 0.5) / (rows + 0.5))
                score += weight * count * 2.2 / (count + 1.2 * (1 - 0.75 + 0.75 * (len(words) / mean)))
        return score

    def _distance(self, value: c.Nearest, vector: list[float]) -> float | None:
        wanted = self.plain(value.query, {})
        if isinstance(wanted, str):
            assert self.embedder is not None
            wanted = self.embedder.embed([wanted], len(vector))[0]
        inner = sum(one * two for one, two in zip(vector, wanted, strict=True))
        if value.metric == "l2":
            return math.dist(vector, wanted)
        if value.metric == "dot":
            return float(1 - inner)
        length = math.hypot(*vector) * math.hypot(*wanted)
        return float(1 - max(-1.0, min(1.0, inner / length))) if length else None

    def _fuse_ranks(self, read: c.CheckedRead, bindings: list[Binding]) -> dict[c.Rrf, list[tuple[Binding, float]]]:
        values = [*(column.value for column in read.columns), *(column.value for column in read.order)]
        found = {}
        for fused in {value for value in values if isinstance(value, c.Rrf)}:
            k = self.plain(fused.k, {})
            shares = [self._shares(part, bindings, k) for part in (fused.first, fused.second)]
            found[fused] = [(row, one + two) for row, one, two in zip(bindings, *shares, strict=True)]
        return found

    def _shares(self, part: c.Bm25 | c.Nearest, bindings: list[Binding], k: int) -> list[float]:
        scores = [self.rank(part, row) for row in bindings]
        if isinstance(part, c.Bm25):
            scores = [score if score else None for score in scores]
        places = sorted({score for score in scores if score is not None}, reverse=isinstance(part, c.Bm25))
        return [1 / (k + places.index(score) + 1) if score is not None else 0.0 for score in scores]


@dataclass(frozen=True)
class _Rows:
    """Values of result rows: of one binding, or of the bindings of a group."""

    inner: Interpreter
    fused: Mapping[c.Rrf, list[tuple[Binding, float]]]

    def of_rows(self, value: c.Expr, rows: list[Binding]) -> Any:
        if isinstance(value, c.AggregateCall):
            return self._aggregate(value, rows)
        if isinstance(value, (c.Const, c.Param, c.Now, c.ListOf)):
            return self.inner.plain(value, {})
        return self.value(value, rows[0])

    def value(self, value: c.Expr, row: Binding) -> Any:
        match value:
            case c.Entity():
                return self._whole(value, row[value.var])
            case c.Bm25() | c.Nearest():
                return self.inner.rank(value, row)
            case c.Rrf():
                return next(score for one, score in self.fused[value] if one is row)
        return self.inner.plain(value, row)

    def identity(self, value: c.Expr, row: Binding) -> Any:
        return self.inner.plain(value, row) if isinstance(value, c.Entity) else self.value(value, row)

    def _whole(self, value: c.Entity, entity: Row | None) -> dict[str, Any] | None:
        if entity is None:
            return None
        one = self.inner.catalog.by_id[value.type.type_id]
        shown = {prop.name: entity.get(prop.id) for prop in one.properties if prop.type.scalar is not Scalar.BLOB}
        return {**{name: entity[name] for name in SYSTEM_COLUMNS[one.kind]}, **shown}

    def _aggregate(self, value: c.AggregateCall, rows: list[Binding]) -> Any:
        found = [one for one in (self.inner.plain(value.argument, row) for row in rows) if one is not None]
        match value.function:
            case "count":
                return len({_hashable(one) for one in found}) if value.distinct else len(found)
            case "sum":
                return (math.fsum(found) if value.type == c.F64 else sum(found)) if found else None
            case "avg":
                return sum(found) / len(found) if found else None
            case "min":
                return min(found, key=_sortable) if found else None
            case "max":
                return max(found, key=_sortable) if found else None


def _ends(edge: Row, direction: str) -> set[tuple[str, str]]:
    forward, backward = (edge["src"], edge["dst"]), (edge["dst"], edge["src"])
    return {"forward": {forward}, "backward": {backward}, "either": {forward, backward}}[direction]


def _binds(block: c.Pattern) -> list[str]:
    own = [variable.name for variable in block.variables]
    return own + [name for inner in block.optionals for name in _binds(inner)]


# ---- values ----------------------------------------------------------------------------------------------------------


def _sortable(value: Any) -> Any:
    """NaN is equal to itself and above all numbers."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(one) for one in value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(_equal(a, b) for a, b in zip(one, two, strict=True))
    return bool(_sortable(one) == _sortable(two))


def _compare(one: Any, op: str, two: Any) -> bool:
    match op:
        case "=":
            return _equal(one, two)
        case "!=":
            return not _equal(one, two)
        case "contains" if isinstance(one, str):
            return str(two) in one
        case "contains":
            return any(_equal(item, two) for item in one)
        case "in":
            return any(_equal(one, item) for item in two)
        case "starts_with":
            return bool(one.startswith(two))
    left, right = _sortable(one), _sortable(two)
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _order(one: Any, two: Any) -> int:
    left, right = _sortable(one), _sortable(two)
    return 0 if left == right else -1 if left < right else 1


def _compare_rows(order: tuple[c.OrderBy, ...], one: Any, two: Any) -> int:
    for key, left, right in zip(order, one[0], two[0], strict=True):
        if left is None or right is None:
            if (left is None) == (right is None):
                continue
            rank = isinstance(key.value, (c.Bm25, c.Nearest, c.Rrf))
            first = -1 if left is None else 1
            return -first if rank or key.descending else first
        found = _order(left, right)
        if found:
            return -found if key.descending else found
    for left, right in zip(one[1], two[1], strict=True):
        if left is None or right is None:
            if (left is None) == (right is None):
                continue
            return -1 if left is None else 1
        found = _order(left, right)
        if found:
            return found
    return 0


def _edit_distance(one: str, two: str) -> int:
    if not one or not two:
        return len(one) + len(two)
    if one[0] == two[0]:
        return _edit_distance(one[1:], two[1:])
    return 1 + min(_edit_distance(one[1:], two), _edit_distance(one, two[1:]), _edit_distance(one[1:], two[1:]))


def multiset(rows: list[list[Any]]) -> Counter[Any]:
    return Counter(repr(row) for row in rows)
