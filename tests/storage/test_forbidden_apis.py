"""Lance is used in one package, committed to in one function, and never asked to commit by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"
TABLES = SOURCE / "storage" / "lance"

#: Methods of Lance objects that move a table's head, delete files, or commit something nobody checked.
FORBIDDEN = {
    "add_columns",
    "add_columns_from_reader",
    "alter_columns",
    "checkout_latest",
    "cleanup_old_versions",
    "commit_batch",
    "commit_existing_index_segments",
    "commit_transaction",
    "compact_files",
    "create_branch",
    "create_index",
    "create_scalar_index",
    "deep_clone",
    "drop_columns",
    "drop_index",
    "execute_uncommitted",
    "merge_insert",
    "migrate_manifest_paths_v2",
    "optimize_indices",
    "replace_field_metadata",
    "replace_schema_metadata",
    "restore",
    "shallow_clone",
    "truncate_table",
    "update_config",
    "write_dataset",
}
#: Common words: forbidden on anything that is, or comes from, a Lance handle.
FORBIDDEN_ON_HANDLES = {"delete", "update", "insert", "merge", "execute", "optimize", "tags", "branches", "drop", "sql"}
FORBIDDEN_NAMES = {"AutoCleanupConfig", "auto_cleanup_options"}
FORBIDDEN_OPERATIONS = {"Restore", "Clone", "Delete", "Project", "UpdateConfig", "DataReplacement", "DataOverlay"}


def _modules(folder: Path) -> list[Path]:
    modules = sorted(folder.rglob("*.py"))
    assert modules
    return modules


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _is_handle(node: ast.expr) -> bool:
    """`….lance()`, `….lance().x`, `self._dataset`, `handle`, `dataset`, `made._ds`: how this package spells one."""
    text = _text(node)
    last = text.rsplit(".", 1)[-1]
    return ".lance()" in text or last in {"_dataset", "dataset", "handle", "_ds", "LanceDataset", "Compaction"}


def violations(source: str) -> list[str]:
    """Every forbidden use in one module."""
    return [_text(node) for node in ast.walk(ast.parse(source)) if _is_forbidden(node)]


def _is_forbidden(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=owner, attr=name):
            operation = name in FORBIDDEN_OPERATIONS and _text(owner) in {"Op", "LanceOperation"}
            return operation or name in FORBIDDEN or (name in FORBIDDEN_ON_HANDLES and _is_handle(owner))
        case ast.keyword(arg=name) | ast.Name(id=name) | ast.alias(name=name):
            return name in FORBIDDEN_NAMES | FORBIDDEN
    return False


def commit_sites(source: str) -> list[str]:
    """Functions in which Lance's commit is called; a call outside of any counts as ''."""
    sites = []

    def walk(node: ast.AST, inside: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit":
            owner = _text(node.func.value)
            if "Dataset" in owner or "Compaction" in owner or _is_handle(node.func.value):
                sites.append(inside)
        for child in ast.iter_child_nodes(node):
            walk(child, inside)

    walk(ast.parse(source), "")
    return sites


def test_only_the_tables_package_knows_lance() -> None:
    for module in _modules(SOURCE):
        if TABLES in module.parents:
            continue
        packages = {name.split(".")[0] for name in _imports(ast.parse(module.read_text()))}
        assert not packages & {"lance", "lancedb", "lance_namespace", "lance_ray"}, module


def test_importing_the_tables_loads_no_lance() -> None:
    """Lance takes most of a second to import; a mutation that stays inline never needs it."""
    for module in _modules(TABLES):
        tree = ast.parse(module.read_text())
        for node in tree.body:
            names = set(_imports(node)) if isinstance(node, (ast.Import, ast.ImportFrom)) else set()
            assert not any(name.split(".")[0] == "lance" for name in names), module


def test_lance_commits_in_one_function() -> None:
    sites = [(module.name, runtime) for module in _modules(SOURCE) for runtime in commit_sites(module.read_text())]
    assert sites == [("table_store.py", "_commit")]


def test_nothing_that_commits_or_deletes_by_itself_is_called() -> None:
    for module in _modules(TABLES):
        assert violations(module.read_text()) == [], module


@pytest.mark.parametrize(
    "line",
    [
        "base.lance().cleanup_old_versions()",
        "base.lance().delete('true')",
        "self._dataset.update({})",
        "dataset.insert(rows)",
        "handle.optimize.optimize_indices()",
        "handle.merge_insert('id')",
        "lance.write_dataset(rows, uri, auto_cleanup_options=None)",
        "from lance import write_dataset",
        "Op.Restore(1)",
        "made._ds.commit_transaction(x)",
        "base.lance().tags.create('x', 1)",
    ],
)
def test_the_check_sees_forbidden_lines(line: str) -> None:
    assert violations(line) != []


@pytest.mark.parametrize(
    "line",
    [
        "LanceDataset.commit(handle, x)",
        "Compaction.commit(d, r)",
        "lance.LanceDataset.commit(u, x)",
        "handle.commit(x)",
    ],
)
def test_the_check_sees_commits(line: str) -> None:
    assert commit_sites(f"def sneaky():\n    {line}\n") == ["sneaky"]
