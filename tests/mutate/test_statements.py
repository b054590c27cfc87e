"""What insert, update and delete mean, written in the language: S1 to S7, S10 to S13, S163."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.errors import ConstraintViolation, InvalidInput, KeyConflict, OmnigraphError, ParseError, TypeCheckError
from omnigraph.query.language.statements import And, Compare, Delete, InsertNode, Overwrite, Statement, Update
from omnigraph.storage.metering import Measurement, MeteredStore
from omnigraph.storage.store import Store
from tests.mutate.ground import MutationGround
from tests.schedules.world import Actor

PEOPLE = """
    insert Person { name: "ada", age: 36, city: "London" }
    insert Person { name: "bob", age: 10 }
    insert Person { name: "cy" }
"""


class MutationMeter:
    """A process whose requests are counted."""

    def __init__(self, ground: MutationGround) -> None:
        self.store: MeteredStore | None = None
        self.actor: Actor = ground.process(wrap=self._wrap)

    def _wrap(self, store: Store) -> Store:
        self.store = MeteredStore(store)
        return self.store

    def refuses(self, source: str, error: type[OmnigraphError]) -> tuple[OmnigraphError, Measurement]:
        """The refusal of a mutation, and what it cost, tables included."""
        assert self.store is not None
        before = self.actor.runtime.backend.tables.io_stats()
        with self.store.measure() as cost, pytest.raises(error) as caught:
            self.actor.graph.mutate(source)
        assert self.actor.runtime.backend.tables.io_stats() == before
        return caught.value, cost


# --- S1 to S7 ------------------------------------------------------------------------------------------------------


def test_s1_a_mutation_over_three_tables_is_all_or_nothing(ground: MutationGround) -> None:
    text = PEOPLE + 'insert Company { name: "acme", size: 3 } insert WorksAt { from: "ada", to: "%s" }'
    with pytest.raises(ConstraintViolation):
        ground.run(text % "nowhere")
    assert not any(ground.rows(name) for name in ("Person", "Company", "WorksAt"))
    assert ground.commits() == []
    outcome = ground.run(text % "acme")
    assert outcome.counts == {"inserted": 5, "updated": 0, "deleted": 0}
    assert [len(ground.rows(name)) for name in ("Person", "Company", "WorksAt")] == [3, 1, 1]
    assert ground.commits() == [outcome.commit_id]


def test_s2_statements_see_what_earlier_ones_did(ground: MutationGround) -> None:
    receipt = ground.run(
        PEOPLE
        + """
        update Person set { age: 37 } where name = "ada"
        insert Knows { from: "ada", to: "bob", since: 1 }
        update Knows set { since: 2 } where from = "ada"
        update Person set { city: "Paris" } where age > 36
        """
    )
    assert receipt.counts == {"inserted": 4, "updated": 0, "deleted": 0}
    assert ground.column("Person", "city") == {"ada": "Paris", "bob": None, "cy": None}
    assert list(ground.column("Knows", "since").values()) == [2]


def test_s3_many_inserts_are_one_commit(ground: MutationGround) -> None:
    text = " ".join(f'insert Person {{ name: "p{number}" }}' for number in range(40))
    assert ground.run(text).counts["inserted"] == 40
    many = [{"n": f"q{number}", "a": number} for number in range(60)]
    add = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
    assert ground.graph.mutate_many(add, many, actor="ada").counts["inserted"] == 60
    assert len(ground.commits()) == 2
    assert len(ground.rows("Person")) == 100
    assert ground.column("Person", "age")["q59"] == 59


def test_s3_a_batch_is_all_or_nothing_and_sees_itself(ground: MutationGround) -> None:
    add = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
    with pytest.raises(ConstraintViolation) as refused:
        ground.graph.mutate_many(add, [{"n": "a", "a": 1}, {"n": "b", "a": 151}, {"n": "c", "a": -1}])
    assert [(violation["id"], violation["value"]) for violation in refused.value.violations] == [("b", 151), ("c", -1)]
    with pytest.raises(InvalidInput):
        ground.graph.mutate_many(add, [{"n": "a", "a": 1}, {"a": 2}])
    assert ground.rows("Person") == {}
    receipt = ground.graph.mutate_many(add, [{"n": "a", "a": 1}, {"n": "a", "a": 2}])
    assert receipt.counts == {"inserted": 1, "updated": 0, "deleted": 0}
    assert ground.column("Person", "age") == {"a": 2}
    assert ground.graph.mutate_many(add, []).commit_id is None
    with pytest.raises(KeyConflict):
        ground.graph.mutate_many(add, [{"n": "z", "a": 1}, {"n": "z", "a": 2}], strict=True)


def test_s4_insert_and_update_of_one_row_are_one_row(ground: MutationGround) -> None:
    receipt = ground.run(
        """
        insert Person { name: "ada", age: 1 }
        update Person set { age: 2 } where name = "ada"
        insert Person { name: "ada", city: "Rome" }
        update Person set { age: 3 } where city = "Rome"
        """
    )
    assert receipt.counts == {"inserted": 1, "updated": 0, "deleted": 0}
    row = ground.rows("Person")["ada"]
    assert (row["age"], row["city"]) == (3, "Rome")


def test_s5_chained_updates_see_the_value_in_between(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", age: 10 } insert Person { name: "b", age: 20 } '
               'insert Person { name: "c", age: 30 }')  # fmt: skip
    receipt = ground.run(
        """
        update Person set { age: 25 } where age < 25
        update Person set { age: 40 } where age = 25
        update Person set { city: "old" } where age >= 40 and city is null
        """
    )
    assert receipt.counts == {"inserted": 0, "updated": 2, "deleted": 0}
    assert ground.column("Person", "age") == {"a": 40, "b": 40, "c": 30}
    assert ground.column("Person", "city") == {"a": "old", "b": "old", "c": None}


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ('insert Knows { from: "ada", to: "nobody" }', ConstraintViolation),
        ('insert Person { name: "x", email: "taken@x" }', ConstraintViolation),
        ('insert Person { name: "x", age: 151 }', ConstraintViolation),
        ('insert Nothing { name: "x" }', TypeCheckError),
        ('insert Person { name: "x", nick: 1 }', TypeCheckError),
        ('insert Person { name: "x", age: "many" }', TypeCheckError),
        ("insert Person { age: 3 }", TypeCheckError),
        ('insert Company { name: "x" }', TypeCheckError),
        ('update Person set { name: "x" } where age = 3', TypeCheckError),
        ('update Knows set { from: "x" } where since = 3', TypeCheckError),
        ('delete Person where name = "ada"', ParseError),
    ],
)
def test_s6_a_failure_in_the_last_statement_changes_nothing(
    inline: MutationGround, last: str, error: type[OmnigraphError]
) -> None:
    inline.run('insert Person { name: "taken", age: 5, email: "taken@x" }')
    with pytest.raises(error) as caught:
        inline.run(f'insert Person {{ name: "ada" }} update Person set {{ age: 9 }} where name = "taken" {last}')
    assert caught.value.code
    assert inline.column("Person", "age") == {"taken": 5}
    assert len(inline.commits()) == 1
    inline.run('insert Person { name: "ada" } update Person set { age: 9 } where name = "taken"')
    assert inline.column("Person", "age") == {"taken": 9, "ada": None}


@pytest.mark.parametrize("point", ["write.captured", "write.validated", "write.before-record"])
def test_s7_an_interrupted_mutation_leaves_nothing(ground: MutationGround, point: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    ground.actor.pauses.call_at(point, interrupt)
    with pytest.raises(KeyboardInterrupt):
        ground.run(PEOPLE)
    assert ground.rows("Person") == {}
    assert ground.run(PEOPLE).counts["inserted"] == 3
    assert len(ground.commits()) == 1


# --- keyed insert is an upsert -------------------------------------------------------------------------------------


def test_an_upsert_keeps_what_it_does_not_mention(ground: MutationGround) -> None:
    ground.run(PEOPLE)
    outcome = ground.run('insert Person { name: "ada", email: "a@x" }')
    assert outcome.counts == {"inserted": 0, "updated": 1, "deleted": 0}
    row = ground.rows("Person")["ada"]
    assert (row["age"], row["city"], row["email"]) == (36, "London", "a@x")
    ground.run('insert Person { name: "ada", city: null }')
    assert ground.rows("Person")["ada"]["city"] is None
    assert ground.rows("Person")["ada"]["age"] == 36


def test_an_upsert_by_a_key_of_several_members(ground: MutationGround) -> None:
    ground.run('insert Point { x: 1, y: 2, label: "a" } insert Point { x: 1, y: 3, label: "b" }')
    assert ground.run("insert Point { x: 1, y: 2 }").counts["updated"] == 1
    assert ground.column("Point", "label") == {'["1","2"]': "a", '["1","3"]': "b"}
    outcome = ground.run('update Point set { label: "c" } where x = 1 and y = 3')
    assert outcome.counts["updated"] == 1
    assert ground.column("Point", "label") == {'["1","2"]': "a", '["1","3"]': "c"}


def test_rows_without_a_key_are_new_each_time(ground: MutationGround) -> None:
    for _ in range(2):
        ground.run('insert Note { text: "a" }')
    assert len(ground.rows("Note")) == 2
    ground.run('insert Note { id: "n1", text: "b" }')
    outcome = ground.run('insert Note { id: "n1", day: date("2020-01-31") }')
    assert outcome.counts["updated"] == 1
    row = ground.rows("Note")["n1"]
    assert (row["text"], row["day"]) == ("b", dt.date(2020, 1, 31))


def test_strict_makes_an_existing_id_a_conflict(ground: MutationGround) -> None:
    ground.run(PEOPLE, strict=True)
    with pytest.raises(KeyConflict) as refused:
        ground.run('insert Person { name: "new" } insert Person { name: "ada", age: 1 }', strict=True)
    assert refused.value.details["key_conflict"] == {"table_key": "node:Person", "id": "ada"}
    with pytest.raises(KeyConflict):
        ground.run('insert Person { name: "new" } insert Person { name: "new" }', strict=True)
    assert set(ground.rows("Person")) == {"ada", "bob", "cy"}
    assert ground.rows("Person")["ada"]["age"] == 36


def test_now_is_one_instant(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", joinedAt: now() } insert Person { name: "b", joinedAt: now() }')
    ground.graph.mutate_many(
        "query q($n: String) { insert Person { name: $n, joinedAt: now() } }", [{"n": "c"}, {"n": "d"}]
    )
    instants = ground.column("Person", "joinedAt")
    assert instants["a"] == instants["b"]
    assert instants["c"] == instants["d"]
    assert instants["a"].tzinfo is not None


# --- S10 to S13 ----------------------------------------------------------------------------------------------------

WEB = (
    PEOPLE
    + """
    insert Company { name: "acme", size: 1 }
    insert Knows { from: "ada", to: "bob" }
    insert Knows { from: "bob", to: "ada" }
    insert Knows { from: "ada", to: "ada" }
    insert Knows { from: "bob", to: "cy" }
    insert WorksAt { from: "ada", to: "acme" }
    """
)


def test_s10_a_deleted_node_takes_its_edges_of_every_type(ground: MutationGround) -> None:
    ground.run(WEB)
    before = len(ground.commits())
    outcome = ground.run('delete Person where name = "ada"')
    assert outcome.counts == {"inserted": 0, "updated": 0, "deleted": 1 + 4}
    assert ground.edges() == {("bob", "cy")}
    assert ground.edges("WorksAt") == set()
    assert len(ground.commits()) == before + 1


def test_s11_cascade_and_explicit_delete_count_each_row_once(ground: MutationGround) -> None:
    ground.run(WEB)
    outcome = ground.run(
        """
        delete Knows where from = "ada"
        delete Person where name = "ada"
        delete Knows where to = "cy"
        """
    )
    assert outcome.counts["deleted"] == 1 + 3 + 1 + 1
    assert ground.edges() == set()
    assert ground.edges("WorksAt") == set()


def test_s12_overlapping_deletes_count_once_and_null_is_never_selected(ground: MutationGround) -> None:
    ground.run('insert Person { name: "a", age: 5 } insert Person { name: "b", age: 15 } '
               'insert Person { name: "c", age: 25 } insert Person { name: "null" }')  # fmt: skip
    outcome = ground.run("delete Person where age > 10 delete Person where age > 20")
    assert outcome.counts["deleted"] == 2
    assert ground.run("delete Person where age != 5").commit_id is None
    assert set(ground.rows("Person")) == {"a", "null"}
    assert ground.run("delete Person where age is null").counts["deleted"] == 1
    assert set(ground.rows("Person")) == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        'delete Person where name = "nobody"',
        "delete Person where age > 99",
        'update Person set { age: 1 } where name = "nobody"',
        "update Person set { age: 1 } where age > 99",
        'delete Knows where from = "ada"',
        'delete Person where name in ["x", "y"]',
    ],
)
def test_s13_nothing_matched_is_success_without_commit(inline: MutationGround, text: str) -> None:
    inline.run(PEOPLE)
    outcome = inline.run(text)
    assert (outcome.commit_id, outcome.counts) == (None, {"inserted": 0, "updated": 0, "deleted": 0})
    assert len(inline.commits()) == 1


def test_conditions_combine(ground: MutationGround) -> None:
    ground.run(PEOPLE)
    assert (
        ground.run('update Person set { city: "x" } where age > 5 and age < 20 or name = "cy"').counts["updated"] == 2
    )
    assert ground.run('delete Person where name starts_with "c" or city contains "ond"').counts["deleted"] == 2
    assert set(ground.rows("Person")) == {"bob"}


def test_conditions_take_parameters(ground: MutationGround) -> None:
    ground.run(PEOPLE)
    source = "query q($names: [String], $age: I32) { update Person set { age: $age } where name in $names }"
    assert ground.graph.mutate(source, {"names": ["ada", "cy", "none"], "age": 1}).counts["updated"] == 2
    assert ground.column("Person", "age") == {"ada": 1, "bob": 10, "cy": 1}


def test_an_edge_is_upserted_and_moved_by_its_id(ground: MutationGround) -> None:
    ground.run(PEOPLE + 'insert Knows { id: "e", from: "ada", to: "bob", since: 1 }')
    assert ground.run('insert Knows { id: "e", from: "ada", to: "cy" }').counts["updated"] == 1
    assert ground.rows("Knows") == {"e": {"id": "e", "from": "ada", "to": "cy", "since": 1}}


# --- D₂ ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'insert Person { name: "x" } delete Person where name = "y"',
        'delete Person where name = "y" insert Person { name: "x" }',
        'update Person set { age: 1 } where name = "x" delete Knows where since = 1',
        'delete Knows where since = 1 delete Person where age = 1 insert Note { text: "x" }',
    ],
)
def test_s163_a_mix_of_insert_and_delete_is_refused_for_nothing(inline: MutationGround, text: str) -> None:
    """Not even the head is looked at. S163"""
    meter = MutationMeter(inline)
    error, cost = meter.refuses(f"query q() {{ {text} }}", ParseError)
    assert cost.requests == 0
    assert error.code == "D2"
    assert "g.transaction()" in str(error)
    assert "Split" in str(error)
    assert (error.details["line"], error.details["column"]) == (1, 13 + text.index(_odd(text)))


def _odd(text: str) -> str:
    """The first statement that is not of the first one's sort."""
    return "insert" if text.startswith("delete") else "delete"


