"""Runs operations on a real graph and on the model at once, and compares every commit of every branch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.view import GraphView
from omnigraph.errors import ConstraintViolation
from omnigraph.query.language.statements import (
    Compare,
    Condition,
    Delete,
    InsertEdge,
    InsertNode,
    NullTest,
    Statement,
    Update,
)
from tests.mutate.schema_change.model import KINDS, PROPERTY_NAMES, Prop, State, TypeModel
from tests.mutate.schema_change.steps import Numbers, SchemaEdit
from tests.schedules.world import Actor, World

BRANCHES = ("main", "dev", "x/y")
KEYS = ("k0", "k1", "k2", "k3")
VIOLATED = "OG-MF-107"


class Chain:
    """One graph with up to three branches. Writers are processes of their own; some stage all that they write."""

    def __init__(self, path: Path, fold: str) -> None:
        first = State()
        start = TypeModel("Ant", [Prop("k", "String", nullable=False), Prop("p", "I32")])
        first.add(start)
        first.add(TypeModel("Eats", [Prop("q", "String")], start.number, start.number))
        self.world = World(path, first.text())
        self._fold = fold
        self._actors: dict[tuple[str, bool], Actor] = {}
        self.branch = "main"
        self.heads = {"main": first}
        self.history: list[tuple[str, State]] = [(self._actor(0).head.commit_id, first)]

    @property
    def head(self) -> State:
        return self.heads[self.branch]

    def close(self) -> None:
        self.world.close()

    def _actor(self, k: int) -> Actor:
        staged = k % 3 == 0
        key = (self.branch, staged)
        if key not in self._actors:
            config: dict[str, Any] = {"inline_share": 0} if staged else {}
            self._actors[key] = self.world.actor(branch=self.branch, fold=self._fold, **config)
        return self._actors[key]

    # --- operations ----------------------------------------------------------------------------------------------

    def insert(self, numbers: Numbers) -> None:
        i, j, k = numbers
        nodes = self.head.nodes
        if not nodes:
            return
        entity_type, key = nodes[i % len(nodes)], KEYS[j % len(KEYS)]
        values = self._values(entity_type, k)
        after = self.head.copy()
        _upsert(after, entity_type, key, values)
        values_by_name = {entity_type.props[0].name: key, **{prop.name: value for prop, value in values}}
        self._write(InsertNode(entity_type.name, values_by_name), after, k)

    def connect(self, numbers: Numbers) -> None:
        i, j, k = numbers
        edges = self.head.edges
        if not edges:
            return
        edge_type, row_id = edges[i % len(edges)], f"e{(i + j) % 5}"
        ends = {"from": KEYS[j % len(KEYS)], "to": KEYS[k % len(KEYS)]}
        values = self._values(edge_type, j)
        after = self.head.copy()
        _upsert(after, edge_type, row_id, values, ends)
        values_by_name = {"id": row_id, **{prop.name: value for prop, value in values}}
        self._write(InsertEdge(edge_type.name, ends["from"], ends["to"], values_by_name), after, k)

    def update(self, numbers: Numbers) -> None:
        i, j, k = numbers
        entity_type, prop = self._property(i, j)
        if prop is None:
            return
        where, matches = self._condition(entity_type, prop, k)
        value = [*prop.values, None][(j + k) % (len(prop.values) + 1)]
        after = self.head.copy()
        for row_id, row in after.rows[entity_type.number].items():
            if matches(row_id, row):
                row[prop.number] = value
        self._write(Update(entity_type.name, {prop.name: value}, where), after, k)

    def delete(self, numbers: Numbers) -> None:
        i, j, k = numbers
        entity_type, prop = self._property(i, j)
        where, matches = self._condition(entity_type, prop, k)
        after = self.head.copy()
        remaining = {row_id: row for row_id, row in after.rows[entity_type.number].items() if not matches(row_id, row)}
        after.rows[entity_type.number] = remaining
        after.without_edges_of_gone_nodes()
        self._write(Delete(entity_type.name, where), after, j)

    def fold(self, numbers: Numbers) -> None:
        self._actor(numbers[0]).graph.fold()
        self._note(self.head)

    def reopen(self, _numbers: Numbers) -> None:
        self._actors.clear()

    def fork(self, numbers: Numbers) -> None:
        """From the present branch, or go to another one."""
        free = [name for name in BRANCHES if name not in self.heads]
        if free and numbers[0] % 2:
            self._actor(numbers[1]).graph.branch.create(free[0])
            self.heads[free[0]] = self.head.copy()
            self.branch = free[0]
            self._note(self.head)
        else:
            self.branch = list(self.heads)[numbers[0] % len(self.heads)]

    def schema(self, steps: list[tuple[str, Numbers]]) -> None:
        """One apply of all the steps."""
        change = SchemaEdit(self.head)
        for name, numbers in steps:
            change.step(name, numbers)
        after, graph = change.state, self._actor(len(steps) + steps[0][1][0]).graph
        _fill(self.head, after)
        same = graph.schema.source
        text = after.text(self.head)
        assert graph.schema.plan(text).supported
        if not after.is_valid():
            with pytest.raises(ConstraintViolation) as refused:
                graph.schema.apply(text)
            assert refused.value.code == VIOLATED
            assert graph.schema.source == same
            self.head.text(self.head)  # the hints of the refused text are forgotten
            return
        receipt = graph.schema.apply(text)
        assert (receipt.commit_id is None) == (text == same)
        assert graph.schema.source == text
        self._check_landed(after)
        self.compare_all()

    def again(self, numbers: Numbers) -> None:
        """A property, or a whole type, goes and comes back under its name: it is another one."""
        i, j, k = numbers
        entity_type, prop = self._property(i, j)
        if k % 4 == 0 and (entity_type.is_edge or len(self.head.nodes) > 1):
            self.schema([("drop_type", numbers)])
            self.schema([("add_edge" if entity_type.is_edge else "add_node", numbers)])
        elif prop is not None:
            sibling_names = [sibling.name for sibling in entity_type.props if sibling is not prop]
            position = [name for name in PROPERTY_NAMES if name not in sibling_names].index(prop.name)
            self.schema([("drop_property", numbers)])
            self.schema([("add_property", (i, position, KINDS.index(prop.type)))])

    # --- the two sides -------------------------------------------------------------------------------------------

    def _write(self, statement: Statement, after: State, k: int) -> None:
        graph = self._actor(k).graph
        if after.is_valid():
            graph.apply([statement])
            self._check_landed(after)
            return
        with pytest.raises(ConstraintViolation):
            graph.apply([statement])

    def _check_landed(self, after: State) -> None:
        self.heads[self.branch] = after
        self._note(after)
        self._compare(self._actor(1).graph.view(), after)

    def _note(self, state: State) -> None:
        commit_id = self._actor(1).head.commit_id
        if not self.history or self.history[-1][0] != commit_id:
            self.history.append((commit_id, state.copy()))

    def compare_all(self, reader: Actor | None = None) -> None:
        """Every commit so far, under the names of its time and under those of now."""
        graph = (reader or self._actor(1)).graph
        for commit_id, state in self.history:
            view = graph.at(commit_id)
            self._compare(view, state)
            self._compare_by_names_of_now(view, state)

    @staticmethod
    def _compare(view: GraphView, state: State) -> None:
        assert sorted(type_def.name for type_def in view.catalog.types) == sorted(
            type_def.name for type_def in state.types.values()
        )
        contents = {name: view.table(name).to_arrow().to_pylist() for name in state.contents()}
        for name, expected in state.contents().items():
            assert {row["id"]: row for row in contents[name]} == expected, f"{view.commit_id} {name}"
            assert len(contents[name]) == len(expected) == view.table(name).count(), f"{view.commit_id} {name}"

    def _compare_by_names_of_now(self, view: GraphView, state: State) -> None:
        type_names = {type_def.name for type_def in state.types.values()}
        for now in self.head.types.values():
            then = state.types.get(now.number)
            if then is None or (now.name in type_names and now.name != then.name):
                continue
            names = {prop.name for prop in then.props}
            old = {prop.number: prop.name for prop in then.props}
            clear = [p for p in now.props if p.number in old and (p.name == old[p.number] or p.name not in names)]
            column_names = ["id", *(prop.name for prop in clear)]
            rows_by_id = {row["id"]: row for row in view.table(now.name).to_arrow(column_names).to_pylist()}
            type = TypeModel(now.name, clear, number=now.number)
            bare = TypeModel(then.name, then.props, number=then.number)
            assert rows_by_id == state.rows_under_names(bare, type), f"{view.commit_id} {now.name} by the names of now"

    # --- chance --------------------------------------------------------------------------------------------------

    @staticmethod
    def _values(entity_type: TypeModel, chance: int) -> list[tuple[Prop, Any]]:
        """Values for some of the properties; what is required is mostly given."""
        values = []
        for position, prop in enumerate(entity_type.props if entity_type.is_edge else entity_type.props[1:]):
            choice = (chance >> position) + position
            if choice % 3 or (not prop.nullable and chance % 7):
                values.append((prop, prop.values[choice % len(prop.values)]))
        return values

    def _property(self, i: int, j: int) -> tuple[TypeModel, Prop | None]:
        types = list(self.head.types.values())
        entity_type = types[i % len(types)]
        props = entity_type.props if entity_type.is_edge else entity_type.props[1:]
        return entity_type, props[j % len(props)] if props else None

    @staticmethod
    def _condition(entity_type: TypeModel, prop: Prop | None, k: int) -> tuple[Condition, Callable[[str, Any], bool]]:
        if prop is None or k % 3 == 0:
            wanted = f"e{k % 5}" if entity_type.is_edge else KEYS[k % len(KEYS)]
            return Compare("id", "=", wanted), lambda row_id, _: row_id == wanted
        number = prop.number
        if k % 3 == 1 or prop.type == "[I32]":
            return NullTest(prop.name), lambda _, row: row.get(number) is None
        value = prop.values[k % len(prop.values)]
        return Compare(prop.name, "=", value), lambda _, row: row.get(number) == value


def _upsert(
    state: State,
    entity_type: TypeModel,
    row_id: str,
    values: list[tuple[Prop, Any]],
    ends: dict[str, str] | None = None,
) -> None:
    rows = state.rows[entity_type.number]
    fresh = {prop.number: prop.default for prop in entity_type.props}
    if not entity_type.is_edge:
        fresh[entity_type.props[0].number] = row_id
    rows[row_id] = {**rows.get(row_id, fresh), **{prop.number: value for prop, value in values}, **(ends or {})}


def _fill(before: State, after: State) -> None:
    """What a change does to rows: required properties that are new get their default."""
    for type_def in after.types.values():
        old = before.types.get(type_def.number)
        known_numbers = {prop.number for prop in old.props} if old else set()
        for prop in type_def.props:
            if prop.number not in known_numbers and not prop.nullable:
                for row in after.rows[type_def.number].values():
                    row[prop.number] = prop.default
