"""The operations whose cost is promised, each with its budget and with the proof that it did what it says.

One list for the tests and for `make bench`: what is printed there is what is held here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.api import Graph
from omnigraph.commit.publish_plan import Receipt
from omnigraph.config import Config
from omnigraph.errors import ConstraintViolation, KeyConflict
from omnigraph.query.language.statements import Compare, Delete, InsertEdge, InsertNode, Update
from tests.cost.budget import Budget, Cost
from tests.cost.ground import INLINE, STAGED, CostGround, MeteredActor

#: An overlapping pair may miss each other on a busy machine, which only ever adds hops; requests are exact each time.
HOP_TRIES = 5


@dataclass(frozen=True)
class CostedOperation:
    """`prepare` runs before the clock, `act` is measured, `landed` proves afterwards that it had its effect."""

    name: str
    budget: Budget
    act: Callable[[Graph, str], Any]
    landed: Callable[[CostGround, Any, str], bool]
    prepare: Callable[[Graph, str], Any] = lambda graph, tag: graph.refresh()
    config: Config = INLINE

    def __str__(self) -> str:
        return self.name

    def budget_on(self, ground: CostGround) -> Budget:
        """In a directory the meter sees the hops of our own requests only; on the wire also those of Lance's reads."""
        if ground.proxy is None or self.budget.hops is None or self.budget.table_writes:
            return self.budget
        return replace(self.budget, hops=self.budget.hops + self.budget.table_reads)


def measure(actor: MeteredActor, operation: CostedOperation) -> Cost:
    """Run the operation once it is warm, prove that it landed, hold its budget, and return its cost."""
    budget = operation.budget_on(actor.ground)
    for _ in range(HOP_TRIES):
        tag = actor.ground.tag()
        operation.prepare(actor.graph, tag)
        with actor.measure() as gauge:
            answer = operation.act(actor.graph, tag)
        assert operation.landed(actor.ground, answer, tag), f"{operation.name} had no effect, so its cost says nothing"
        cost = gauge.cost
        gauge.check_agreement()
        replace(budget, hops=None).hold(cost, operation.name)
        if not budget.breaches(cost):
            break
    budget.hold(cost, operation.name)
    return cost


def warm(actor: MeteredActor) -> None:
    """Let the actor read and write every table once: what it pays only at first is not what is measured."""
    graph = actor.graph
    graph.apply([InsertNode("Note", {"text": "warm"})])
    graph.apply([InsertNode("Person", {"name": actor.ground.tag("warm")})])
    graph.apply([InsertEdge("Knows", "ada", "bob")])
    for name in ("Note", "Person", "Knows"):
        graph.table(name).to_arrow()


def _has_commit(ground: CostGround, receipt: Receipt, _tag: str) -> bool:
    return receipt.counts["inserted"] + receipt.counts["updated"] == 1 and ground.has_record(receipt.commit_id)


def _inline(ground: CostGround, receipt: Receipt, tag: str) -> bool:
    return _has_commit(ground, receipt, tag) and not _count_staged_tables(ground, receipt)


def _has_staged_tables(ground: CostGround, receipt: Receipt, tag: str) -> bool:
    return _has_commit(ground, receipt, tag) and _count_staged_tables(ground, receipt) == 1


def _count_staged_tables(ground: CostGround, receipt: Receipt) -> int:
    assert receipt.commit_id is not None
    return sum(touch.staged for touch in ground.record(receipt.commit_id).touched.values())


def _insert_note(graph: Graph, tag: str) -> Receipt:
    return graph.apply([InsertNode("Note", {"text": tag})], actor="cost")


def _insert_person(graph: Graph, tag: str) -> Receipt:
    return graph.apply([InsertNode("Person", {"name": tag, "email": None})], actor="cost")


def _insert_edge(graph: Graph, _tag: str) -> Receipt:
    return graph.apply([InsertEdge("Knows", "ada", "bob", {"since": 1})], actor="cost")


def _update_person(graph: Graph, tag: str) -> Receipt:
    return graph.apply([Update("Person", {"age": int(tag[1:])}, Compare("name", "=", "ada"))], actor="cost")


def _mutate_text(graph: Graph, tag: str) -> Receipt:
    return graph.mutate("query add($text: String) { insert Note { text: $text } }", {"text": tag}, actor="cost")


def _fresh_branch(graph: Graph, tag: str) -> None:
    graph.branch.create(tag)


def _insert_on_branch(act: Callable[[Graph, str], Receipt]) -> Callable[[Graph, str], Receipt]:
    def on_branch(graph: Graph, tag: str) -> Receipt:
        branch = next(entry for entry in graph._runtime._branches.values() if entry.name == tag)
        return act(Graph(graph._runtime, branch), tag)

    return on_branch


def _no_match(graph: Graph, _tag: str) -> Receipt:
    return graph.apply([Delete("Note", Compare("text", "=", "nobody wrote this"))])


def _violation(graph: Graph, _tag: str) -> ConstraintViolation:
    try:
        graph.apply([InsertEdge("Knows", "ada", "nobody of this name")])
    except ConstraintViolation as error:
        return error
    raise AssertionError("an edge to nobody was accepted")