def test_s163_pure_ones_pass(ground: MutationGround) -> None:
    ground.run(PEOPLE + 'update Person set { age: 1 } where name = "cy"')
    assert ground.run('delete Person where age = 1 delete Person where name = "ada"').counts["deleted"] == 2


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("query q($n: String) { insert Person { name: $n } }", "P1"),
        ('query q() { insert Person { name: "a" } } query r() { insert Person { name: "b" } }', "which_query"),
        ("query q() { insert }", "Q000"),
    ],
)
def test_bad_calls_cost_no_write(inline: MutationGround, source: str, code: str) -> None:
    meter = MutationMeter(inline)
    error, cost = meter.refuses(source, InvalidInput)
    assert error.code == code
    assert not any(request.kind == "PUT" for request in cost.log)


# --- statements from Python --------------------------------------------------------------------------------------


_EXISTING = InsertNode("Person", {"name": "ada"}, strict=True)
_UNKNOWN_TYPE = Delete("Nope", Compare("name", "=", "ada"))
_BAD_VALUE_THEN_UNKNOWN_NAME = And((Compare("age", "=", "old"), Compare("nope", "=", 1)))


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        ([_EXISTING, _UNKNOWN_TYPE], "key_conflict"),
        ([_UNKNOWN_TYPE, _EXISTING], "type_not_found"),
        ([_UNKNOWN_TYPE, InsertNode("Person", {"nope": 1})], "unknown_property"),
        ([InsertNode("Person"), InsertNode("Nope")], "OG-V-001"),
        ([Update("Person", {"age": "old", "nope": 1}, _BAD_VALUE_THEN_UNKNOWN_NAME)], "unknown_property"),
        ([Update("Person", {"name": "eve"}, _BAD_VALUE_THEN_UNKNOWN_NAME)], "key_immutable"),
        ([Update("Person", {}, _BAD_VALUE_THEN_UNKNOWN_NAME)], "OG-V-002"),
        ([Overwrite("Company", [{"name": "a", "size": 1}, {"name": "a", "size": 2}, {"nope": 1}])], "key_conflict"),
    ],
)
def test_apply_wrong_statements_raises_the_first_error(
    ground: MutationGround, statements: list[Statement], code: str
) -> None:
    """Inserts are checked before anything runs; every other statement when its turn comes."""
    ground.run(PEOPLE)
    with pytest.raises(OmnigraphError) as caught:
        ground.graph.apply(statements)
    assert caught.value.code == code


def test_apply_of_something_that_is_no_statement_is_refused(ground: MutationGround) -> None:
    with pytest.raises(InvalidInput, match="'insert' is not a statement"):
        ground.graph.apply(["insert"])  # type: ignore[list-item]
    assert ground.commits() == []
