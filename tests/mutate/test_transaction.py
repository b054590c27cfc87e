"""`g.transaction()`: several mutations, one commit, decided by the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

import omnigraph
from omnigraph.api import Graph, make_backend
from omnigraph.api.transaction import Transaction
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import (
    BranchClosed,
    ConstraintViolation,
    InvalidInput,
    KeyConflict,
    ParseError,
    PreconditionFailed,
    ReadSetChanged,
    Unsupported,
    WriterFenced,
)
from tests.mutate.ground import MutationGround

E = TypeVar("E", bound=BaseException)

ADD = "query add($n: String, $a: I32?, $e: String?) { insert Person { name: $n, age: $a, email: $e } }"
DROP = "query drop($n: String) { delete Person where name = $n }"


def add(t: Transaction, name: str, age: int | None = None, email: str | None = None, *, strict: bool = False) -> None:
    t.mutate(ADD, {"n": name, "a": age, "e": email}, strict=strict)


def drop(t: Transaction, name: str) -> None:
    t.mutate(DROP, {"n": name})


def expect_refusal(
    kind: type[E], graph: Graph, *steps: Callable[[Transaction], object], **options: str | None
) -> tuple[E, Transaction]:
    """A block that runs the steps and ends in an error."""
    transaction = graph.transaction(**options)

    def block() -> None:
        with transaction:
            for step in steps:
                step(transaction)

    with pytest.raises(kind) as caught:
        block()
    assert transaction.receipt is None
    return caught.value, transaction


# --- what it does --------------------------------------------------------------------------------------------------


def test_inserts_and_deletes_compose(ground: MutationGround) -> None:
    """D₂ binds each mutation, not the transaction. S2, S163"""
    with ground.graph.transaction(actor="ada", message="both") as t:
        add(t, "a", 1)
        add(t, "b", 2)
        t.mutate('query q() { insert Knows { from: "a", to: "b" } }')
        t.mutate("query q() { delete Person where age = 2 }")
        t.mutate('query q() { update Person set { city: "x" } where age > 0 }')
        assert ground.rows("Person") == {}
    assert t.receipt is not None
    assert t.receipt.counts == {"inserted": 1, "updated": 0, "deleted": 0}
    assert ground.column("Person", "city") == {"a": "x"}
    assert ground.edges() == set()
    newest = ground.graph.commits(limit=None, kind="mutate")[0]
    assert (newest.commit_id, newest.actor, newest.message) == (t.receipt.commit_id, "ada", "both")
    assert len(ground.commits()) == 1


def test_each_mutation_is_still_pure(ground: MutationGround) -> None:
    with pytest.raises(ParseError) as refused, ground.graph.transaction() as t:
        t.mutate('query q() { insert Person { name: "a" } delete Person where name = "b" }')
    assert refused.value.code == "D2"
    assert ground.commits() == []


def test_a_deleted_row_is_made_again_without_its_past(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", age: 1, city: "x" } insert Person { name: "b" } '
               'insert Knows { from: "a", to: "b" }')  # fmt: skip
    with ground.graph.transaction() as t:
        drop(t, "a")
        add(t, "a", email="a@x", strict=True)
    row = ground.rows("Person")["a"]
    assert (row["age"], row["city"], row["email"]) == (None, None, "a@x")
    assert ground.edges() == set(), "the edge went with the first a"
    assert t.receipt is not None
    assert t.receipt.counts == {"inserted": 0, "updated": 1, "deleted": 1}


def test_a_pending_row_is_removed_again(ground: MutationGround) -> None:
    ground.run('insert Person { name: "b" }')
    with ground.graph.transaction() as t:
        add(t, "a", 1)
        t.mutate('query q() { insert Knows { from: "a", to: "b" } }')
        drop(t, "a")
    assert t.receipt is not None
    assert (t.receipt.commit_id, t.receipt.counts) == (None, {"inserted": 0, "updated": 0, "deleted": 0})
    assert len(ground.commits()) == 1


def test_rules_are_checked_once_at_the_end(ground: MutationGround) -> None:
    """In between anything may be broken: an edge before its end, a value twice, a task without what it needs."""
    ground.run('insert Person { name: "old", email: "e@x" }')
    with ground.graph.transaction() as t:
        t.mutate('query q() { insert Knows { from: "new", to: "old" } }')
        add(t, "new", 200, "e@x")
        t.mutate('query q() { insert Task { title: "t" } }')
        t.mutate('query q() { update Person set { age: 20 } where name = "new" }')
        t.mutate('query q() { update Person set { email: null } where name = "old" }')
        t.mutate('query q() { insert Needs { from: "t", to: "new" } }')
    assert ground.edges() == {("new", "old")}
    assert ground.edges("Needs") == {("t", "new")}
    assert ground.column("Person", "email") == {"old": None, "new": "e@x"}


def test_a_rule_broken_in_the_end_refuses_all(ground: MutationGround) -> None:
    error, _ = expect_refusal(
        ConstraintViolation,
        ground.graph,
        lambda t: add(t, "a", 200),
        lambda t: t.mutate('query q() { insert Knows { id: "k", from: "a", to: "nobody" } }'),
    )
    assert [(violation["rule"], violation["id"]) for violation in error.violations] == [
        ("endpoint", "k"),
        ("range", "a"),
    ]
    assert ground.commits() == []
    assert ground.run('insert Person { name: "a" }').commit_id is not None


def test_now_is_one_instant_of_the_transaction(ground: MutationGround) -> None:
    with ground.graph.transaction() as t:
        for name in ("a", "b"):
            t.mutate("query q($n: String) { insert Person { name: $n, joinedAt: now() } }", {"n": name})
    instants = ground.column("Person", "joinedAt")
    assert instants["a"] == instants["b"]


def test_nothing_to_do_is_no_commit(ground: MutationGround) -> None:
    with ground.graph.transaction() as t:
        drop(t, "nobody")
    assert t.receipt is not None
    assert t.receipt.commit_id is None
    with ground.graph.transaction() as t:
        pass
    assert t.receipt is not None
    assert t.receipt.commit_id is None
    assert ground.commits() == []


def test_one_of_several_queries_by_name(ground: MutationGround) -> None:
    with ground.graph.transaction() as t:
        t.mutate(ADD + DROP, {"n": "a"}, name="add")
        t.mutate(ADD + DROP, {"n": "b"}, name="add")
        t.mutate(ADD + DROP, {"n": "a"}, name="drop")
    assert set(ground.rows("Person")) == {"b"}


# --- failure -------------------------------------------------------------------------------------------------------


class Boom(Exception):
    """What a caller's own code may raise."""


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_nothing(ground: MutationGround, error: type[BaseException]) -> None:
    def fail(_: Transaction) -> None:
        raise error

    _, t = expect_refusal(error, ground.graph, lambda t: add(t, "a"), fail)
    assert ground.commits() == []
    assert ground.rows("Person") == {}
    with pytest.raises(InvalidInput) as over:
        add(t, "b")
    assert over.value.code == "transaction_over"


