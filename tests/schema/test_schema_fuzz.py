"""Whatever the text: a catalog or one typed error, and formatting keeps the meaning."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.schema.catalog import Catalog
from omnigraph.schema.format import format_schema
from omnigraph.schema.parse import parse_schema
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.problems import CODES, Problems, SchemaError
from omnigraph.schema.syntax import SchemaSpan, SchemaTree
from tests.schema.helpers import compile_text
from tests.schema.strategies import VOCABULARY, schemas, sound_schemas

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def compile_or_refuse(source: str) -> Catalog | None:
    try:
        catalog = compile_text(source)
    except SchemaError as error:
        diagnostics = error.diagnostics
    else:
        assert Catalog.decode(catalog.encode()) == catalog
        return catalog
    assert diagnostics
    assert all(
        diagnostic.code in CODES and diagnostic.line >= 1 and diagnostic.column >= 1 for diagnostic in diagnostics
    )
    return None


def tree(source: str) -> SchemaTree:
    problems = Problems(source, "t.pg")
    schema = parse_schema(source, problems)
    problems.check()
    return schema


def shape(source: str) -> Any:
    return _placeless(tree(source).declarations)


def _placeless(value: Any) -> Any:
    """The tree with every place replaced by none."""
    if isinstance(value, SchemaSpan):
        return None
    if isinstance(value, tuple):
        return tuple(map(_placeless, value))
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(_placeless(getattr(value, field.name)) for field in fields(value)))
    return value


@RELAXED
@given(st.text(max_size=60))
def test_compiling_any_text_gives_a_catalog_or_a_schema_error(source: str) -> None:
    compile_or_refuse(source)


@RELAXED
@given(st.lists(st.sampled_from(VOCABULARY), max_size=25).map(" ".join))
def test_compiling_any_words_of_the_language_gives_a_catalog_or_a_schema_error(source: str) -> None:
    compile_or_refuse(source)


@RELAXED
@given(schemas())
def test_schemas_of_the_grammar_parse_and_formatting_keeps_them(source: str) -> None:
    before = shape(source)
    formatted = format_schema(source)
    assert shape(formatted) == before
    assert format_schema(formatted) == formatted
    assert [match.strip() for match in COMMENT.findall(formatted)] == [
        match.strip() for match in COMMENT.findall(source)
    ]
    catalog = compile_or_refuse(source)
    again = compile_or_refuse(formatted)
    assert (catalog and catalog.types) == (again and again.types)


@RELAXED
@given(schemas(), st.data())
def test_a_schema_with_a_hole_or_a_stray_character(source: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(source)))
    removed_chars = data.draw(st.integers(0, 3))
    extra = data.draw(st.sampled_from(["", "{", "}", '"', "/*", "@", ",", "?", "node ", "\x00", "é"]))
    compile_or_refuse(source[:at] + extra + source[at + removed_chars :])


@RELAXED
@given(sound_schemas(), sound_schemas())
def test_planning_any_change_leads_to_the_new_schema(first: str, second: str) -> None:
    old = compile_text(first)
    new = compile_text(second, previous=old, start=500)
    plan = plan_change(old, new)
    assert bool(plan.steps or plan.refusals) == (first != second)
    assert plan_change(new, compile_text(second, previous=new, start=900)).steps == ()
    dropped_ids = {type_def.id for type_def in old.types} - {type_def.id for type_def in new.types}
    assert {step.type_id for step in plan if step.step == "drop_type"} == dropped_ids
    for step in plan:
        assert step.to_json()["step"] == step.step
