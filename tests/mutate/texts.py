"""Operations of the oracle's model, written in the language: every value becomes a parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

Json = Mapping[str, Any]


@dataclass
class Text:
    """One query with its parameters."""

    strict: bool
    statements: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        declared = ", ".join(f"${name}: {type_}" for name, type_ in zip(self.params, self.types, strict=True))
        return f"query q({declared}) {{\n  " + "\n  ".join(self.statements) + "\n}"

    def add(self, statement: Json) -> None:
        name = statement["type"]
        if statement["do"] == "delete":
            self.statements.append(f"delete {name} where {self._where(statement['where'])}")
        elif statement["do"] == "update":
            values = self._values(statement["values"])
            self.statements.append(f"update {name} set {{ {values} }} where {self._where(statement['where'])}")
        else:
            ends = {end: statement[end] for end in ("from", "to") if end in statement}
            self.statements.append(f"insert {name} {{ {self._values({**ends, **statement['values']})} }}")

    def _values(self, values: Json) -> str:
        return ", ".join(f"{name}: {self._value(value)}" for name, value in values.items())

    def _value(self, value: Any) -> str:
        if value is None:
            return "null"
        item = value[0] if isinstance(value, list) else value
        scalar = "I32" if isinstance(item, int) else "String"
        name = f"p{len(self.params)}"
        self.params[name] = value
        self.types.append(f"[{scalar}]" if isinstance(value, list) else scalar)
        return f"${name}"

    def _where(self, where: Json) -> str:
        """`and` binds closer than `or`, so a disjunction of conjunctions needs no brackets."""
        if "any" in where:
            return " or ".join(self._where(part) for part in where["any"])
        if "all" in where:
            return " and ".join(self._where(part) for part in where["all"])
        if "null" in where:
            return f"{where['null']} is {'not ' if where.get('negated') else ''}null"
        return f"{where['name']} {where['op']} {self._value(where['value'])}"


def to_texts(operation: Sequence[Json]) -> Iterator[Text]:
    """As few queries as the language allows: inserts and updates apart from deletes, strict apart from lenient."""

    def sort(statement: Json) -> tuple[bool, bool]:
        return statement["do"] == "delete", statement.get("strict", False)

    for (_, strict), statements in groupby(operation, key=sort):
        text = Text(strict)
        for statement in statements:
            text.add(statement)
        yield text
