"""Random operations on few hot keys, as JSON, and their translation into statements of the engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omnigraph.query.language.statements import (
    And,
    Compare,
    Condition,
    Delete,
    InsertEdge,
    InsertNode,
    NullTest,
    Or,
    Statement,
    Update,
)

Json = dict[str, Any]

PEOPLE = [f"p{number}" for number in range(10)]
NOTES = [f"n{number}" for number in range(6)]
TASKS = [f"t{number}" for number in range(3)]
EMAILS = [f"e{number}@x" for number in range(6)]
_EDGES = ("Knows", "Likes", "Owns", "Needs")


def first_operation() -> list[Json]:
    """So that there is something to fight for from the beginning."""
    people = [_insert("Person", {"name": name, "age": 9 * position}) for position, name in enumerate(PEOPLE)]
    return [*people, *[_insert("Note", {"id": name, "tag": name, "size": 50}) for name in NOTES]]


class Dice:
    """One seeded source of operations. `tag` makes every keyless row recognisable."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def operation(self, tag: str) -> list[Json]:
        """One to four statements; now and then a large one that cannot ride in a record."""
        roll = self._chance.random()
        if roll < 0.04:
            return [self._person(f"{tag}.{number}") for number in range(40)]
        count = 1 if roll < 0.6 else self._chance.randint(2, 4)
        statements: list[Json] = []
        for number in range(count):
            statements += self._statement(f"{tag}.{number}")
        return statements

    def _statement(self, tag: str) -> list[Json]:
        makers: list[tuple[int, Callable[[], list[Json]]]] = [
            (26, lambda: [self._person()]),
            (8, lambda: [self._note(tag)]),
            (6, lambda: self._task(tag)),
            (20, lambda: [self._edge(self._chance.choice(_EDGES), tag)]),
            (10, lambda: [self._update("Person", self._by_name())]),
            (9, lambda: [self._update("Person", self._by_age())]),
            (
                4,
                lambda: [
                    {"do": "update", "type": "Knows", "values": {"since": self._number()}, "where": self._by_end()}
                ],
            ),
            (7, lambda: [_delete("Person", self._by_name())]),
            (4, lambda: [_delete("Person", self._rare_age())]),
            (4, lambda: [_delete("Note", {"name": "size", "op": ">", "value": self._number()})]),
            (5, lambda: [_delete(self._chance.choice(_EDGES), self._by_end())]),
            (2, lambda: self._again(tag)),
        ]
        weights = [weight for weight, _ in makers]
        [(_, make)] = self._chance.choices(makers, weights)
        return make()

    def _person(self, name: str | None = None) -> Json:
        values: Json = {"name": name or self._chance.choice(PEOPLE)}
        if self._chance.random() < 0.7:
            values["age"] = self._number()
        if name is None and self._chance.random() < 0.3:
            values["email"] = self._chance.choice([*EMAILS, None])
        return _insert("Person", values, strict=name is None and self._chance.random() < 0.25)

    def _note(self, tag: str) -> Json:
        chosen_id = {"id": self._chance.choice(NOTES)} if self._chance.random() < 0.6 else {}
        return _insert("Note", {"tag": tag, "size": self._number(), **chosen_id})

    def _task(self, tag: str) -> list[Json]:
        title = self._chance.choice(TASKS)
        if self._chance.random() < 0.3:
            return [_delete("Task", {"name": "title", "op": "=", "value": title})]
        needs = {**_insert("Needs", {"tag": tag}), "from": title, "to": self._chance.choice(PEOPLE)}
        return [_insert("Task", {"title": title}), needs]

    def _edge(self, name: str, tag: str) -> Json:
        source = self._chance.choice(TASKS if name == "Needs" else PEOPLE)
        target = self._chance.choice(NOTES if name == "Owns" else PEOPLE)
        values: Json = {"tag": tag}
        if name == "Knows" and self._chance.random() < 0.4:
            values |= {"id": f"k{self._chance.randrange(5)}", "since": self._number()}
        return {**_insert(name, values), "from": source, "to": target}

    def _update(self, name: str, where: Json) -> Json:
        values: Json = {"age": self._number()}
        if self._chance.random() < 0.25:
            values["email"] = self._chance.choice([*EMAILS, None])
        return {"do": "update", "type": name, "values": values, "where": where}

    def _again(self, tag: str) -> list[Json]:
        """A row that is removed and made, or made and removed, within one operation."""
        name = self._chance.choice(PEOPLE)
        delete = _delete("Person", {"name": "name", "op": "=", "value": name})
        insert = _insert("Person", {"name": name, "age": 95})
        if self._chance.random() < 0.5:
            return [delete, insert]
        return [insert, _delete("Person", {"name": "age", "op": ">", "value": 94}), self._note(tag)]

    def _by_name(self) -> Json:
        names = self._chance.sample(PEOPLE, self._chance.randint(1, 2))
        if len(names) == 1:
            return {"name": "name", "op": "=", "value": names[0]}
        return {"name": "name", "op": "in", "value": names}

    def _by_age(self) -> Json:
        low = self._number()
        where: Json = {"all": [_compare("age", ">", low), _compare("age", "<=", low + 15)]}
        return where if self._chance.random() < 0.8 else {"any": [where, {"null": "age"}]}

    def _rare_age(self) -> Json:
        low = self._number()
        return {"all": [_compare("age", ">=", low), _compare("age", "<", low + 4)]}

    def _by_end(self) -> Json:
        return _compare(self._chance.choice(["from", "to"]), "=", self._chance.choice(PEOPLE))

    def _number(self) -> int:
        return self._chance.randrange(100)


def _insert(name: str, values: Json, *, strict: bool = False) -> Json:
    return {"do": "insert", "type": name, "values": values, "strict": strict}


def _delete(name: str, where: Json) -> Json:
    return {"do": "delete", "type": name, "where": where}


def _compare(name: str, op: str, value: Any) -> Json:
    return {"name": name, "op": op, "value": value}


def to_statements(operation: Sequence[Json]) -> list[Statement]:
    return [_to_statement(statement) for statement in operation]


def _to_statement(statement: Mapping[str, Any]) -> Statement:
    if statement["do"] == "update":
        return Update(statement["type"], statement["values"], to_condition(statement["where"]))
    if statement["do"] == "delete":
        return Delete(statement["type"], to_condition(statement["where"]))
    if "from" in statement:
        return InsertEdge(
            statement["type"], statement["from"], statement["to"], statement["values"], statement["strict"]
        )
    return InsertNode(statement["type"], statement["values"], statement["strict"])


def to_condition(where: Mapping[str, Any]) -> Condition:
    if "all" in where:
        return And(tuple(to_condition(part) for part in where["all"]))
    if "any" in where:
        return Or(tuple(to_condition(part) for part in where["any"]))
    if "null" in where:
        return NullTest(where["null"], where.get("negated", False))
    return Compare(where["name"], where["op"], where["value"])
