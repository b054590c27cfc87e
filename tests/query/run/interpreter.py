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
from omnigraph.query.language.checked import (
    F64,
    AggregateCall,
    AllOf,
    AnyOf,
    Bm25,
    CheckedCompare,
    CheckedNullTest,
    CheckedRead,
    Const,
    Entity,
    Expr,
    Hop,
    ListOf,
    Nearest,
    Now,
    OrderBy,
    Param,
    Pattern,
    Predicate,
    Prop,
    Rrf,
    TextFilter,
)
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

    def run(self, read: CheckedRead) -> list[list[Any]]:
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
                entity_ids = [self_.identity(value, rows[0]) for value in values if isinstance(value, Entity)]
                return entity_ids + [self_.value(value, rows[0]) for value in values if not isinstance(value, Entity)]

        if read.order:
            tagged = [([self_.of_rows(key.value, rows) for key in read.order], ties(rows), out) for out, rows in keyed]
            tagged.sort(key=cmp_to_key(lambda first, second: _compare_rows(read.order, first, second)))
            return [out for _, _, out in tagged]
        return [out for out, _ in keyed]

    def _groups(
        self, read: CheckedRead, places: tuple[int, ...], bindings: list[Binding], rows_: _Rows
    ) -> list[tuple[list[Any], list[Binding]]]:
        groups: dict[Any, list[Binding]] = {}
        for row in bindings:
            key = tuple(_hashable(rows_.identity(read.columns[location].value, row)) for location in places)
            groups.setdefault(key, []).append(row)
        if read.grouping == () and not groups:
            groups[()] = []
        return [([rows_.of_rows(column.value, rows) for column in read.columns], rows) for rows in groups.values()]

    # ---- patterns ----------------------------------------------------------------------------------------------------

    def match(self, pattern: Pattern, outer: Binding) -> Iterator[Binding]:
        nodes = [variable for variable in pattern.variables if variable.type.kind == "node"]
        for choice in itertools.product(*(self.graph.get(node.type.type_id, []) for node in nodes)):
            row: Binding = {**outer, **{variable.name: entity for variable, entity in zip(nodes, choice, strict=True)}}
            for extended in self._hops(pattern.hops, row):
                yield from self._rest(pattern, extended)

    def _hops(self, hops: tuple[Hop, ...], row: Binding) -> Iterator[Binding]:
        if not hops:
            yield row
            return
        hop, *further_hops = hops
        source, right = row[hop.left], row[hop.right]
        if source is None or right is None:
            return
        if hop.var is not None:
            for edge in self.graph.get(hop.edge, []):
                if (source["id"], right["id"]) in _ends(edge, hop.direction):
                    yield from self._hops(tuple(further_hops), {**row, hop.var: edge})
        elif self._is_connected(hop, source["id"], right["id"]):
            yield from self._hops(tuple(further_hops), row)

    def _is_connected(self, hop: Hop, left: str, right: str) -> bool:
        pairs = {pair for edge in self.graph.get(hop.edge, []) for pair in _ends(edge, hop.direction)}
        if hop.is_plain:
            return (left, right) in pairs
        if left == right:
            return hop.low == 1 and (left, left) in pairs
        distance, frontier, visited = 0, {left}, {left}
        while frontier and distance < (hop.high or CEILING):
            distance += 1
            frontier = {target for source, target in pairs if source in frontier} - visited
            visited |= frontier
            if right in frontier:
                return distance >= hop.low
        return False

    def _rest(self, pattern: Pattern, row: Binding) -> Iterator[Binding]:
        rows = [row]
        for block in pattern.optionals:
            rows = [extended for candidate in rows for extended in self._optional(block, candidate, row)]
        for candidate in rows:
            if not all(self._holds(condition, candidate) for condition in pattern.filters):
                continue
            if not all(self._matches_text(text, candidate) for text in pattern.texts):
                continue
            if any(True for block in pattern.nots for _ in self.match(block, candidate)):
                continue
            yield candidate

    def _optional(self, block: Pattern, row: Binding, visible: Binding) -> list[Binding]:
        """Sibling blocks do not see each other: the block is matched against what the scope itself binds."""
        matches = [{**row, **extended} for extended in self.match(block, visible)]
        return matches or [{**row, **dict.fromkeys(_binds(block))}]

    # ---- conditions --------------------------------------------------------------------------------------------------

    def _holds(self, predicate: Predicate, row: Binding) -> bool:
        match predicate:
            case AnyOf(parts):
                return any(self._holds(part, row) for part in parts)
            case AllOf(parts):
                return all(self._holds(part, row) for part in parts)
            case CheckedNullTest(operand, negated):
                return (self.plain(operand, row) is None) != negated
            case CheckedCompare(left, op, right):
                left_value, right_value = self.plain(left, row), self.plain(right, row)
                return left_value is not None and right_value is not None and _compare(left_value, op, right_value)

    def _matches_text(self, text: TextFilter, row: Binding) -> bool:
        value = self.plain(text.prop, row)
        query_terms = terms(self.plain(text.query, row))
        if value is None or not query_terms:
            return False
        words = terms(value)
        if text.function == "search":
            return any(term in words for term in query_terms)
        if text.function == "match_text":
            return any(words[at : at + len(query_terms)] == query_terms for at in range(len(words)))
        edits = self.plain(text.edits, row) if text.edits is not None else 0
        return any(_edit_distance(term, word) <= edits for term in query_terms for word in words)

    def plain(self, value: Expr, row: Binding) -> Any:
        """An expression of one row without ranks; an entity is its id."""
        match value:
            case Prop():
                entity = row[value.var]
                return None if entity is None else entity.get(value.column)
            case Entity():
                entity = row[value.var]
                return None if entity is None else entity["id"]
            case Const():
                return value.value
            case Param():
                return self.bound[value.slot]
            case Now():
                return self.now
            case ListOf():
                return [self.plain(item, row) for item in value.items]
        raise AssertionError(value)

    # ---- ranks -------------------------------------------------------------------------------------------------------

    def rank(self, value: Bm25 | Nearest, row: Binding) -> float | None:
        text = self.plain(value.prop, row)
        if text is None:
            return None
        return self._bm25(value, text) if isinstance(value, Bm25) else self._distance(value, text)

    def _bm25(self, value: Bm25, text: str) -> float:
        corpus = [
            terms(document[value.prop.column])
            for document in self.graph[value.prop.type_id]
            if document[value.prop.column] is not None
        ]
        mean = sum(map(len, corpus)) / len(corpus)
        words = terms(text)
        score = 0.0
        for term in dict.fromkeys(terms(self.plain(value.query, {}))):
            rows = sum(term in document for document in corpus)
            count = words.count(term)
            if count:
                weight = math.log(1 + (len(corpus) - rows + 0.5) / (rows + 0.5))
                score += weight * count * 2.2 / (count + 1.2 * (1 - 0.75 + 0.75 * (len(words) / mean)))
        return score

    def _distance(self, value: Nearest, vector: list[float]) -> float | None:
        query = self.plain(value.query, {})
        if isinstance(query, str):
            assert self.embedder is not None
            query = self.embedder.embed([query], len(vector))[0]
        inner = sum(stored_number * query_number for stored_number, query_number in zip(vector, query, strict=True))
        if value.metric == "l2":
            return math.dist(vector, query)
        if value.metric == "dot":
            return float(1 - inner)
        length = math.hypot(*vector) * math.hypot(*query)
        return float(1 - max(-1.0, min(1.0, inner / length))) if length else None

    def _fuse_ranks(self, read: CheckedRead, bindings: list[Binding]) -> dict[Rrf, list[tuple[Binding, float]]]:
        values = [*(column.value for column in read.columns), *(column.value for column in read.order)]
        scores = {}
        for fused in {value for value in values if isinstance(value, Rrf)}:
            k = self.plain(fused.k, {})
            shares = [self._shares(part, bindings, k) for part in (fused.first, fused.second)]
            scores[fused] = [(row, first + second) for row, first, second in zip(bindings, *shares, strict=True)]
        return scores

    def _shares(self, part: Bm25 | Nearest, bindings: list[Binding], k: int) -> list[float]:
        scores = [self.rank(part, row) for row in bindings]
        if isinstance(part, Bm25):
            scores = [score if score else None for score in scores]
        places = sorted({score for score in scores if score is not None}, reverse=isinstance(part, Bm25))
        return [1 / (k + places.index(score) + 1) if score is not None else 0.0 for score in scores]


