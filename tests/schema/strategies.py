"""Schemas made from the grammar, right and nearly right, with arbitrary layout."""

from __future__ import annotations

from hypothesis import strategies as st

SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob"]
NAMES = ["a", "b", "c", "node", "edge", "_x", "camelCase", "enum", "id", "Bad"]
TYPES = ["A", "B", "C", "Person", "bad"]
VOCABULARY = [
    *SCALARS,
    *NAMES,
    *TYPES,
    *["{", "}", "(", ")", "[", "]", ":", ",", "=", "?", "@", "->", "..", "*", "-", ";", "%"],
    *["node A {", "edge E: A -> B", "interface I {", "implements", "interface", "Vector(3)", "enum(x, y)"],
    *['"text"', '"open', '"\\d"', "// line\n", "/* block */", "/* open", "1", "-2.5", "1e9", "1e999", "true", "null"],
    *["@key", "@unique(a)", "@index", "@range(a, 0..5)", '@check(a, "x+")', "@card(1..)", '@embed("a")', "@default(1)"],
]

spaces = st.sampled_from(
    [" ", " ", " ", "\n", "\n\n\n", "\t", " /* c */ ", " // c\n", "\n// own\n", "\n/* two\nlines */\n"]
)
names = st.sampled_from(NAMES[:8])
numbers = st.one_of(st.integers(-10, 1000).map(str), st.floats(-1e6, 1e6).map(repr))
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=8).map(
    lambda t: f'"{t}"'
)
values = st.one_of(texts, numbers, st.sampled_from(["true", "false", "null", "word", "[]", "[1, 2]", '["x"]']))
ranges = st.one_of(
    st.tuples(numbers, numbers).map("..".join), numbers.map(lambda n: f"{n}.."), numbers.map(lambda n: f"..{n}")
)
types = st.one_of(
    st.sampled_from(SCALARS),
    st.sampled_from(SCALARS).map(lambda one: f"[{one}]"),
    st.integers(0, 70000).map(lambda size: f"Vector({size})"),
    st.lists(st.sampled_from(["x", "y", "in-progress", "2d"]), min_size=1, max_size=3).map(
        lambda many: f"enum({', '.join(many)})"
    ),
)


def call(name: str, *arguments: str) -> str:
    return f"@{name}({', '.join(arguments)})"


marks = st.one_of(
    st.sampled_from(["@key", "@unique", "@index", "@beta", '@index(metric="l2")', "@called()"]),
    ranges.map(lambda one: call("range", one)),
    st.sampled_from(["a+", "^x", "(", "[a-z]{2}"]).map(lambda one: call("check", f'"{one}"')),
    values.map(lambda one: call("default", one)),
    texts.map(lambda one: call("description", one)),
    st.builds(lambda name, one: call("note", one, f"{name}={one}"), names, values),
    names.map(lambda one: call("rename_from", f'"{one}"')),
    names.map(lambda one: call("embed", f'"{one}"', 'model="m"')),
)
rules = st.one_of(
    st.builds(
        lambda rule, many: call(rule, *many),
        st.sampled_from(["key", "unique", "index"]),
        st.lists(names, min_size=1, max_size=3),
    ),
    st.builds(lambda name, one: call("range", name, one), names, ranges),
    names.map(lambda name: call("check", name, '"x+"')),
    st.just("@unique(src, dst)"),
)
properties = st.builds(
    lambda name, kind, optional, notes: " ".join([f"{name}: {kind}{optional}", *notes]),
    st.sampled_from(NAMES),
    types,
    st.sampled_from(["", "?"]),
    st.lists(marks, max_size=2),
)
bodies = st.lists(st.one_of(properties, properties, rules), max_size=5)
headers = st.lists(
    st.one_of(ranges.map(lambda one: call("card", one)), texts.map(lambda one: call("description", one)), rules),
    max_size=2,
)


@st.composite
def declarations(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["node", "node", "edge", "interface"]))
    name = draw(st.sampled_from(TYPES))
    body = ["{", *draw(bodies), "}"]
    if kind == "interface":
        return "\n".join([f"interface {name}", *body])
    notes = draw(headers)
    if kind == "node":
        implements = draw(st.sampled_from(["", "implements A", "implements A, B"]))
        return "\n".join([f"node {name}", *notes, implements, *body])
    ends = f"{draw(st.sampled_from(TYPES))} -> {draw(st.sampled_from(TYPES))}"
    return "\n".join([f"edge {name}: {ends}", *notes, *draw(st.sampled_from([[], body]))])


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """Text that always parses; whether it compiles is another matter. Line breaks become any layout."""
    text = "\n".join(draw(st.lists(declarations(), max_size=4)))
    return "".join(draw(spaces) if char == "\n" else char for char in text)


@st.composite
def sound_schemas(draw: st.DrawFn) -> str:
    """Schemas that compile: types A to D, properties p0 to p4, with rules that fit."""
    lines = []
    nodes = draw(st.lists(st.sampled_from("ABCD"), unique=True, min_size=1))
    for node in nodes:
        lines += [f"node {node} {{", *draw(sound_bodies()), "}"]
    for edge in draw(st.lists(st.sampled_from(["E", "F"]), unique=True)):
        card = draw(st.sampled_from(["", "@card(1..)", "@card(..3)", "@card(1..3)"]))
        ends = f"{draw(st.sampled_from(nodes))} -> {draw(st.sampled_from(nodes))}"
        lines += [f"edge {edge}: {ends} {card} {{", *draw(sound_bodies()), "}"]
    return "\n".join(lines)


@st.composite
def sound_bodies(draw: st.DrawFn) -> list[str]:
    body = []
    for name in draw(st.lists(st.sampled_from(["p0", "p1", "p2", "p3", "p4"]), unique=True)):
        kind = draw(
            st.sampled_from(["I32", "I64", "F32", "F64", "String", "enum(x)", "enum(x, y)", "[I32]", "Vector(2)"])
        )
        fits = ["", '@description("d")']
        if kind in ("I32", "I64", "F32", "F64"):
            fits += ["@range(0..5)", "@range(..9)", "@default(3)", "@unique", "@index"]
        if kind == "String":
            fits += ['@check("x")', '@check("y")', "@unique", "@index", '@default("xy")']
        body.append(f"{name}: {kind}{draw(st.sampled_from(['', '?']))} {draw(st.sampled_from(fits))}")
    return body
