"""What is done to the graph while things fail. Each is one commit, one registry change, or one birth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.api import Graph, catalog_of
from omnigraph.commit.birth import init_graph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Statement, Update
from tests.faults.faulty_process import SCHEMA, FaultyProcess

CLIENT_KEY = "the-key"
STAGED: Mapping[str, Any] = {"inline_share": 0}


@dataclass(frozen=True)
class FaultOperation:
    """`run` gets a process and what `prepare` returned, which happens before anything fails.

    `keyed` writes may be repeated blindly. `points` are the named pauses it passes, in order.
    """

    name: str
    run: Callable[[FaultyProcess, Any], object]
    points: tuple[str, ...]
    prepare: Callable[[FaultyProcess], Any] = lambda process: process.open()
    config: Mapping[str, Any] = field(default_factory=dict)
    on_empty: bool = False
    keyed: bool = False

    def __str__(self) -> str:
        return self.name


_INLINE = ("write.captured", "write.validated", "write.before-record", "write.after-record")
_STAGED = ("write.captured", "write.validated", "write.staged", "write.before-record", "write.after-record")
_FOLD = ("fold.captured", "fold.staged", "fold.before-record", "fold.after-record")


def _write(
    name: str,
    *statements: Statement,
    staged: bool = False,
    keyed: bool = False,
) -> FaultOperation:
    key = CLIENT_KEY if keyed else None

    def run(process: FaultyProcess, graph: Graph) -> object:
        return graph.apply(statements, client_key=key)

    return FaultOperation(name, run, _STAGED if staged else _INLINE, config=STAGED if staged else {}, keyed=keyed)


def _by_name(name: str) -> Compare:
    return Compare("name", "=", name)


_EVE = InsertNode("Person", {"name": "Eve", "age": 30, "email": "eve@x"})
_SEVERAL = (
    _EVE,
    InsertNode("Company", {"name": "Bolt"}),
    InsertEdge("WorksAt", "Eve", "Bolt", {"role": "clerk"}),
    Update("Person", {"age": 37}, _by_name("Ada")),
    InsertNode("Note", {"text": "several"}),
)

_METADATA = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
_REWRITING = SCHEMA.replace("age: I32?", "age: I32?  level: I32 @default(3)")
_RENAMED = SCHEMA.replace("node Note { text: String? }", 'node Memo @rename_from("Note") { text: String? }').replace(
    "age: I32?", 'years: I32? @rename_from("age")'
)
_DROPPED = SCHEMA.replace("node Note { text: String? }", "").replace("since: I32?", "")


def _schema(name: str, text: str, *, staged: bool = False) -> FaultOperation:
    def run(process: FaultyProcess, graph: Graph) -> object:
        return graph.schema.apply(text)

    return FaultOperation(name, run, _STAGED if staged else _INLINE)


def _fold(process: FaultyProcess, graph: Graph) -> object:
    return graph.fold()


def _create(name: str) -> Callable[[FaultyProcess, Graph], object]:
    return lambda process, graph: graph.branch.create(name).branch_name


def _delete(process: FaultyProcess, graph: Graph) -> None:
    graph.branch.delete("dev")


def _claim(process: FaultyProcess, graph: Graph) -> object:
    return graph._runtime.claim(graph._branch, WriteOptions())


def _claim_key(process: FaultyProcess) -> tuple[Graph, str]:
    graph = process.open()
    return graph, graph._runtime.claim(graph._branch, WriteOptions())


def _release(process: FaultyProcess, claimed: tuple[Graph, str]) -> None:
    graph, holder = claimed
    graph._runtime.release(graph._branch, holder, WriteOptions())


def _init(process: FaultyProcess, _: None) -> object:
    return init_graph(process.backend, catalog_of(SCHEMA, process.backend))


def _merge(process: FaultyProcess, graph: Graph) -> object:
    return graph.branch.merge("dev")


def _optimize(process: FaultyProcess, graph: Graph) -> object:
    return graph.optimize()


_RECORDS = """
{"type": "Person", "data": {"name": "Eve", "age": 30}}
{"type": "Person", "data": {"name": "Bob", "age": 42}}
{"type": "Company", "data": {"name": "Bolt"}}
{"edge": "WorksAt", "from": "Eve", "to": "Bolt", "data": {"role": "clerk"}}
"""


def _with_file(process: FaultyProcess) -> tuple[Graph, Path]:
    """An open graph, and a file of records beside it."""
    path = Path(f"{process.uri}-records.ndjson")
    path.write_text(_RECORDS.lstrip())
    return process.open(), path


def _load(process: FaultyProcess, prepared: tuple[Graph, Path]) -> object:
    graph, path = prepared
    return graph.load(path, engine="local", progress=False)


OPERATIONS = (
    _write("insert-keyed", _EVE),
    _write("insert-keyless", InsertNode("Note", {"text": "new"})),
    _write("insert-client-key", InsertNode("Note", {"text": "once"}), keyed=True),
    _write("insert-staged", _EVE, staged=True),
    _write("insert-staged-client-key", InsertNode("Note", {"text": "once"}), staged=True, keyed=True),
    _write("update", Update("Person", {"age": 99}, Compare("age", ">", 38))),
    _write("update-staged", Update("Person", {"age": 99}, Compare("age", ">", 38)), staged=True),
    _write("delete-cascade", Delete("Person", _by_name("Ada"))),
    _write("delete-cascade-staged", Delete("Person", _by_name("Ada")), staged=True),
    _write("several-tables", *_SEVERAL),
    _write("several-tables-staged", *_SEVERAL, staged=True),
    FaultOperation("fold", _fold, _FOLD),
    FaultOperation("branch-create", _create("fresh"), ("branch.create.before-registry",)),
    FaultOperation("branch-recreate", _create("dead"), ("branch.create.before-registry",)),
    FaultOperation("branch-delete", _delete, (*_INLINE, "branch.delete.before-registry")),
    FaultOperation("claim", _claim, _INLINE),
    FaultOperation("release", _release, _INLINE, prepare=_claim_key),
    _schema("schema-metadata", _METADATA),
    _schema("schema-rewrite", _REWRITING, staged=True),
    _schema("schema-rename", _RENAMED),
    _schema("schema-drop", _DROPPED),
    FaultOperation("init", _init, ("init.stamped",), prepare=lambda process: None, on_empty=True),
    FaultOperation("open", lambda process, _: process.open().branch_name, (), prepare=lambda process: None),
)
#: The same for verbs that are made of more requests; struck by the sweeps over requests and kills only.
LARGER = (
    FaultOperation("merge", _merge, _STAGED, config=STAGED),
    FaultOperation("load", _load, _STAGED, prepare=_with_file, config=STAGED),
    FaultOperation("optimize", _optimize, ("optimize.captured", "optimize.staged")),
)
BY_NAME = {one.name: one for one in (*OPERATIONS, *LARGER)}