@dataclass(frozen=True)
class _Rows:
    """Values of result rows: of one binding, or of the bindings of a group."""

    inner: Interpreter
    fused: Mapping[Rrf, list[tuple[Binding, float]]]

    def of_rows(self, value: Expr, rows: list[Binding]) -> Any:
        if isinstance(value, AggregateCall):
            return self._aggregate(value, rows)
        if isinstance(value, (Const, Param, Now, ListOf)):
            return self.inner.plain(value, {})
        return self.value(value, rows[0])

    def value(self, value: Expr, row: Binding) -> Any:
        match value:
            case Entity():
                return self._whole(value, row[value.var])
            case Bm25() | Nearest():
                return self.inner.rank(value, row)
            case Rrf():
                return next(score for fused_row, score in self.fused[value] if fused_row is row)
        return self.inner.plain(value, row)

    def identity(self, value: Expr, row: Binding) -> Any:
        return self.inner.plain(value, row) if isinstance(value, Entity) else self.value(value, row)

    def _whole(self, value: Entity, entity: Row | None) -> dict[str, Any] | None:
        if entity is None:
            return None
        type_def = self.inner.catalog.by_id[value.type.type_id]
        properties = {
            prop.name: entity.get(prop.id) for prop in type_def.properties if prop.type.scalar is not Scalar.BLOB
        }
        return {**{name: entity[name] for name in SYSTEM_COLUMNS[type_def.kind]}, **properties}

    def _aggregate(self, value: AggregateCall, rows: list[Binding]) -> Any:
        values = [number for number in (self.inner.plain(value.argument, row) for row in rows) if number is not None]
        match value.function:
            case "count":
                return len({_hashable(number) for number in values}) if value.distinct else len(values)
            case "sum":
                return (math.fsum(values) if value.type == F64 else sum(values)) if values else None
            case "avg":
                return sum(values) / len(values) if values else None
            case "min":
                return min(values, key=_sortable) if values else None
            case "max":
                return max(values, key=_sortable) if values else None