def test_a_refused_mutation_ends_it_unless_it_is_caught(ground: MutationGround) -> None:
    """A statement that is refused has done nothing; the caller may go on without it."""
    ground.run('insert Person { name: "a", age: 1 }')
    with ground.graph.transaction() as t:
        add(t, "b", 2)
        with pytest.raises(KeyConflict):
            add(t, "a", 9, strict=True)
        with pytest.raises(InvalidInput):
            t.mutate("query q() { insert Nothing { x: 1 } }")
        add(t, "c", 3)
    assert ground.column("Person", "age") == {"a": 1, "b": 2, "c": 3}


def test_a_finished_transaction_takes_no_more(ground: MutationGround) -> None:
    with ground.graph.transaction() as t:
        add(t, "a")
    with pytest.raises(InvalidInput) as over:
        add(t, "b")
    assert over.value.code == "transaction_over"


def test_a_read_only_graph_has_none(ground: MutationGround) -> None:
    runtime = GraphRuntime.open(
        make_backend(ground.graph.uri, None, ground.actor.runtime.backend.config), read_only=True
    )
    with pytest.raises(Unsupported):
        Graph(runtime, runtime.branch("main")).transaction()
    runtime.backend.close()


# --- conflict ------------------------------------------------------------------------------------------------------


def _rename(graph: Graph) -> object:
    return graph.mutate('query q() { update Person set { age: 7 } where name = "a" }')


def _delete(graph: Graph) -> object:
    return graph.mutate(DROP, {"n": "a"})


def _insert(graph: Graph) -> object:
    return graph.mutate(ADD, {"n": "new", "a": 77})


def _link(graph: Graph) -> object:
    return graph.mutate('query q() { insert Knows { from: "b", to: "a" } }')


@pytest.mark.parametrize(
    ("within", "meanwhile", "table_key"),
    [
        ('update Person set { city: "x" } where name = "a"', _rename, "node:Person"),
        ('update Person set { city: "x" } where name = "a"', _delete, "node:Person"),
        ('update Person set { city: "x" } where age > 50', _insert, "node:Person"),
        ('delete Person where name = "a"', _link, "node:Person"),
        ('insert Knows { from: "a", to: "b" }', _delete, "node:Person"),
        ('insert Person { name: "new" }', _insert, "node:Person"),
    ],
)
def test_what_it_read_has_changed(
    ground: MutationGround, within: str, meanwhile: Callable[[Graph], object], table_key: str
) -> None:
    """S23: the caller decided on what it saw, so it is not run again behind their back."""
    ground.run('insert Person { name: "a", age: 1 } insert Person { name: "b", age: 60 }')
    rival = ground.process().graph
    error, _ = expect_refusal(
        ReadSetChanged,
        ground.graph,
        lambda t: t.mutate(f"query q() {{ {within} }}"),
        lambda t: add(t, "mine"),
        lambda _: meanwhile(rival),
    )
    conflict = error.manifest_conflict
    assert conflict is not None
    assert conflict["table_key"] == table_key
    assert conflict["expected"] <= conflict["actual"]
    assert error.retryable
    assert "mine" not in ground.rows("Person")


