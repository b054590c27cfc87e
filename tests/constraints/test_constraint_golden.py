"""Golden rules: a schema, a change, the rule as a relation, what it looks up, its SQL. S95 to S97

OMNIGRAPH_GOLDEN=update rewrites the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.constraints.compile import Images, Rule, accused, rules_of, superseded
from omnigraph.constraints.lookups import lookups_of
from omnigraph.constraints.relations import Relation, show_relation
from omnigraph.constraints.screen_sql import screen
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.catalog import Catalog
from tests.schema.helpers import UPDATE, compiled

_CASES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
_SEPARATOR = "\n=====\n"
_PART = "\n-----\n"
_IMAGES = {"new", "old", "gone", "kept"}


@dataclass(frozen=True)
class Case:
    """Headers: `change` (a type and all images it has, and so on), `rule` and `with` (options)."""

    source: str

    def header(self, word: str) -> str | None:
        start = f"// {word}: "
        return next((line.removeprefix(start) for line in self.source.splitlines() if line.startswith(start)), None)

    def changed(self, catalog: Catalog) -> Mapping[str, Images]:
        found = {}
        for part in (self.header("change") or "").split(";"):
            name, *images = part.split()
            assert set(images) <= _IMAGES, images
            one = catalog.node(name) or catalog.edge(name)
            assert one is not None, name
            found[one.id] = Images(**{image: image in images for image in _IMAGES})
        return found

    @property
    def options(self) -> set[str]:
        return set((self.header("with") or "").split())


def _actual(case: Case) -> str:
    catalog = compiled(case.source)
    changed, options = case.changed(catalog), case.options
    if case.header("rule") == "screen":
        made = screen(catalog, changed, duplicates="ordinal" in options)
        assert made is not None
        return _PART.join([", ".join(made.tables), made.sql("duckdb", pretty=True), made.sql("spark", pretty=True)])
    if case.header("rule") == "superseded":
        return _PART.join(_relation(superseded(next(iter(changed)), "_at")))
    rules = rules_of(
        catalog,
        changed,
        strict="strict" in options,
        ordinal="_at" if "ordinal" in options else None,
        screened="screened" in options,
    )
    found = [rule for rule in rules if rule.code == case.header("rule")]
    assert found, f"no such rule among {[rule.code for rule in rules]}"
    return "\n=====\n".join(_PART.join(_rule(rule, catalog, options)) for rule in found)


def _rule(rule: Rule, catalog: Catalog, options: set[str]) -> Iterator[str]:
    yield f"{rule.code} {catalog.by_id[rule.type_id].table_key}"
    if "accused" in options:
        for table, relation in accused(rule, catalog, "_at").items():
            yield catalog.by_id[table].table_key
            yield from _relation(relation)
        return
    shown, *statements = _relation(rule.query)
    yield shown
    if not options & {"screened", "ordinal"}:
        yield (
            "\n".join(
                f"look up {lookup.image.table} by {lookup.column}, keys: {lookup.key} of\n{show_relation(lookup.keys)}"
                for lookup in lookups_of(rule.query)
            ).rstrip()
            or "look up nothing"
        )
    yield from statements


def _relation(relation: Relation) -> list[str]:
    return [
        show_relation(relation).rstrip(),
        relation_sql(relation, "duckdb", pretty=True),
        relation_sql(relation, "spark", pretty=True),
    ]


@pytest.mark.parametrize("path", _CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    source, *expected = path.read_text(encoding="utf-8").split(_SEPARATOR)
    actual = _actual(Case(source)) + "\n"
    if UPDATE:
        path.write_text(source.rstrip("\n") + _SEPARATOR + actual, encoding="utf-8", newline="\n")
        expected = [actual]
    assert actual == _SEPARATOR.join(expected)


def test_there_is_a_case_for_every_rule() -> None:
    cases = {Case(path.read_text(encoding="utf-8")).header("rule") for path in _CASES}
    codes = {"unique", "endpoint", "orphan_edge", "cardinality", "key_exists", "duplicate_key"}
    assert cases == codes | {"screen", "superseded"}
