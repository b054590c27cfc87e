"""Merge bases: criss-cross, nested sources, deleted and re-created branches. S63, S72, S73, S77, S86–S88, S92."""

from __future__ import annotations

import pytest

from omnigraph.log.commit_record import CommitRecord, parse_commit_id
from omnigraph.log.lineage import RecordCache, merge_bases
from tests.history.bed import (
    MergeBed,
    change,
    conflicts_of,
    content,
    forget,
    kinds_of,
    knows,
    people,
    rows,
    tables_touched,
)


def bases(bed: MergeBed, first_branch: str, second_branch: str) -> list[str]:
    runtime = bed.main._runtime

    def record(branch: str) -> CommitRecord:
        stream, seq = parse_commit_id(bed.on(branch).refresh())
        return runtime.records(stream).record(seq)

    return [
        merge_base.commit_id
        for merge_base in merge_bases(RecordCache(runtime.records), [record(first_branch)], record(second_branch))
    ]


def cross(bed: MergeBed, first_branch: str, second_branch: str, tag: str) -> None:
    """Merge both ways from the heads as they are now, which gives the two heads two common ancestors."""
    bed.fork(f"old-{tag}", first_branch)
    bed.merge(second_branch, first_branch)
    bed.merge(f"old-{tag}", second_branch)
    bed.main.branch.delete(f"old-{tag}")


@pytest.mark.parametrize("layout", ["inline", "folded", "staged"])
def test_three_rounds_of_criss_cross_have_no_false_conflict(bed: MergeBed, layout: str) -> None:
    bed.fork("work")
    for round_ in range(3):
        bed.on("work", layout).apply([change("Alice", age=round_), *people(f"w{round_}")])
        bed.on("main", layout).apply([change("Bob", age=round_), *people(f"m{round_}")])
        cross(bed, "main", "work", str(round_))
        assert len(bases(bed, "main", "work")) == 2
        assert content(bed.main) == content(bed.on("work"))
    bed.on("work").apply([change("Alice", age=9)])
    assert bed.merge("work").outcome == "merged"
    assert rows(bed.main, "Person")["Alice"]["age"] == 9
    assert bed.merge("main", "work").outcome == "fast_forward"
    assert content(bed.main) == content(bed.on("work"))


def test_bases_that_disagree_leave_the_row_to_people(bed: MergeBed) -> None:
    bed.fork("work").apply([change("Alice", age=1, nick="w")])
    bed.main.apply([change("Alice", age=2)])
    bed.fork("old", "main")
    bed.merge("work", "main", resolve="ours")
    bed.merge("old", "work", resolve="ours")
    assert len(bases(bed, "main", "work")) == 2
    assert kinds_of(conflicts_of(lambda: bed.merge("work"))) == [("divergent_update", "Alice")]
    assert kinds_of(conflicts_of(lambda: bed.merge("work", cell_level=True))) == [("divergent_update", "Alice")]
    bed.merge("work", resolve="theirs")
    assert rows(bed.main, "Person")["Alice"]["age"] == 1


