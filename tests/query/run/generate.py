"""Random schemas, graphs and queries, small enough for the interpreter and full of coincidences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]

BIG = 2**53
TEXTS = ["", "a", "b", "ab", "a b", "b a c", "A-b", "é ß", "abc abd"]
VALUES: dict[str, list[Any]] = {
    "String": TEXTS,
    "Bool": [True, False],
    "I32": [0, 1, 2, -1, 2**31 - 1],
    "I64": [0, 1, BIG, BIG + 1, -(2**63), 2**63 - 1],
    "U32": [0, 1, 2**32 - 1],
    "U64": [0, 1, BIG + 1, 2**64 - 1],
    "F32": [0.0, 0.5, -2.5, 1.0],
    "F64": [0.0, -0.0, 0.5, 1.0, float(BIG), float("nan"), float("inf")],
    "Date": ["2026-01-31", "0001-01-01", "9999-12-31"],
    "DateTime": ["2026-03-01T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"],
    "enum(x, y)": ["x", "y"],
    "[String]": [[], ["a"], ["a", "b"], ["b", "a"]],
    "[I64]": [[], [1], [1, BIG + 1], [0, 1]],
    "[F64]": [[], [1.0], [float(BIG), 0.5]],
    "Vector(2)": [[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [0.0, 0.0]],
}
KINDS = list(VALUES)
NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")
#: Sums of these stay exact and inside their type.
SUMMABLE = ("I32", "U32", "F32")
ORDERED = (*NUMBERS, "String", "Date", "DateTime")


@dataclass(frozen=True)
class GeneratedKind:
    """A property of the schema."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class GeneratedType:
    """A node type, or an edge type with its ends."""

    name: str
    properties: tuple[GeneratedKind, ...]
    key: str | None = None
    source: str | None = None
    target: str | None = None

    @property
    def readable(self) -> tuple[GeneratedKind, ...]:
        """Properties and the built-in columns."""
        system = ("id",) if self.source is None else ("id", "src", "dst")
        return (*self.properties, *(GeneratedKind(name, "String", False) for name in system))

    @property
    def word(self) -> str:
        return self.name[0].lower() + self.name[1:]

    def text(self) -> str:
        lines = [
            f"  {prop.name}: {prop.type}{'?' if prop.nullable else ''}{' @key' if prop.name == self.key else ''}"
            for prop in self.properties
        ]
        head = f"edge {self.name}: {self.source} -> {self.target}" if self.source else f"node {self.name}"
        return "\n".join([head + " {", *lines, "}"])


@dataclass(frozen=True)
class GeneratedWorld:
    """A schema and its content, each row with a place in storage."""

    types: tuple[GeneratedType, ...]
    content: dict[str, list[dict[str, Any]]]

    @property
    def schema(self) -> str:
        return "\n".join(type_def.text() for type_def in self.types)

    @property
    def nodes(self) -> list[GeneratedType]:
        return [type_def for type_def in self.types if type_def.source is None]

    @property
    def edges(self) -> list[GeneratedType]:
        return [type_def for type_def in self.types if type_def.source is not None]


@st.composite
def worlds(draw: Draw) -> GeneratedWorld:
    nodes = [_node(draw, name) for name in ("Ant", "Bee")[: draw(st.integers(1, 2))]]
    names = [node.name for node in nodes]
    edges = [
        GeneratedType(name, _properties(draw, 2), None, draw(st.sampled_from(names)), draw(st.sampled_from(names)))
        for name in ("Likes", "Has", "Near")[: draw(st.integers(1, 3))]
    ]
    content: dict[str, list[dict[str, Any]]] = {}
    for node in nodes:
        content[node.name] = [_row(draw, node, number) for number in range(draw(st.integers(0, 4)))]
    for node in edges:
        sources, targets = content[node.source or ""], content[node.target or ""]
        alive = [[row for row in rows if not row["_ghost"]] for rows in (sources, targets)]
        count = draw(st.integers(0, 6)) if all(alive) else 0
        content[node.name] = []
        for number in range(count):
            row = _row(draw, node, number, prefix=node.word)
            row["from"], row["to"] = draw(st.sampled_from(alive[0]))["id"], draw(st.sampled_from(alive[1]))["id"]
            content[node.name].append(row)
    return GeneratedWorld((*nodes, *edges), content)


def _node(draw: Draw, name: str) -> GeneratedType:
    properties = _properties(draw, 4)
    return GeneratedType(
        name, (GeneratedKind("name", "String", False), *properties), "name" if draw(st.booleans()) else None
    )


def _properties(draw: Draw, most: int) -> tuple[GeneratedKind, ...]:
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=most))
    return tuple(GeneratedKind(f"p{at}", kind, draw(st.booleans())) for at, kind in enumerate(kinds))


