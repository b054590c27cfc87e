"""Only cleanup deletes: no other module removes an object or a file of a graph, and nobody lets Lance do it. S135"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"

#: Where objects may be removed at all: the collector.
ALLOWED = {"upkeep/cleanup/cleanup.py"}
#: The stores themselves with what wraps them and tries them out; and files of users, which are no part of a graph.
STORES = {"local.py", "metering.py", "open_backend.py", "remote.py"}
USERS_FILES = {"output_files.py"}
#: What Lance offers to collect or to move versions by itself; `restore` is a common word, so only on its handles.
_LANCE = re.compile(r"cleanup_old_versions|auto_?cleanup|cleanup_with_policy", re.IGNORECASE)
_STORE = re.compile(r"(^|[._])(store|inner|_client|backend\.store)$")
_FILES = {"unlink", "remove", "rmtree", "rmdir", "removedirs"}
_FILE_OWNERS = re.compile(r"(^|\.)(os|shutil|path|Path\(.*\)|file)$")


def deletions(source: str) -> list[str]:
    """Calls that remove something."""
    calls = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = ast.unparse(node.func.value)
        if (node.func.attr == "delete" and _STORE.search(owner)) or (
            node.func.attr in _FILES and _FILE_OWNERS.search(owner)
        ):
            calls.append(ast.unparse(node))
    calls += [name for name in _names_of_calls(source) if name == "drop_leftover"]
    return calls


def _names_of_calls(source: str) -> list[str]:
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.id for call in calls if isinstance(call, ast.Name)]


def lance_collects(source: str) -> list[str]:
    """Names, attributes, arguments and texts by which Lance's own collector could be called or configured."""
    names = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=name, value=owner):
                restores = name == "restore" and ".lance()" in ast.unparse(owner)
                names += [name] if restores or _LANCE.search(name) else []
            case ast.Name(id=name) | ast.keyword(arg=str(name)) | ast.alias(name=name) if _LANCE.search(name):
                names.append(name)
            case ast.Constant(value=str(text)) if _LANCE.search(text) and " " not in text:
                names.append(text)
    return names


def test_only_cleanup_deletes() -> None:
    places = {
        str(module.relative_to(SOURCE)): calls
        for module in sorted(SOURCE.rglob("*.py"))
        if module.parent != SOURCE / "storage" and (calls := deletions(module.read_text()))
    }
    assert set(places) == ALLOWED, places


def test_in_the_storage_layer_only_stores_delete() -> None:
    modules = (SOURCE / "storage").rglob("*.py")
    assert {module.name for module in modules if deletions(module.read_text())} <= STORES | USERS_FILES


def test_lance_collects_nothing() -> None:
    names_by_module = {
        str(module.relative_to(SOURCE)): lance_collects(module.read_text()) for module in SOURCE.rglob("*.py")
    }
    assert {module: names for module, names in names_by_module.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "pinned.lance().cleanup_old_versions()",
        "pinned.lance().restore()",
        "commit(auto_cleanup_options=None)",
        "from lance import AutoCleanupConfig",
        "config = {'lance.auto_cleanup.interval': '1'}",
        "getattr(table, 'cleanup_old_versions')()",
    ],
)
def test_the_check_sees_lance(line: str) -> None:
    assert lance_collects(line)


@pytest.mark.parametrize(
    "line",
    [
        "store.delete(key)",
        "self._backend.store.delete(one.key)",
        "runtime.backend.store.delete('x')",
        "self.inner.delete(key)",
        "os.unlink(path)",
        "shutil.rmtree(folder)",
        "path.unlink()",
        "drop_leftover",
    ],
)
def test_the_check_sees(line: str) -> None:
    assert deletions(line if "(" in line else f"{line}(store, key)") == [line]


def test_the_check_leaves_other_words_alone() -> None:
    assert deletions("graph.branch.delete(name)\ntags.delete(name)\nself._queue.remove(ticket)") == []
