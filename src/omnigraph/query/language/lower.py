"""A checked mutation with its parameters becomes statements, the form that every way of writing shares."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from omnigraph.query.language import checked as c
from omnigraph.query.language import statements as s
from omnigraph.query.language.check_context import edge_word
from omnigraph.schema.catalog import Catalog


def lower(
    checked: c.CheckedQuery, bound: Mapping[str, Any], catalog: Catalog, *, now: datetime, strict: bool = False
) -> list[s.Statement]:
    """The statements of a mutation, in order. `bound` comes from `bind_params`; values are in stored form.

    `catalog` is the one the query was checked against. An edge type whose name is also a node type's is named
    lower-case-first, which is how the language tells them apart.
    """
    assert isinstance(checked.body, c.CheckedMutation), f"query `{checked.name}` is no mutation"
    run = _Run(bound, catalog, now, strict)
    return [run.statement(one) for one in checked.body.statements]


class _Run:
    """What all statements of one call share."""

    def __init__(self, bound: Mapping[str, Any], catalog: Catalog, now: datetime, strict: bool) -> None:
        self._bound, self._catalog, self._now, self._strict = bound, catalog, now, strict

    def statement(self, one: c.CheckedStatement) -> s.Statement:
        name = self._name(one.type)
        match one:
            case c.CheckedDelete():
                return s.Delete(name, self._condition(one.where))
            case c.CheckedUpdate():
                return s.Update(name, self._values(one.values), self._condition(one.where))
        if one.source is None or one.target is None:
            return s.InsertNode(name, self._values(one.values), self._strict)
        ends = self._value(one.source), self._value(one.target)
        return s.InsertEdge(name, *ends, self._values(one.values), self._strict)

    def _name(self, type_: c.EntityType) -> str:
        shadowed = type_.kind == "edge" and self._catalog.node(type_.name) is not None
        return edge_word(type_.name) if shadowed else type_.name

    def _values(self, values: tuple[c.Assignment, ...]) -> dict[str, Any]:
        return {one.name: self._value(one.value) for one in values}

    def _value(self, value: c.Expr) -> Any:
        match value:
            case c.Const():
                return list(value.value) if isinstance(value.value, tuple) else value.value
            case c.Param():
                return self._bound[value.slot]
            case c.Now():
                return self._now
            case c.ListOf():
                return [self._value(one) for one in value.items]
        raise AssertionError(f"{value} is no value of a mutation")

    def _condition(self, where: c.Predicate) -> s.Condition:
        match where:
            case c.AllOf(parts):
                return s.And(tuple(self._condition(one) for one in parts))
            case c.AnyOf(parts):
                return s.Or(tuple(self._condition(one) for one in parts))
            case c.CheckedNullTest(c.Prop() as column, negated):
                return s.NullTest(column.name, negated)
            case c.CheckedCompare(c.Prop() as column, op, right):
                return s.Compare(column.name, op, self._value(right))
        raise AssertionError(f"{where} is no condition of a mutation")