def _row(draw: Draw, entity_type: GeneratedType, number: int, prefix: str = "n") -> dict[str, Any]:
    row: dict[str, Any] = {"id": f"{prefix}{number}"}
    for prop in entity_type.properties:
        missing = prop.nullable and draw(st.integers(0, 2)) == 0
        row[prop.name] = None if missing else draw(st.sampled_from(VALUES[prop.type]))
    if entity_type.source is None:
        # The text repeats between rows unless it is the key.
        row["name"] = f"n{number}" if entity_type.key else draw(st.sampled_from(TEXTS))
    row["_at"] = draw(st.sampled_from(("indexed", "plain", "overlay")))
    row["_was"] = draw(st.booleans())
    row["_ghost"] = draw(st.integers(0, 9)) == 0
    return row


# ---- queries ---------------------------------------------------------------------------------------------------------


@dataclass
class QueryMaker:
    """One query, drawn piece by piece."""

    draw: Draw
    world: GeneratedWorld
    budget: int = 4  # node variables, inner blocks included
    seen: int = 0
    params: dict[str, tuple[str, Any]] = field(default_factory=dict)
    needs_limit: bool = False
    grouped: bool = False
    distinct: bool = False
    always_grouped: bool = False

    def one_of(self, items: Sequence[T]) -> T:
        return self.draw(st.sampled_from(list(items)))  # type: ignore[no-any-return]

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == 1)

    def query(self) -> tuple[str, dict[str, Any]]:
        scope: dict[str, GeneratedType] = {}
        clauses, lent = self.block(scope, {}, 0)
        visible = {**scope, **lent}
        columns, column_names = self.columns(visible)
        body = "match {\n    " + "\n    ".join(clauses) + "\n  }\n  return { " + ", ".join(columns) + " }"
        body += self.order(visible, column_names) + self.window()
        head = ", ".join(f"${name}: {type_}" for name, (type_, _) in self.params.items())
        return f"query q({head}) {{\n  {body}\n}}", {name: value for name, (_, value) in self.params.items()}

    # ---- clauses -----------------------------------------------------------------------------------------------------

    def block(
        self, bound: dict[str, GeneratedType], outer: dict[str, GeneratedType], depth: int
    ) -> tuple[list[str], dict[str, GeneratedType]]:
        """Clauses of one scope; fills `own` with what it binds. Returns what optional blocks lend."""
        clauses: list[str] = []
        if not outer or self.chance(3):
            clauses.append(self.binding(bound))
        for _ in range(self.draw(st.integers(0 if clauses else 1, 2))):
            clauses += self.hop(bound, outer)
        lent: dict[str, GeneratedType] = {}
        if depth < 2 and self.budget > 0:
            for word in ("optional", "not"):
                if self.chance(3 if depth == 0 else 4):
                    clauses += self.inner(word, bound, outer, lent, depth)
        visible = {**outer, **bound, **lent}
        for _ in range(self.draw(st.integers(0, 2))):
            if visible:
                clauses.append(self.filter(visible))
        return clauses, lent

    def inner(
        self,
        word: str,
        bound: dict[str, GeneratedType],
        outer: dict[str, GeneratedType],
        lent: dict[str, GeneratedType],
        depth: int,
    ) -> list[str]:
        around = {**outer, **bound, **(lent if word == "not" else {})}
        nodes = {name: type_ for name, type_ in around.items() if type_.source is None}
        if not nodes:
            return []
        inside: dict[str, GeneratedType] = {}
        clauses, deeper = self.block(inside, around, depth + 1)
        # A block must look outside at least once.
        var, type_ = self.one_of(sorted(nodes.items(), key=lambda pair: pair[0]))
        clauses.append(self.condition(var, type_))
        if word == "optional":
            lent.update({**inside, **deeper})
        return [f"{word} {{ {' '.join(clauses)} }}"]

    def fresh(self, letter: str) -> str:
        self.seen += 1
        return f"{letter}{self.seen}"

    def binding(self, bound: dict[str, GeneratedType]) -> str:
        type_ = self.one_of(self.world.nodes)
        var = self.fresh("v")
        bound[var] = type_
        self.budget -= 1
        inline = ""
        if self.chance(4):
            prop = self.one_of([*type_.properties])
            if prop.type != "Vector(2)":
                inner = prop.type.strip("[]")
                inline = f" {{ {prop.name}: {self.value(inner)} }}"
        return f"${var}: {type_.name}{inline}"

    def hop(self, bound: dict[str, GeneratedType], outer: dict[str, GeneratedType]) -> list[str]:
        edge = self.one_of(self.world.edges)
        ends = []
        for name in (edge.source, edge.target):
            node = next(type_ for type_ in self.world.nodes if type_.name == name)
            candidates = [var for var, type_ in {**outer, **bound}.items() if type_ == node]
            if candidates and (self.budget <= 0 or not self.chance(3)):
                ends.append(self.one_of(candidates))
            elif self.budget > 0:
                var = self.fresh("v")
                bound[var] = node
                self.budget -= 1
                ends.append(var)
            else:
                return []
        loop = edge.source == edge.target
        word, bounds, var_text = edge.word, "", ""
        if loop and self.chance(4):
            word = f"<{edge.word}>"
        if loop and self.chance(4):
            low = self.draw(st.integers(1, 3))
            high = self.one_of([str(low), str(low + 1), ""])
            bounds = f"{{{low},{high}}}"
        elif self.chance(3):
            var = self.fresh("e")
            bound[var] = edge
            var_text = f"${var}: "
        left, right = ends if loop or self.chance(2) else ends[::-1]
        return [f"${left} {var_text}{word}{bounds} ${right}"]

    # ---- conditions --------------------------------------------------------------------------------------------------

    def filter(self, visible: dict[str, GeneratedType]) -> str:
        var, type_ = self.one_of(sorted(visible.items(), key=lambda pair: pair[0]))
        if self.chance(5):
            twins = [second_var for second_var, kind in visible.items() if kind == type_ and second_var != var]
            if twins:
                return f"${var} {self.one_of(['=', '!='])} ${self.one_of(twins)}"
        if self.chance(5):
            parts = [self.simple(var, type_) for _ in range(2)]
            return f"({parts[0]} or {parts[1]})"
        if self.chance(5):
            text_filter = self.text_call(var, type_)
            if text_filter is not None:
                return text_filter
        if self.chance(4):
            crossed = self.cross_comparison(var, type_, visible)
            if crossed is not None:
                return crossed
        return self.simple(var, type_)

    def condition(self, var: str, entity_type: GeneratedType) -> str:
        return self.simple(var, entity_type)

    def simple(self, var: str, entity_type: GeneratedType) -> str:
        prop = self.one_of(entity_type.readable)
        column = f"${var}.{prop.name}"
        if prop.type == "Vector(2)" or self.chance(4):
            return f"{column} is {self.one_of(['', 'not '])}null"
        if prop.type.startswith("["):
            inner = prop.type.strip("[]")
            if self.chance(3):
                return f"{column} {self.one_of(['=', '!='])} {self.value(prop.type)}"
            return f"{column} contains {self.value(inner)}"
        if prop.type == "String" and self.chance(3):
            return f"{column} {self.one_of(['contains', 'starts_with'])} {self.value('String')}"
        if self.chance(4):
            items = [self.literal(prop.type) for _ in range(self.draw(st.integers(1, 2)))]
            return f"{column} in [{', '.join(items)}]"
        ops = ["=", "!="] if prop.type in ("Bool", "enum(x, y)") else ["=", "!=", "<", "<=", ">", ">="]
        kind = self.one_of(NUMBERS) if prop.type in NUMBERS and self.chance(2) else prop.type
        return f"{column} {self.one_of(ops)} {self.value(kind)}"

    def cross_comparison(self, var: str, entity_type: GeneratedType, visible: dict[str, GeneratedType]) -> str | None:
        """A comparison between columns, of different types if they are numbers."""
        family = dict.fromkeys(NUMBERS, "number") | {kind: kind for kind in ("String", "Date", "DateTime")}
        pairs = [
            (prop, second_var, second_prop)
            for prop in entity_type.properties
            for second_var, kind in visible.items()
            for second_prop in kind.properties
            if prop.type in family and family[prop.type] == family.get(second_prop.type)
        ]
        if not pairs:
            return None
        prop, second_var, second_prop = self.one_of(pairs)
        return f"${var}.{prop.name} {self.one_of(['=', '!=', '<', '<=', '>', '>='])} ${second_var}.{second_prop.name}"

    def text_call(self, var: str, entity_type: GeneratedType) -> str | None:
        texts = [prop for prop in entity_type.properties if prop.type == "String"]
        if not texts:
            return None
        prop = self.one_of(texts)
        name = self.one_of(["search", "match_text", "fuzzy"])
        edits = f", {self.draw(st.integers(0, 2))}" if name == "fuzzy" else ""
        return f"{name}(${var}.{prop.name}, {self.value('String')}{edits})"

    # ---- values ------------------------------------------------------------------------------------------------------

    def value(self, kind: str) -> str:
        """A literal, or a parameter with that value."""
        if kind.startswith("enum") or not self.chance(3):
            return self.literal(kind)
        name = f"x{len(self.params)}"
        nullable = self.chance(6)
        value = None if nullable and self.chance(2) else self.one_of(VALUES[kind])
        if kind == "F64" and value is not None:
            value = self.finite()
        self.params[name] = (f"{kind}{'?' if nullable else ''}", value)
        return f"${name}"

    def finite(self) -> float:
        return self.one_of([0.0, -0.0, 0.5, 1.0, float(BIG)])

    def literal(self, kind: str) -> str:
        if kind.startswith("["):
            items = self.one_of(VALUES[kind])
            return f"[{', '.join(_literal_text(item) for item in items)}]"
        if kind == "F64":
            return _literal_text(self.finite())
        if kind in ("Date", "DateTime") and self.chance(2):
            return f'{kind.lower()}("{self.one_of(VALUES[kind])}")'
        return _literal_text(self.one_of(VALUES[kind]))

    # ---- results -----------------------------------------------------------------------------------------------------

    def columns(self, visible: dict[str, GeneratedType]) -> tuple[list[str], list[str]]:
        """Columns, and the names of those that have an order."""
        columns, names = [], []
        grouped = self.always_grouped or self.chance(3)
        count = self.draw(st.integers(1, 3))
        distinct = "distinct " if not grouped and self.chance(4) else ""
        self.grouped, self.distinct = grouped, bool(distinct)
        for at in range(count):
            if grouped and (at == 0 or self.chance(2)):
                columns.append(f"{self.aggregate(visible)} as c{at}")
                names.append(f"c{at}")
                continue
            var, type_ = self.one_of(sorted(visible.items(), key=lambda pair: pair[0]))
            if self.chance(4):
                columns.append(f"{distinct}${var} as c{at}")
                continue
            prop = self.one_of(type_.readable)
            columns.append(f"{distinct}${var}.{prop.name} as c{at}")
            if prop.type in ORDERED or prop.type == "Bool":
                names.append(f"c{at}")
        if not grouped and not distinct and self.chance(4):
            rank = self.rank(visible)
            if rank is not None:
                columns.append(f"{rank} as rank")
                names.append("rank")
        return columns, names

    def aggregate(self, visible: dict[str, GeneratedType]) -> str:
        var, type_ = self.one_of(sorted(visible.items(), key=lambda pair: pair[0]))
        ordered = [prop for prop in type_.properties if prop.type in ORDERED]
        summable = [prop for prop in type_.properties if prop.type in SUMMABLE]
        countable = [prop for prop in type_.properties if prop.type[0] not in "[V"]
        choices = [f"count(${var})", f"count(distinct ${var})"]
        choices += [f"count({self.one_of(['', 'distinct '])}${var}.{prop.name})" for prop in countable]
        choices += [f"{self.one_of(['min', 'max'])}(${var}.{prop.name})" for prop in ordered]
        choices += [f"{self.one_of(['sum', 'avg'])}(${var}.{prop.name})" for prop in summable]
        return self.one_of(choices)

    def rank(self, visible: dict[str, GeneratedType]) -> str | None:
        texts = [(var, prop) for var, type_ in visible.items() for prop in type_.properties if prop.type == "String"]
        vectors = [
            (var, prop) for var, type_ in visible.items() for prop in type_.properties if prop.type == "Vector(2)"
        ]
        ranks = [f'bm25(${var}.{prop.name}, "a b")' for var, prop in texts]
        near = [f"nearest(${var}.{prop.name}, [1, 2])" for var, prop in vectors]
        if ranks and near and self.chance(2):
            self.needs_limit = True
            return f"rrf({self.one_of(ranks)}, {self.one_of(near)})"
        if near and (not ranks or self.chance(2)):
            self.needs_limit = True
            return self.one_of(near)
        return self.one_of(ranks) if ranks else None

    def order(self, visible: dict[str, GeneratedType], names: list[str]) -> str:
        if not self.chance(2):
            return ""
        keys = [name if name == "rank" else f"{name}{self.one_of(['', ' asc', ' desc'])}" for name in names[:2]]
        if not self.grouped and not self.distinct and self.chance(2):
            var, type_ = self.one_of(sorted(visible.items(), key=lambda pair: pair[0]))
            ordered = [prop for prop in type_.properties if prop.type in ORDERED]
            if ordered:
                keys.insert(0, f"${var}.{self.one_of(ordered).name} {self.one_of(['asc', 'desc'])}")
        return f"\n  order {{ {', '.join(keys)} }}" if keys else ""

    def window(self) -> str:
        text = ""
        if self.needs_limit or self.chance(4):
            text += f"\n  limit {self.draw(st.integers(0, 5))}"
        if self.chance(6):
            text += f"\n  offset {self.draw(st.integers(0, 2))}"
        return text


def _literal_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value)


@st.composite
def queries(draw: Draw, world: GeneratedWorld) -> tuple[str, dict[str, Any]]:
    """A query text and the values of its parameters. It may be refused by the checker."""
    return QueryMaker(draw, world).query()
