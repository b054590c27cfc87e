"""What a relation must know about committed rows, as lookups by key: so a small change never scans a table.

A join hands the keys of one side to the other. Every `kept` image of a rule stands on the receiving side of some join
whose other side is made of the change alone, so its keys are known before anything is read, and all lookups of all
rules can run at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.constraints.relations import (
    Anti,
    Counted,
    Differ,
    Join,
    NotNull,
    Outside,
    Pick,
    Relation,
    Rows,
    Semi,
    Span,
    Tagged,
    Tally,
    Union,
    inputs_of,
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows of `image` that can matter have a value of `key` in `column`. `key` is a column of `keys`."""

    image: Rows
    column: str
    keys: Relation
    key: str


@dataclass(frozen=True, slots=True)
class _Keys:
    column: str
    keys: Relation
    key: str


def lookups_of(relation: Relation) -> tuple[Lookup, ...]:
    """One lookup for every `kept` image in the relation, with keys that come from the change alone."""
    return tuple(_reach(relation, None))


def _reach(relation: Relation, known: _Keys | None) -> Iterator[Lookup]:
    """`known`: only rows whose column is among these keys matter to whoever reads the relation."""
    match relation:
        case Rows():
            if relation.image == "kept":
                assert known is not None, f"{relation} would be read as a whole"
                yield Lookup(relation, known.column, known.keys, known.key)
        case Pick():
            source = dict(relation.names)
            yield from _reach(relation.input, _Keys(source[known.column], known.keys, known.key) if known else None)
        case Union():
            for one in relation.inputs:
                yield from _reach(one, known)
        case Semi() if known is None and _holds_kept(relation.left) and not _holds_kept(relation.right):
            (left, right), *_ = relation.on
            yield from _reach(relation.left, _Keys(left, relation.right, right))
        case Join() | Semi() | Anti() | Counted():
            (left, right), *_ = relation.on
            yield from _reach(relation.left, known)
            if _holds_kept(relation.right):
                yield from _reach(relation.right, _Keys(right, _from_change(relation.left), left))
        case Span() | Tally():
            # A group is complete if all rows with its key are read, so keys must be part of what makes the group.
            yield from _reach(relation.input, known if known and known.column in relation.by else None)
        case _:
            yield from _reach(relation.input, known)


def _from_change(relation: Relation) -> Relation:
    """A relation without committed rows that holds at least the keys of this one."""
    if not _holds_kept(relation):
        return relation
    match relation:
        case Semi() if not _holds_kept(relation.right):
            return Pick(relation.right, relation.on)
        case Semi() | Anti() | Counted():
            return _from_change(relation.left)
        case NotNull() | Differ() | Outside() | Tagged():
            return _from_change(relation.input)
        case Pick():
            return Pick(_from_change(relation.input), relation.names)
    raise AssertionError(f"the keys of {relation} are not known before it is read")


def _holds_kept(relation: Relation) -> bool:
    if isinstance(relation, Rows):
        return relation.image == "kept"
    return any(_holds_kept(one) for one in inputs_of(relation))
