"""Golden files of the schema language: what compiles to what, what is refused how, which change has which plan.

OMNIGRAPH_GOLDEN=update writes the expected files anew. S95–S107, S113.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.format import format_schema
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.problems import CODES, SchemaError
from tests.schema.helpers import agrees, compact, compile_text, counter

GOLDEN = Path(__file__).parent / "golden"
ACCEPTED = sorted((GOLDEN / "accepted").glob("*.pg"))
REFUSED = sorted((GOLDEN / "refused").glob("*.pg"))
PLANS = sorted((GOLDEN / "plans").glob("*.old.pg"))


def name_of(path: Path) -> str:
    return path.name.split(".")[0]


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", ACCEPTED, ids=name_of)
def test_accepted(path: Path) -> None:
    source = read(path)
    catalog = compile_text(source)
    assert agrees(path.with_suffix(".json"), pretty(compact(catalog)))
    assert catalog.source == source
    assert Catalog.decode(catalog.encode()) == catalog
    assert compile_text(source, previous=catalog, start=900).types == catalog.types
    assert plan_change(catalog, compile_text(source, previous=catalog, start=900)).steps == ()


@pytest.mark.parametrize("path", ACCEPTED, ids=name_of)
def test_accepted_is_the_same_after_formatting(path: Path) -> None:
    source = read(path)
    formatted = format_schema(source)
    assert format_schema(formatted) == formatted
    assert compile_text(formatted).types == compile_text(source).types


@pytest.mark.parametrize("path", REFUSED, ids=name_of)
def test_refused(path: Path) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_refused(path)
    assert agrees(path.with_suffix(".txt"), caught.value.message + "\n")
    assert all(diagnostic.code in CODES for diagnostic in caught.value.diagnostics)


def compile_refused(path: Path) -> Catalog:
    """A refused schema; `<name>.previous` beside it is the schema that it would replace."""
    before = path.with_suffix(".previous")
    previous = compile_text(read(before)) if before.exists() else None
    return compile_schema(read(path), file=path.name, previous=previous, mint=counter(900))


@pytest.mark.parametrize("path", PLANS, ids=name_of)
def test_plan(path: Path) -> None:
    old = compile_text(read(path))
    new = compile_text(read(path.with_name(f"{name_of(path)}.new.pg")), previous=old, start=101)
    plan = plan_change(old, new)
    assert agrees(path.with_name(f"{name_of(path)}.json"), pretty(plan.to_json()))
    assert plan.supported == (not plan.reasons)
    again = compile_text(new.source, previous=new, start=901)
    assert plan_change(new, again).steps == ()


def test_there_are_enough_golden_files_and_every_code_has_one() -> None:
    assert len(ACCEPTED) >= 60
    assert len(REFUSED) >= 60
    assert len(PLANS) >= 40
    messages = "".join(read(path.with_suffix(".txt")) for path in REFUSED)
    assert [code for code in CODES if code not in messages] == []


def test_the_reference_lists_every_code() -> None:
    reference = read(Path(__file__).parents[2] / "docs" / "reference" / "schema.md")
    assert [code for code, meaning in CODES.items() if f"| {code} | {meaning} |" not in reference] == []


def test_the_example_of_the_reference_compiles() -> None:
    reference = read(Path(__file__).parents[2] / "docs" / "reference" / "schema.md")
    example = reference.split("```\n")[1]
    assert len(compile_text(example).types) == 4
    assert format_schema(example) == example
