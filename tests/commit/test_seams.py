"""Two seams that the design rests on, held by the sources themselves.

An operation works on the snapshot that was captured for it and cannot ask for anything newer; and every change of a
graph becomes visible through `publish`, which alone writes records (docs/decisions/0004-publish-is-the-seam.md).
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from omnigraph.commit.publish_plan import WriteTxn
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.overlay import OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.mutate.pending_table import PendingTable
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.lance import PinnedTable

SOURCE = Path(__file__).parents[2] / "src" / "omnigraph"

#: Where verbs compute their change, stage it, and compose the record: all of it below a captured snapshot.
BELOW_THE_CAPTURE = (
    *(f"commit/{name}.py" for name in ("footprint", "group", "next_record", "publish_plan", "staging")),
    "constraints/evaluate.py",
    *(
        f"mutate/{name}.py"
        for name in ("change_set", "check_changes", "claims", "mutation", "pending_table", "schema_change")
    ),
    "load/local/operation.py",
)  # fmt: skip
COLLABORATORS = (WriteTxn, Snapshot, CommitRecord, Catalog, TableView, PinnedTable, OverlayTable, PendingTable)
NEWER = {
    "checkout_latest", "checkout_version", "follow", "head", "latest", "latest_version", "newest", "publisher",
    "read_ahead", "refresh", "reload",
}  # fmt: skip
RESOLVERS = {"Publisher", "RecordStream", "Registry", "GraphRuntime"}


def resolutions(source: str) -> list[str]:
    """Every place that could learn of a newer commit: an attribute of such a name, or an import of who resolves."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.lstrip("_") in NEWER:
            names.append(ast.unparse(node))
        if isinstance(node, ast.ImportFrom):
            names += [name.name for name in node.names if name.name in RESOLVERS]
    return names


@pytest.mark.parametrize("name", BELOW_THE_CAPTURE)
def test_nothing_below_the_capture_asks_for_newer_commits(name: str) -> None:
    assert resolutions((SOURCE / name).read_text()) == []


@pytest.mark.parametrize("collaborator", COLLABORATORS, ids=lambda one: one.__name__)
def test_no_collaborator_of_a_captured_write_can_be_asked(collaborator: type) -> None:
    members = {name.lstrip("_") for name, _ in inspect.getmembers(collaborator)} | set(
        getattr(collaborator, "__annotations__", ())
    )
    assert members & NEWER == set()


@pytest.mark.parametrize(
    "line",
    [
        "head = self._publisher.refresh()",
        "runtime.records(stream).newest()",
        "dataset.checkout_latest()",
        "from omnigraph.log.stream import RecordStream",
    ],
)
def test_the_check_sees_resolutions(line: str) -> None:
    assert resolutions(line)


#: Who may do what. Everything else goes through the writer, which goes through the publisher.
CALLERS = {
    "put_record": {"commit/publisher.py"},
    "publish": {
        "commit/writer.py",  # every verb
        "commit/fold.py",
        "upkeep/cleanup/cleanup.py",  # the fence
        "upkeep/optimize.py",
    },
    "put_if_absent": {"commit/put_record.py", "commit/birth.py", "log/branches.py"},
    "create_object": {
        "commit/birth.py",  # stamp, schema and record 0 of a new graph
        "commit/graph_runtime.py",  # record 0 of a fork
        "commit/writer.py",  # the schema object that a plan names
        "intents/scope.py",
        "intents/objects.py",
        "upkeep/cleanup/cleanup.py",
        "upkeep/tags.py",
    },
}
#: Replaces an object: never a record, but by cleanup, which leaves a stub in its place.
RECORD_REWRITERS = {"upkeep/cleanup/cleanup.py"}


def callers(name: str) -> set[str]:
    modules = set()
    for module in SOURCE.rglob("*.py"):
        if module.is_relative_to(SOURCE / "storage"):
            continue
        if name in names_of_calls(module.read_text()):
            modules.add(str(module.relative_to(SOURCE)))
    return modules


def names_of_calls(source: str) -> set[str]:
    """The last name of everything that is called."""
    return {
        ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    }


@pytest.mark.parametrize("name", CALLERS)
def test_no_verb_takes_a_shortcut_around_publish(name: str) -> None:
    assert callers(name) == CALLERS[name]


def test_only_cleanup_ever_replaces_a_record() -> None:
    both = {
        str(module.relative_to(SOURCE))
        for module in SOURCE.rglob("*.py")
        if {"record_key", "put"} <= names_of_calls(module.read_text())
    }
    assert both == RECORD_REWRITERS


def test_the_check_sees_calls() -> None:
    assert {"put_if_absent", "put_record"} <= names_of_calls("self._backend.store.put_if_absent(k, d)\nput_record(x)")
