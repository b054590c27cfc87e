"""What users import is exactly what is listed, documented, and cheap to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph

HEAVY = ("duckdb", "lance", "pandas", "pyarrow", "pyspark")


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert omnigraph.__all__ == sorted(omnigraph.__all__)
    assert [name for name in omnigraph.__all__ if not hasattr(omnigraph, name)] == []
    assert set(dir(omnigraph)) == set(omnigraph.__all__)


def test_type_checkers_see_the_same_names() -> None:
    """The names imported for type checkers are the ones that are found at run time."""
    tree = ast.parse(Path(omnigraph.__file__).read_text())
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported | {"__version__"} == set(omnigraph.__all__)


def test_every_public_name_is_documented() -> None:
    values = {name: getattr(omnigraph, name) for name in omnigraph.__all__ if name != "__version__"}
    assert [name for name, value in values.items() if not value.__doc__] == []


def test_import_and_help_load_nothing_heavy() -> None:
    program = f"import sys, omnigraph, omnigraph.cli.main; print([one for one in {HEAVY!r} if one in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "ask",
    [
        lambda g: g.stream(nodes={}, checkpoint="c"),
        lambda g: g.analytics,
        lambda g: g.draw("query q() { match { $p: Person } return { $p } }"),
        lambda g: g.table("Person").lance(),
        lambda g: g.query("query q() { match { $p: Person } return { $p.name } }", engine="spark"),
    ],
    ids=["stream", "analytics", "draw", "the raw dataset", "query on Spark"],
)
def test_what_is_not_built_is_refused_by_name(ask: Callable[[omnigraph.Graph], object], tmp_path: Path) -> None:
    g = omnigraph.init(tmp_path / "g", "node Person { name: String @key }", config=omnigraph.Config(fsync=False))
    with pytest.raises(omnigraph.errors.Unsupported) as refused:
        ask(g)
    assert refused.value.code == "not_built"
    assert refused.value.advice


def test_queries_are_checked_before_anything_runs(tmp_path: Path) -> None:
    text = "node Person { name: String @key }\n"
    g = omnigraph.init(tmp_path / "g", text, config=omnigraph.Config(fsync=False))
    good = "query q() { match { $p: Person } return { $p.name } }"
    wrong = "query q() { match { $p: Persn } return { $p.name } }"
    (tmp_path / "people.pg").write_text(text)
    for schema in (g.schema, g.schema.catalog, text, tmp_path / "people.pg"):
        assert omnigraph.lint(good, schema).errors == ()
        assert [error.message for error in omnigraph.lint(wrong, schema).errors] != []
    with pytest.raises(omnigraph.errors.InvalidInput):
        omnigraph.lint(good, "node {")
