"""Small commits that land during a load on Spark: its files are used again, unless they disturb it (S140)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import LoadRejected, ReadSetChanged
from omnigraph.upkeep.cleanup.retention import Policy
from tests.load.spark.loading import SCHEMA, contents, edge, node
from tests.load.spark.racing import INPUT, Race

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def race(tmp_path: Path) -> Race:
    return Race(tmp_path)


def test_files_are_used_again_over_commits_and_folds(race: Race) -> None:
    race.during(
        'insert Person { name: "new", age: 1 }',
        'update Person set { age: 44 } where name = "p4"',
        'insert Knows { from: "p0", to: "p2" }',
    )
    race.pauses.call_at("load.indexed", race.other.fold)
    race.pauses.call_at(
        "write.before-record", lambda: race.other.mutate('query q() { insert Person { name: "late" } }')
    )
    race.load()
    assert race.stagings == 1
    assert race.people() == {
        **{f"p{number}": number for number in range(4)},
        "p4": 44,
        "new": 1,
        "late": None,
        **{f"x{number}": number for number in range(20)},
    }
    indexes = {index["name"]: index for index in race.loader.snapshot(indexes=True)["tables"][0]["indexes"]}
    assert indexes["by_id"]["covered_rows"] >= 20
    kinds = [commit.kind for commit in race.loader.commits()]
    assert kinds.count("load") == 2


def test_replaced_rows_that_were_folded_meanwhile_are_there_once(race: Race) -> None:  # H4
    race.loader.mutate('query q() { insert Person { name: "o", age: 5 } }')  # only in the overlay
    race.pauses.call_at("load.indexed", race.other.fold)
    race.load([node("Person", name="o", age=6), node("Person", name="p0", age=60)], mode="merge")
    assert race.stagings == 1
    assert race.people() == {"o": 6, "p0": 60, **{f"p{number}": number for number in range(1, 5)}}


def test_the_same_row_written_meanwhile(race: Race) -> None:
    """A merge is done again on the new state: the result is that of the two, one after the other."""
    race.during('update Person set { email: "changed@x" } where name = "p1"')
    race.load([node("Person", name="p1", age=11), node("Person", name="y", age=1)], mode="merge")
    assert race.stagings == 2
    (row,) = [row for row in contents(race.loader, ["Person"])["Person"] if row["name"] == "p1"]
    assert (row["age"], row["email"]) == (11, "changed@x")


@pytest.mark.parametrize(
    ("mutation", "code"),
    [
        ('insert Person { name: "x3" }', "key_conflict"),
        ('insert Person { name: "z", email: "x3@x" }', "unique"),
        ('delete Person where name = "p2"', "endpoint"),
    ],
)
def test_commits_that_make_the_load_wrong_are_seen(race: Race, mutation: str, code: str) -> None:  # S140
    race.during(mutation)
    with pytest.raises(LoadRejected) as refused:
        race.load()
    assert refused.value.details["totals"][code] == (4 if code == "endpoint" else 1)
    assert race.stagings == 2
    assert not any(name.startswith("x") and name != "x3" for name in race.people())


def test_numbers_of_edges_are_counted_again(race: Race) -> None:
    race.during('insert Lives { from: "p1", to: "rome" }')
    with pytest.raises(LoadRejected) as refused:
        race.load([edge("Lives", "p1", "rome", "l1"), edge("Lives", "p2", "rome", "l2")])
    assert refused.value.details["totals"] == {"cardinality": 1}


def test_an_overwrite_decides_nothing_for_others(race: Race) -> None:
    race.during('insert Knows { from: "p0", to: "p2" }')
    with pytest.raises(ReadSetChanged) as refused:
        race.load([edge("Knows", "p1", "p2", "only")], mode="overwrite")
    assert refused.value.manifest_conflict is not None
    assert refused.value.manifest_conflict["table_key"] == "edge:Knows"
    race.load([edge("Knows", "p1", "p2", "only")], mode="overwrite")
    assert [row["id"] for row in contents(race.loader, ["Knows"])["Knows"]] == ["only"]


def test_a_schema_that_changes_meanwhile(race: Race) -> None:
    wider = SCHEMA.replace("node Note { text: String? }", "node Note { text: String?  mark: I32? }")
    race.pauses.call_at("load.indexed", lambda: race.other.schema.apply(wider))
    race.load([*INPUT, node("Note", id="n2", text="t")])
    assert race.stagings == 2
    assert len(race.people()) == 25


def test_files_that_cleanup_may_have_swept_are_not_named(race: Race) -> None:  # H35
    at_once = Policy(keep=1, older_than_s=0, margin_s=0, horizon_s=0, newest_records=1)
    race.pauses.call_at("load.indexed", lambda: race.other.cleanup(confirm=True, policy=at_once))
    race.load()
    assert race.stagings == 2
    assert len(race.people()) == 25


def test_a_writer_that_never_rests_does_not_starve_a_load(race: Race) -> None:  # S140
    number = iter(range(1000))

    def write() -> None:
        race.other.mutate(f'query q() {{ insert Person {{ name: "w{next(number)}" }} }}')

    for visit in range(1, 12):
        race.pauses.call_at("write.before-record", write, nth=visit)
    race.load()
    assert race.stagings == 1
    assert len(race.people()) == 25 + next(number)