def _ends(edge: Row, direction: str) -> set[tuple[str, str]]:
    forward, backward = (edge["src"], edge["dst"]), (edge["dst"], edge["src"])
    return {"forward": {forward}, "backward": {backward}, "either": {forward, backward}}[direction]


def _binds(block: Pattern) -> list[str]:
    names = [variable.name for variable in block.variables]
    return names + [name for inner in block.optionals for name in _binds(inner)]


# ---- values ----------------------------------------------------------------------------------------------------------


def _sortable(value: Any) -> Any:
    """NaN is equal to itself and above all numbers."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(_equal(a, b) for a, b in zip(first, second, strict=True))
    return bool(_sortable(first) == _sortable(second))


def _compare(first: Any, op: str, second: Any) -> bool:
    match op:
        case "=":
            return _equal(first, second)
        case "!=":
            return not _equal(first, second)
        case "contains" if isinstance(first, str):
            return str(second) in first
        case "contains":
            return any(_equal(item, second) for item in first)
        case "in":
            return any(_equal(first, item) for item in second)
        case "starts_with":
            return bool(first.startswith(second))
    left, right = _sortable(first), _sortable(second)
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op])


def _order(first: Any, second: Any) -> int:
    left, right = _sortable(first), _sortable(second)
    return 0 if left == right else -1 if left < right else 1


def _compare_rows(order: tuple[OrderBy, ...], first_row: Any, second_row: Any) -> int:
    for key, left, right in zip(order, first_row[0], second_row[0], strict=True):
        if left is None or right is None:
            if (left is None) == (right is None):
                continue
            rank = isinstance(key.value, (Bm25, Nearest, Rrf))
            first = -1 if left is None else 1
            return -first if rank or key.descending else first
        order_of_keys = _order(left, right)
        if order_of_keys:
            return -order_of_keys if key.descending else order_of_keys
    for left, right in zip(first_row[1], second_row[1], strict=True):
        if left is None or right is None:
            if (left is None) == (right is None):
                continue
            return -1 if left is None else 1
        order_of_keys = _order(left, right)
        if order_of_keys:
            return order_of_keys
    return 0


def _edit_distance(first: str, second: str) -> int:
    if not first or not second:
        return len(first) + len(second)
    if first[0] == second[0]:
        return _edit_distance(first[1:], second[1:])
    return 1 + min(
        _edit_distance(first[1:], second), _edit_distance(first, second[1:]), _edit_distance(first[1:], second[1:])
    )


def multiset(rows: list[list[Any]]) -> Counter[Any]:
    return Counter(repr(row) for row in rows)
