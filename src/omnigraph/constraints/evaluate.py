"""Relations made into functions over rows of Python values, which a caller reads from the images of a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from omnigraph.constraints import relations as r
from omnigraph.schema.catalog import Scalar, TypeDef
from omnigraph.schema.values import canonical_text

Tuple = tuple[Any, ...]
"""Values in the order of a relation's columns."""

Read = Callable[[r.Rows], Iterable[Tuple]]
"""The rows of an image, cut to its columns. May be asked more than once."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a relation is evaluated over: how to read images, and the groups that were made already."""

    read: Read
    groups: dict[int, list[Tuple]] = field(default_factory=dict)


Evaluate = Callable[[Change], Iterable[Tuple]]
"""The rows of a relation. Rows stream; what a join compares and what a group holds is kept in memory, so that a rule
needs no more than its own columns. Holds no state of a change, and so serves any number of them at once."""

_Key = Callable[[Tuple], Any]


class Evaluators:
    """Makes relations into functions. `one` is the type whose property columns they compare."""

    def __init__(self, one: TypeDef) -> None:
        self._made: dict[r.Relation, Evaluate] = {}
        self._same = {
            prop.id: partial(_same_text, partial(canonical_text, prop))
            for prop in one.properties
            if prop.type.scalar is not Scalar.STRING
        }

    def of(self, relation: r.Relation) -> Evaluate:
        if relation not in self._made:
            self._made[relation] = self._make(relation)
        return self._made[relation]

    def _make(self, relation: r.Relation) -> Evaluate:
        match relation:
            case r.Rows():
                return lambda change: change.read(relation)
            case r.Pick():
                return self._mapped(relation.input, _cut(relation.input, [of for _, of in relation.names]))
            case r.Tagged():
                tag = (relation.text,)
                return self._mapped(relation.input, lambda row: row + tag)
            case r.NotNull() | r.Differ() | r.Outside():
                inner, holds = self.of(relation.input), _condition(relation)
                return lambda change: filter(holds, inner(change))
            case r.Union():
                parts = [self.of(one) for one in relation.inputs]
                return lambda change: (row for part in parts for row in part(change))
            case r.Distinct():
                inner = self.of(relation.input)
                return lambda change: dict.fromkeys(inner(change))
            case r.Span():
                return self._span(relation)
            case r.Tally():
                inner, by = self.of(relation.input), _cut(relation.input, relation.by)
                return lambda change: ((*group, n) for group, n in Counter(map(by, inner(change))).items())
            case r.Join():
                return self._join(relation)
            case r.Semi() | r.Anti():
                return self._filtered(relation)
            case r.Counted():
                return self._counted(relation)

    def _mapped(self, relation: r.Relation, change_row: Callable[[Tuple], Tuple]) -> Evaluate:
        inner = self.of(relation)
        return lambda change: map(change_row, inner(change))

    def _span(self, relation: r.Span) -> Evaluate:
        inner, of = self.of(relation.input), _place(relation.input, relation.of)
        by, key = _cut(relation.input, relation.by), self._key(relation.input, relation.by)

        def spans(change: Change) -> list[Tuple]:
            groups: dict[Any, tuple[Tuple, Any, Any]] = {}
            for row in inner(change):
                group, value = key(row), row[of]
                found = groups.get(group)
                if found is None:
                    groups[group] = (by(row), value, value)
                elif value < found[1]:
                    groups[group] = (by(row), value, found[2])
                elif value > found[2]:
                    groups[group] = (found[0], found[1], value)
            return [(*values, least, greatest) for values, least, greatest in groups.values()]

        def evaluate(change: Change) -> list[Tuple]:
            # A rule holds its groups in two places, and its lookups ask for them as well.
            if id(relation) not in change.groups:
                change.groups[id(relation)] = spans(change)
            return change.groups[id(relation)]

        return evaluate

    def _join(self, relation: r.Join) -> Evaluate:
        left, right, lefts, rights = self._sides(relation)
        added = _cut(relation.right, r.columns_of(relation)[len(r.columns_of(relation.left)) :])

        def evaluate(change: Change) -> Iterator[Tuple]:
            matches: dict[Any, list[Tuple]] = {}
            for row in right(change):
                matches.setdefault(rights(row), []).append(added(row))
            if matches:
                for row in left(change):
                    for more in matches.get(lefts(row), ()):
                        yield row + more

        return evaluate

    def _filtered(self, relation: r.Semi | r.Anti) -> Evaluate:
        """The left side is held, the right side streams: it is the larger one if anything is large."""
        left, right, lefts, rights = self._sides(relation)
        is_semi = isinstance(relation, r.Semi)

        def evaluate(change: Change) -> list[Tuple]:
            held = list(left(change))
            if not held:
                return held
            found = set(map(lefts, held)).intersection(map(rights, right(change)))
            return [row for row in held if (lefts(row) in found) is is_semi]

        return evaluate

    def _counted(self, relation: r.Counted) -> Evaluate:
        left, right, lefts, rights = self._sides(relation)

        def evaluate(change: Change) -> Iterator[Tuple]:
            counts = Counter(map(rights, right(change)))
            return ((*row, counts[lefts(row)]) for row in left(change))

        return evaluate

    def _sides(self, relation: r.Join | r.Semi | r.Anti | r.Counted) -> tuple[Evaluate, Evaluate, _Key, _Key]:
        lefts, rights = zip(*relation.on, strict=True)
        keys = self._key(relation.left, lefts), self._key(relation.right, rights)
        return self.of(relation.left), self.of(relation.right), *keys

    def _key(self, relation: r.Relation, columns: Sequence[str]) -> _Key:
        """What is compared: values that are equal in the sense of the schema are equal in the sense of Python."""
        cut: _Key = itemgetter(*(_place(relation, column) for column in columns))
        same = [self._same.get(column, _as_it_is) for column in columns]
        if all(one is _as_it_is for one in same):
            return cut
        if len(same) == 1:
            return lambda row: same[0](cut(row))
        return lambda row: tuple(one(value) for one, value in zip(same, cut(row), strict=True))


def _as_it_is(value: Any) -> Any:
    return value


def _same_text(text_of: Callable[[Any], str], value: Any) -> str | None:
    return None if value is None else text_of(value)


def _condition(relation: r.NotNull | r.Differ | r.Outside) -> Callable[[Tuple], bool]:
    match relation:
        case r.NotNull():
            places = [_place(relation.input, column) for column in relation.columns]
            return lambda row: all(row[place] is not None for place in places)
        case r.Differ():
            left, right = _place(relation.input, relation.left), _place(relation.input, relation.right)
            return lambda row: row[left] != row[right]
        case r.Outside():
            at, low, high = _place(relation.input, relation.column), relation.low, relation.high
            return lambda row: row[at] < low or (high is not None and row[at] > high)


def _cut(relation: r.Relation, columns: Sequence[str]) -> Callable[[Tuple], Tuple]:
    places = [_place(relation, column) for column in columns]
    if len(places) == 1:
        (place,) = places
        return lambda row: (row[place],)
    return itemgetter(*places)


def _place(relation: r.Relation, column: str) -> int:
    return r.columns_of(relation).index(column)