def test_what_it_did_not_read_may_change(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", age: 1 } insert Person { name: "b", age: 60 }')
    rival = ground.process().graph
    with ground.graph.transaction() as t:
        t.mutate('query q() { update Person set { city: "x" } where name = "a" }')
        rival.mutate('query q() { update Person set { city: "y" } where name = "b" }')
        rival.mutate('query q() { insert Note { text: "n" } }')
    assert ground.column("Person", "city") == {"a": "x", "b": "y"}


def test_it_sees_one_state_from_beginning_to_end(ground: MutationGround) -> None:
    """What others commit meanwhile is not seen by later mutations of the transaction."""
    ground.run('insert Person { name: "a", age: 1 }')
    rival = ground.process().graph
    with ground.graph.transaction() as t:
        rival.mutate(ADD, {"n": "late", "a": 1})
        t.mutate('query q() { insert Note { text: "n" } }')
        t.mutate("query q() { update Company set { size: 1 } where size > 5 }")
    assert set(ground.rows("Person")) == {"a", "late"}
    expect_refusal(
        ReadSetChanged,
        ground.graph,
        lambda _: rival.mutate(ADD, {"n": "later", "a": 1}),
        lambda t: t.mutate('query q() { update Person set { city: "x" } where age = 1 }'),
    )
    assert set(ground.column("Person", "city").values()) == {None}


def test_two_transactions_of_one_handle(ground: MutationGround) -> None:
    """Write skew between two blocks of one thread: the second to end is refused."""
    ground.run('insert Person { name: "a", age: 1 } insert Person { name: "b", age: 1 }')

    def retire(t: Transaction, name: str) -> None:
        t.mutate("query q($n: String) { update Person set { age: 0 } where name = $n }", {"n": name})
        t.mutate('query q() { update Person set { city: "left" } where age = 1 }')

    def other(_: Transaction) -> None:
        with ground.graph.transaction() as second:
            retire(second, "b")

    expect_refusal(ReadSetChanged, ground.graph, lambda t: retire(t, "a"), other)
    assert ground.column("Person", "age") == {"a": 1, "b": 0}


# --- options -------------------------------------------------------------------------------------------------------


def test_if_commit(ground: MutationGround) -> None:
    before = ground.run('insert Person { name: "a" }').commit_id
    with ground.graph.transaction(if_commit=before) as t:
        add(t, "b")
    expect_refusal(PreconditionFailed, ground.graph, lambda t: add(t, "c"), if_commit=before)
    expect_refusal(PreconditionFailed, ground.graph, lambda t: drop(t, "nobody"), if_commit=before)
    assert set(ground.rows("Person")) == {"a", "b"}


def test_if_commit_is_lost_while_it_runs(ground: MutationGround) -> None:
    before = ground.run('insert Person { name: "a" }').commit_id
    rival = ground.process().graph
    expect_refusal(
        PreconditionFailed,
        ground.graph,
        lambda t: add(t, "b"),
        lambda _: rival.mutate('query q() { insert Note { text: "n" } }'),
        if_commit=before,
    )
    assert set(ground.rows("Person")) == {"a"}


def test_a_client_key_makes_it_safe_to_repeat(ground: MutationGround) -> None:
    """Also if it could not run again: the strict insert, the delete. S46"""

    def once() -> Transaction:
        with ground.graph.transaction(client_key="k1") as t:
            add(t, "a", 1, strict=True)
        return t

    first, again = once().receipt, once().receipt
    assert first is not None
    assert again is not None
    assert (again.commit_id, again.counts, again.replayed) == (first.commit_id, first.counts, True)
    receipts = []
    for _ in range(2):
        with ground.graph.transaction(client_key="k2") as t:
            drop(t, "a")
        receipts.append(t.receipt)
    assert receipts[0] is not None
    assert receipts[1] is not None
    assert receipts[0].commit_id == receipts[1].commit_id
    assert receipts[1].counts["deleted"] == 1
    with pytest.raises(InvalidInput), ground.graph.transaction(client_key="\n") as t:
        add(t, "b")


def test_on_a_branch_that_is_deleted_meanwhile(ground: MutationGround) -> None:
    branch = ground.graph.branch.create("x")
    rival = ground.process().graph
    expect_refusal(BranchClosed, branch, lambda t: add(t, "a"), lambda _: rival.branch.delete("x"))
    assert ground.rows("Person") == {}


def test_a_claim_in_between_fences_it(ground: MutationGround) -> None:
    """S162"""
    claims: list[Graph] = []

    def claim(_: Transaction) -> None:
        config = ground.actor.runtime.backend.config
        claims.append(omnigraph.open(ground.graph.uri, exclusive=True, config=config))

    expect_refusal(WriterFenced, ground.graph, lambda t: add(t, "a"), claim)
    assert ground.rows("Person") == {}
    claims[0].close()
    ground.run('insert Person { name: "a" }')
