"""Random queries of the forms that have ways of their own: trees of hops that are counted, and lookups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.query.run.generate import Draw, GeneratedType, GeneratedWorld, QueryMaker


@dataclass
class TreeMaker(QueryMaker):
    """Every hop leads to a new variable, and the rows are grouped."""

    always_grouped: bool = True

    def block(
        self, bound: dict[str, GeneratedType], outer: dict[str, GeneratedType], depth: int
    ) -> tuple[list[str], dict[str, GeneratedType]]:
        clauses = [self.binding(bound)]
        clauses += [clause for _ in range(self.draw(st.integers(0, 3))) for clause in self.branch(bound)]
        for _ in range(self.draw(st.integers(0, 2))):
            var, type_ = self.one_of(sorted(bound.items(), key=lambda pair: pair[0]))
            clauses.append(self.simple(var, type_))
        if self.chance(3):
            inside: dict[str, GeneratedType] = {}
            inner = self.branch(inside, bound)
            if inner:
                ((var, type_),) = inside.items()
                inner += [self.simple(var, type_)] if self.chance(2) else []
                clauses.append(f"not {{ {' '.join(inner)} }}")
        return clauses, {}

    def branch(
        self, bound: dict[str, GeneratedType], start_variables: dict[str, GeneratedType] | None = None
    ) -> list[str]:
        """A hop from one of the start variables, by default those bound here, to a new variable."""
        start_variables = bound if start_variables is None else start_variables
        starts = [
            (var, edge, at_source)
            for var, type_ in sorted(start_variables.items(), key=lambda pair: pair[0])
            for edge in self.world.edges
            for at_source, end in ((True, edge.source), (False, edge.target))
            if end == type_.name
        ]
        if not starts:
            return []
        var, edge, at_source = self.one_of(starts)
        new = self.fresh("v")
        bound[new] = next(node for node in self.world.nodes if node.name == (edge.target if at_source else edge.source))
        word = f"<{edge.word}>" if edge.source == edge.target and self.chance(4) else edge.word
        return [f"${var} {word} ${new}" if at_source else f"${new} {word} ${var}"]


@dataclass
class LookupMaker(TreeMaker):
    """One row by its id or key, perhaps with its neighbours over one hop; or a few rows of a type, or their number."""

    always_grouped: bool = False

    def block(
        self, bound: dict[str, GeneratedType], outer: dict[str, GeneratedType], depth: int
    ) -> tuple[list[str], dict[str, GeneratedType]]:
        clauses = [self.binding(bound)]
        ((var, type_),) = bound.items()
        if self.chance(2):
            column = type_.key if type_.key and self.chance(2) else "id"
            clauses.append(f'${var}.{column} = "n{self.draw(st.integers(0, 4))}"')
        if self.chance(2):
            clauses += self.branch(bound)
        return clauses, {}


@st.composite
def tree_queries(draw: Draw, world: GeneratedWorld) -> tuple[str, dict[str, Any]]:
    return TreeMaker(draw, world).query()


@st.composite
def lookup_queries(draw: Draw, world: GeneratedWorld) -> tuple[str, dict[str, Any]]:
    return LookupMaker(draw, world).query()
