"""Properties of the checker that single golden cases cannot show."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from omnigraph.errors import TypeCheckError
from omnigraph.query.language.check import check_query
from omnigraph.query.language.checked import STRING, CheckedCompare, CheckedQuery, CheckedRead, Const
from omnigraph.query.language.lint import lint
from omnigraph.query.language.parse import CODES, parse_queries
from omnigraph.schema.compile import compile_schema
from tests.query.language import support
from tests.query.language.show_checked import show

SOURCES = Path(support.__file__).parents[3] / "src" / "omnigraph" / "query" / "language"


def _check(source: str) -> CheckedQuery:
    return check_query(parse_queries(source)[0], support.catalog())


def _facts(checked: CheckedQuery) -> tuple[object, ...]:
    """What a query means, apart from the order of its clauses."""
    assert isinstance(checked.body, CheckedRead)
    pattern = checked.body.pattern
    blocks = sorted(repr(inner) for inner in (*pattern.optionals, *pattern.nots))
    parts = (frozenset(pattern.variables), frozenset(pattern.hops), frozenset(pattern.filters), tuple(blocks))
    return parts, checked.body.columns, tuple(checked.reads.items())


@pytest.mark.parametrize(
    "clauses",
    [
        ("$a: Person", "$a knows $b", "$b worksAt $c", "$c.city = $a.bio"),
        ("$c worksAt $b", "$b: Person", "optional { $b knows $d }", "not { $d worksAt $c }"),
        ("$a worksAt $b", "$a attended $e", "$e.title = $b.name"),
    ],
)
def test_the_order_of_clauses_is_no_matter(clauses: tuple[str, ...]) -> None:
    texts = (
        f"query q() {{ match {{ {' '.join(permutation)} }} return {{ count($b) }} }}"
        for permutation in itertools.permutations(clauses)
    )
    assert len({_facts(_check(text)) for text in texts}) == 1


def test_identities_not_names_survive_in_the_tree() -> None:
    """Renaming a property in the schema changes no checked query but its labels: H12, S103."""
    before = support.catalog()
    renamed = before.source.replace("  city: String\n", '  town: String @rename_from("city")\n')
    after = compile_schema(renamed, previous=before, mint=lambda: "new")
    source = "query q() {{ match {{ $c: Company }} return {{ $c.{} as x }} }}"
    old = check_query(parse_queries(source.format("city"))[0], before)
    new = check_query(parse_queries(source.format("town"))[0], after)
    assert isinstance(old.body, CheckedRead)
    assert isinstance(new.body, CheckedRead)
    assert show(old) == show(new)
    with pytest.raises(TypeCheckError, match="no property `city`"):
        check_query(parse_queries(source.format("city"))[0], after)


def test_injection_is_only_text() -> None:
    """S114-like: whatever a text holds, it stays one constant."""
    nasty = "x' OR 1=1; -- } return { $p } /* "
    checked = _check(f'query q() {{ match {{ $p: Person {{ name: "{nasty}" }} }} return {{ $p.age }} }}')
    assert isinstance(checked.body, CheckedRead)
    (only,) = checked.body.pattern.filters
    assert isinstance(only, CheckedCompare)
    assert only.right == Const(nasty, STRING)


def test_every_code_in_the_sources_is_in_the_table_and_back() -> None:
    used = set()
    for path in SOURCES.glob("*.py"):
        if path.name != "codes.py":
            used |= set(re.findall(r'"(Q\d{3}|D2|[TPL]\d{1,2})"', path.read_text(encoding="utf-8")))
    assert used == set(CODES)


def test_the_reference_lists_every_code_with_its_meaning() -> None:
    page = (SOURCES.parents[3] / "docs" / "reference" / "query.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.+?) \|$", page, re.MULTILINE))
    assert rows == dict(CODES)


def test_queries_in_the_reference_check() -> None:
    page = (SOURCES.parents[3] / "docs" / "reference" / "query.md").read_text(encoding="utf-8")
    schema = re.search(r"```pg\n(.*?)```", page, re.DOTALL)
    assert schema is not None
    catalog = compile_schema(schema.group(1), mint=lambda: "t")
    blocks = re.findall(r"```gq\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        report = lint(block, catalog)
        assert report.ok, report.render()
        assert report.queries