def _key_conflict(graph: Graph, _tag: str) -> KeyConflict:
    try:
        graph.apply([InsertNode("Person", {"name": "ada"}, strict=True)])
    except KeyConflict as error:
        return error
    raise AssertionError("a taken key was accepted")


def _fold(graph: Graph, _tag: str) -> Receipt:
    return Receipt(graph.fold(), {"inserted": 1, "updated": 0})


def _has_folded(ground: CostGround, receipt: Receipt, _tag: str) -> bool:
    return ground.has_record(receipt.commit_id) and not ground.record(receipt.commit_id or "").overlay


def _one_note_to_fold(graph: Graph, tag: str) -> None:
    graph.fold()
    _insert_note(graph, tag)


INSERT = CostedOperation(
    "insert, inline",
    Budget(puts=1, hops=1, exactly=True),
    _insert_note,
    _inline,
)
INSERT_TEXT = CostedOperation("insert by query text, inline", INSERT.budget, _mutate_text, _inline)
INSERT_KEYED = CostedOperation(
    "insert with a key, inline", Budget(puts=1, table_reads=2, hops=1), _insert_person, _inline
)
INSERT_EDGE = CostedOperation("insert of an edge, inline", Budget(puts=1, table_reads=2, hops=1), _insert_edge, _inline)
UPDATE = CostedOperation("update by key, inline", Budget(puts=1, table_reads=2, hops=1), _update_person, _inline)
INSERT_STAGED = CostedOperation(
    "insert, staged",
    Budget(puts=1, table_reads=1, table_writes=3, total=5, hops=4),
    _insert_note,
    _has_staged_tables,
    config=STAGED,
)
INSERT_KEYED_STAGED = CostedOperation(
    "insert with a key, staged",
    Budget(puts=1, table_reads=1, table_writes=3, total=5, hops=5),  # its key is looked up before all else
    _insert_person,
    _has_staged_tables,
    config=STAGED,
)
FIRST_ON_BRANCH = CostedOperation(  # S165
    "first insert on a fresh branch, inline",
    INSERT.budget,
    _insert_on_branch(_insert_note),
    _inline,
    _fresh_branch,
)
FIRST_ON_BRANCH_STAGED = CostedOperation(  # S165
    "first insert on a fresh branch, staged",
    INSERT_STAGED.budget,
    _insert_on_branch(_insert_note),
    _has_staged_tables,
    _fresh_branch,
    STAGED,
)
NO_MATCH = CostedOperation(
    "delete that matches nothing",
    Budget(gets=1, table_reads=2, hops=1),
    _no_match,
    lambda _ground, receipt, _tag: receipt.commit_id is None and receipt.counts["deleted"] == 0,
)
VIOLATION = CostedOperation(
    "edge to a missing node, refused",
    Budget(gets=1, table_reads=2, hops=1),
    _violation,
    lambda _ground, error, _tag: isinstance(error, ConstraintViolation),
)
KEY_CONFLICT = CostedOperation(
    "strict insert of a taken key, refused",
    Budget(gets=1, table_reads=2, hops=1),
    _key_conflict,
    lambda _ground, error, _tag: isinstance(error, KeyConflict),
)
FOLD = CostedOperation(
    "fold of one row into one table",
    Budget(gets=1, puts=1, table_reads=1, table_writes=3, hops=5),
    _fold,
    _has_folded,
    _one_note_to_fold,
)
BRANCH_CREATE = CostedOperation(
    "branch create",
    Budget(puts=2, gets=2, hops=2),
    lambda graph, tag: graph.branch.create(tag),
    lambda ground, made, tag: made.branch_name == tag and ground.count_registry_entries(tag) == 1,
)
BRANCH_DELETE = CostedOperation(
    "branch delete",
    Budget(puts=2, gets=2, hops=2),
    lambda graph, tag: graph.branch.delete(tag),
    lambda ground, _answer, tag: ground.count_registry_entries(tag) == 2,
    _fresh_branch,
)
READ = CostedOperation(
    "read of a table",
    Budget(gets=1, table_reads=2, hops=1),
    lambda graph, _tag: graph.table("Note").to_arrow(),
    lambda _ground, rows, _tag: rows.num_rows >= 1,
)
READ_KEY = CostedOperation(
    "read of one row by key",
    Budget(gets=1, table_reads=2, hops=1),
    lambda graph, _tag: graph.table("Person").to_arrow(where=Compare("name", "=", "ada")),
    lambda _ground, rows, _tag: rows.num_rows == 1,
)

WRITES = (
    INSERT,
    INSERT_TEXT,
    INSERT_KEYED,
    INSERT_EDGE,
    UPDATE,
    FIRST_ON_BRANCH,
    INSERT_STAGED,
    INSERT_KEYED_STAGED,
    FIRST_ON_BRANCH_STAGED,
)
REFUSALS = (NO_MATCH, VIOLATION, KEY_CONFLICT)
BRANCHES = (BRANCH_CREATE, BRANCH_DELETE)
READS = (READ, READ_KEY)
ALL = (*WRITES, *REFUSALS, *BRANCHES, *READS, FOLD)
