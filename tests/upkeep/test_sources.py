"""Only cleanup deletes: no other module removes an object or a file of a graph."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"

#: Where objects may be removed at all: the collector, and the stores themselves with what wraps them.
ALLOWED = {"upkeep/cleanup.py"}
_STORE = re.compile(r"(^|[._])(store|inner|_client|backend\.store)$")
_FILES = {"unlink", "remove", "rmtree", "rmdir", "removedirs"}
_FILE_OWNERS = re.compile(r"(^|\.)(os|shutil|path|Path\(.*\)|file)$")


def deletions(source: str) -> list[str]:
    """Calls that remove something."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = ast.unparse(node.func.value)
        if (node.func.attr == "delete" and _STORE.search(owner)) or (
            node.func.attr in _FILES and _FILE_OWNERS.search(owner)
        ):
            found.append(ast.unparse(node))
    return found


def test_only_cleanup_deletes() -> None:
    places = {
        str(module.relative_to(SOURCE)): found
        for module in sorted(SOURCE.rglob("*.py"))
        if module.parent != SOURCE / "storage" and (found := deletions(module.read_text()))
    }
    assert set(places) == ALLOWED, places


@pytest.mark.parametrize(
    "line",
    [
        "store.delete(key)",
        "self._backend.store.delete(one.key)",
        "site.backend.store.delete('x')",
        "self.inner.delete(key)",
        "os.unlink(path)",
        "shutil.rmtree(folder)",
        "path.unlink()",
    ],
)
def test_the_check_sees(line: str) -> None:
    assert deletions(line) == [line]


def test_the_check_leaves_other_words_alone() -> None:
    assert deletions("graph.branch.delete(name)\ntags.delete(name)\nself._queue.remove(ticket)") == []