def test_bases_that_disagree_do_not_matter_where_both_sides_agree(bed: MergeBed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.main.apply([change("Alice", age=2)])
    bed.fork("old", "main")
    bed.merge("work", "main", resolve="ours")
    bed.merge("old", "work", resolve="theirs")
    bed.on("work").apply([change("Bob", age=5)])
    assert bed.merge("work").outcome == "merged"
    assert {name: rows(bed.main, "Person")[name]["age"] for name in ("Alice", "Bob")} == {"Alice": 2, "Bob": 5}


def test_three_bases(bed: MergeBed) -> None:
    for number, who in enumerate(("Alice", "Bob", "Carol")):
        bed.fork(f"b{number}").apply([change(who, age=number)])
    bed.on("b1").apply([change("Dan", age=1)])
    bed.merge("b1", "b2")
    bed.on("b2").apply([change("Dan", age=2)])
    for side in ("x", "y"):
        bed.fork(side)
        for number in range(3):
            bed.merge(f"b{number}", side)
    assert content(bed.on("x")) == content(bed.on("y"))
    bed.on("x").apply([change("Dan", age=3)])
    assert bed.merge("x", "y").outcome == "merged"
    assert rows(bed.on("y"), "Person")["Dan"]["age"] == 3


def test_the_base_outlives_the_branch_between(bed: MergeBed) -> None:
    middle = bed.fork("middle")
    middle.apply([change("Alice", age=1)])
    bed.fork("leaf", "middle").apply([change("Bob", age=1)])
    bed.main.branch.delete("middle")
    bed.main.apply([change("Carol", age=1)])
    assert bed.merge("leaf").outcome == "merged"
    ages = {name: row["age"] for name, row in rows(bed.main, "Person").items()}
    assert ages == {"Alice": 1, "Bob": 1, "Carol": 1, "Dan": None}


def test_siblings_of_a_deleted_branch(bed: MergeBed) -> None:
    bed.fork("middle").apply([change("Alice", age=1)])
    bed.fork("one", "middle").apply([change("Bob", age=1)])
    bed.fork("two", "middle").apply([change("Carol", age=1), change("Alice", age=2)])
    bed.main.branch.delete("middle")
    assert bed.merge("one", "two").outcome == "merged"
    ages = {name: row["age"] for name, row in rows(bed.on("two"), "Person").items()}
    assert ages == {"Alice": 2, "Bob": 1, "Carol": 1, "Dan": None}


def test_nested_sources(bed: MergeBed) -> None:
    bed.fork("outer").apply([change("Alice", age=1)])
    bed.fork("inner", "outer").apply([change("Bob", age=1)])
    assert bed.merge("inner", "outer").outcome == "fast_forward"
    bed.on("inner").apply([change("Carol", age=1)])
    assert bed.merge("outer").outcome == "fast_forward"
    assert bed.merge("inner").outcome == "merged"
    ages = {name: row["age"] for name, row in rows(bed.main, "Person").items()}
    assert ages == {"Alice": 1, "Bob": 1, "Carol": 1, "Dan": None}
    assert bed.merge("outer").outcome == "already_up_to_date"


def test_forward_then_both_then_again(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.apply([change("Alice", age=1)])
    assert bed.merge("work").outcome == "fast_forward"
    work.apply([change("Alice", age=2)])
    bed.main.apply([change("Bob", age=2)])
    assert bed.merge("work").outcome == "merged"
    work.apply([change("Alice", age=3)])
    assert bed.merge("work").outcome == "merged"
    assert rows(bed.main, "Person")["Alice"]["age"] == 3


def test_merge_delete_make_again_by_the_same_name_merge(bed: MergeBed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.merge("work", delete_branch=True)
    bed.fork("work").apply([change("Alice", age=2), change("Bob", age=2)])
    bed.main.apply([change("Carol", age=2)])
    assert bed.merge("work").outcome == "merged"
    ages = {name: row["age"] for name, row in rows(bed.main, "Person").items()}
    assert ages == {"Alice": 2, "Bob": 2, "Carol": 2, "Dan": None}


def test_folds_are_no_commits_to_merge(bed: MergeBed) -> None:
    work = bed.fork("work")
    work.fold()
    assert bed.merge("work").outcome == "already_up_to_date"
    bed.main.fold()
    work.apply([change("Alice", age=1)])
    assert bed.merge("work").outcome == "fast_forward"
    work.fold()
    assert bed.merge("work").outcome == "already_up_to_date"
    assert bed.merge("main", "work").outcome in ("fast_forward", "already_up_to_date")


@pytest.mark.parametrize("with_delta", [False, True])
@pytest.mark.parametrize("target_moved", [False, True])
def test_net_zero_source(bed: MergeBed, with_delta: bool, target_moved: bool) -> None:
    work = bed.fork("work")
    work.apply([knows("Dan", "Alice", "d-a")])
    work.apply([forget("Dan", "Alice")])
    if with_delta:
        work.apply([change("Dan", age=1)])
    if target_moved:
        bed.on("main", "staged").apply([knows("Alice", "Dan", "a-d")])
    pins = {table["table_key"]: table["version"] for table in bed.main.snapshot()["tables"]}
    report = bed.merge("work")
    assert report.outcome == ("merged" if target_moved else "fast_forward")
    after = {table["table_key"]: table["version"] for table in bed.main.snapshot()["tables"]}
    # A table with a delta may be taken over whole; the one with none stays where it is.
    assert {table for table in pins if after[table] != pins[table]} <= ({"node:Person"} if with_delta else set())
    assert report.counts["updated"] == with_delta
    assert set(tables_touched(bed.main)) == ({"node:Person"} if with_delta else set())
    assert bed.merge("work").outcome == "already_up_to_date"


def test_merges_commute_on_content(bed: MergeBed) -> None:
    bed.fork("one").apply([change("Alice", age=1), *people("x"), forget("Bob", "Carol")])
    bed.fork("two").apply([change("Bob", age=1), *people("y"), knows("Alice", "Dan", "a-d")])
    start = bed.main.refresh()
    for target, order in (("left", ("one", "two")), ("right", ("two", "one"))):
        bed.fork(target, start)
        for source in order:
            bed.merge(source, target)
    assert content(bed.on("left")) == content(bed.on("right"))
    union = {(c.type, c.id, c.op) for branch in ("one", "two") for c in bed.main.diff(start, branch)}
    assert {(c.type, c.id, c.op) for c in bed.main.diff(start, "left")} == union


def test_merge_into_another_branch_than_main(bed: MergeBed) -> None:
    bed.fork("one").apply([change("Alice", age=1)])
    bed.fork("two").apply([change("Bob", age=1)])
    before = content(bed.main)
    bed.merge("one", "two")
    assert content(bed.main) == before
    assert rows(bed.on("two"), "Person")["Alice"]["age"] == 1
    assert "merge" not in {commit.kind for commit in bed.main.commits()}
