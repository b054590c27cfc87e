"""Golden constraints: a schema, a change, the constraint as a relation, what it looks up, its SQL. S95 to S97

OMNIGRAPH_GOLDEN=update rewrites the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.constraints.compile import (
    ChangedImages,
    Constraint,
    compile_constraints,
    input_rows_replaced_later,
    input_rows_to_reject,
)
from omnigraph.constraints.evaluate import find_lookups
from omnigraph.constraints.relations import Relation
from omnigraph.constraints.screen_sql import compile_screen
from omnigraph.constraints.sql import relation_sql
from omnigraph.schema.catalog import Catalog
from tests.constraints.show_relations import show_relation
from tests.schema.helpers import UPDATE, compile_text

_CASES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
_SEPARATOR = "\n=====\n"
_PART = "\n-----\n"
_IMAGES = {"new", "old", "gone", "kept"}


@dataclass(frozen=True)
class ConstraintCase:
    """Headers: `change` (a type and all images it has, and so on), `rule` and `with` (options)."""

    source: str

    def header(self, word: str) -> str | None:
        start = f"// {word}: "
        return next((line.removeprefix(start) for line in self.source.splitlines() if line.startswith(start)), None)

    def read_images(self, catalog: Catalog) -> Mapping[str, ChangedImages]:
        changed = {}
        for part in (self.header("change") or "").split(";"):
            name, *images = part.split()
            assert set(images) <= _IMAGES, images
            type_def = catalog.node(name) or catalog.edge(name)
            assert type_def is not None, name
            changed[type_def.id] = ChangedImages(**{f"has_{kind}": kind in images for kind in _IMAGES})
        return changed

    @property
    def options(self) -> set[str]:
        return set((self.header("with") or "").split())


def _actual(case: ConstraintCase) -> str:
    catalog = compile_text(case.source)
    changed, options = case.read_images(catalog), case.options
    if case.header("rule") == "screen":
        screen = compile_screen(catalog, changed, duplicates="ordinal" in options)
        assert screen is not None
        return _PART.join(
            [", ".join(screen.tables), screen.sql("duckdb", pretty=True), screen.sql("spark", pretty=True)]
        )
    if case.header("rule") == "superseded":
        return _PART.join(_relation(input_rows_replaced_later(next(iter(changed)), "_at")))
    constraints = compile_constraints(
        catalog,
        changed,
        strict="strict" in options,
        ordinal="_at" if "ordinal" in options else None,
        screened="screened" in options,
    )
    selected = [constraint for constraint in constraints if constraint.code == case.header("rule")]
    assert selected, f"no such constraint among {[constraint.code for constraint in constraints]}"
    return "\n=====\n".join(_PART.join(_describe(constraint, catalog, options)) for constraint in selected)


def _describe(constraint: Constraint, catalog: Catalog, options: set[str]) -> Iterator[str]:
    yield f"{constraint.code} {catalog.by_id[constraint.type_id].table_key}"
    if "accused" in options:
        for table, relation in input_rows_to_reject(constraint, catalog, "_at").items():
            yield catalog.by_id[table].table_key
            yield from _relation(relation)
        return
    algebra, *statements = _relation(constraint.query)
    yield algebra
    if not options & {"screened", "ordinal"}:
        yield (
            "\n".join(
                f"look up {image.table} by {keys.column}, keys: {keys.key} of\n{show_relation(keys.keys)}"
                for image, keys in find_lookups(constraint.query)
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
    actual = _actual(ConstraintCase(source)) + "\n"
    if UPDATE:
        path.write_text(source.rstrip("\n") + _SEPARATOR + actual, encoding="utf-8", newline="\n")
        expected = [actual]
    assert actual == _SEPARATOR.join(expected)


def test_every_constraint_code_has_a_golden_case() -> None:
    cases = {ConstraintCase(path.read_text(encoding="utf-8")).header("rule") for path in _CASES}
    codes = {"unique", "endpoint", "orphan_edge", "cardinality", "key_exists", "duplicate_key"}
    assert cases == codes | {"screen", "superseded"}
