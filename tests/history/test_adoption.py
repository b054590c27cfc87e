"""Tables that the target left alone are taken over as they are: a pin, no rows. S77, S84, H1, H5, H35."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.api import Graph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import OmnigraphError
from omnigraph.history.decide_row import MergeOptions
from omnigraph.history.merge import Merge
from omnigraph.log.commit_record import CommitRecord
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.retention import Policy
from tests.history.bed import MergeBed, change, content, kinds_of, knows, people, remove, rows
from tests.history.bed import conflicts_of as refused
from tests.history.test_races import actor

COLLECT = Policy(margin_s=0, horizon_s=0, newest_records=1)


def head(graph: Graph) -> CommitRecord:
    return graph.view().state.record


def table_of(graph: Graph, name: str) -> str:
    return next(type_def.id for type_def in graph.view().catalog.types if type_def.name == name)


def version(graph: Graph, name: str = "Person") -> str | None:
    pin = head(graph).pins.get(table_of(graph, name))
    return pin.version if pin else None


def data_files(path: Path) -> set[str]:
    return {str(one.relative_to(path)) for one in (path / "tables").rglob("*") if one.is_file()}


@pytest.fixture
def work(bed: MergeBed) -> Graph:
    """A branch whose people are in a table of their own, with one change in the record on top."""
    bed.fork("work")
    bed.on("work", "staged").apply([change("Alice", age=1), *people("Eve"), remove("Dan")])
    bed.on("work").apply([change("Bob", age=2)])
    return bed.on("work")


def test_the_pin_is_taken_over_and_no_row_is_written(bed: MergeBed, work: Graph) -> None:
    before, source_content = data_files(bed.place), content(work)
    report = bed.merge("work")
    assert report.counts == {"inserted": 1, "updated": 2, "deleted": 1}
    assert version(bed.main) == version(work)
    assert data_files(bed.place) == before
    assert content(bed.main) == source_content
    assert head(bed.main).pins[table_of(work, "Person")].rows == 4
    assert bed.main.verify(deep=True).ok


def test_entries_new_to_the_target_get_its_own_rid(bed: MergeBed, work: Graph) -> None:
    # H1: seqs and rids of another stream mean nothing here; what both had already stays as it was.
    main = bed.main
    entry_keys = {table: entries.entry_keys for table, entries in head(main).overlay.items()}
    bed.merge("work")
    record = head(main)
    for table, entries in record.overlay.items():
        new = entries.entry_keys - entry_keys.get(table, frozenset())
        assert {rid for _, rid in new} <= {record.rid}
    assert {row_id for row_id, rid in record.overlay[table_of(main, "Person")].entry_keys if rid == record.rid} == {
        "Bob"
    }


def test_both_branches_go_on_by_themselves(bed: MergeBed, work: Graph) -> None:
    bed.merge("work")
    for layout in ("staged", "folded", "inline"):
        bed.on("main", layout).apply([change("Alice", nick=layout)])
        bed.on("work", layout).apply([change("Bob", nick=layout)])
        bed.on("main").fold()
    assert {name: row["nick"] for name, row in rows(bed.main, "Person").items()} == {
        "Alice": "inline", "Bob": None, "Carol": None, "Eve": None,
    }  # fmt: skip
    bed.merge("work")
    assert rows(bed.main, "Person")["Bob"]["nick"] == "inline"
    assert rows(bed.on("work"), "Person")["Alice"]["nick"] is None
    assert bed.main.verify(deep=True).ok


def test_a_table_that_the_target_changed_is_merged_row_by_row(bed: MergeBed, work: Graph) -> None:
    bed.main.apply([change("Carol", age=3)])
    bed.merge("work")
    assert version(bed.main) != version(work)
    ages = {name: row["age"] for name, row in rows(bed.main, "Person").items()}
    assert ages == {"Alice": 1, "Bob": 2, "Carol": 3, "Eve": None}


def test_another_table_of_the_target_may_have_changed(bed: MergeBed, work: Graph) -> None:
    bed.main.apply([knows("Alice", "Bob", "a-b")])
    assert bed.merge("work").outcome == "merged"
    assert version(bed.main) == version(work)
    assert rows(bed.main, "Knows")["a-b"]["from"] == "Alice"


def test_what_is_taken_over_is_checked_all_the_same(bed: MergeBed, work: Graph) -> None:
    before = content(bed.main)
    bed.main.apply([knows("Dan", "Alice", "d-a")])
    assert kinds_of(refused(lambda: bed.merge("work"))) == [("orphan_edge", "d-a")]
    assert content(bed.main) != before
    assert version(bed.main) != version(work)


def test_a_fold_of_the_target_meanwhile(bed: MergeBed, work: Graph) -> None:
    # The pin that the merge would replace is another one then: it is prepared again, and copies rows.
    source_content = content(work)
    merger, pauses = actor(bed.place)
    pauses.call_at("write.before-record", lambda: bed.main.fold())
    assert merger.branch.merge("work").outcome == "fast_forward"
    assert content(bed.main) == source_content
    assert bed.main.verify(deep=True).ok


def test_a_late_fold_of_the_target_does_not_undo_it(bed: MergeBed, work: Graph) -> None:
    # H1, H5: the fold has staged entries that the source folded by itself or replaced.
    source_content = content(work)
    folder, pauses = actor(bed.place)
    pauses.call_at("fold.before-record", lambda: bed.merge("work"))
    folder.fold()
    assert content(bed.main) == source_content
    bed.main.fold()
    assert content(bed.main) == source_content
    assert bed.main.verify(deep=True).ok


def test_a_write_to_the_table_meanwhile(bed: MergeBed, work: Graph) -> None:
    merger, pauses = actor(bed.place)
    pauses.call_at("write.before-record", lambda: bed.main.apply([change("Carol", age=9)]))
    assert merger.branch.merge("work").outcome == "merged"
    assert rows(bed.main, "Person")["Carol"]["age"] == 9
    assert rows(bed.main, "Person")["Alice"]["age"] == 1


@pytest.mark.parametrize("point", ["write.captured", "write.validated", "write.before-record"])
@pytest.mark.parametrize("runs", [1, 2, 3, 6])
def test_cleanup_of_a_deleted_source_meanwhile(bed: MergeBed, work: Graph, point: str, runs: int) -> None:
    # H35: whatever cleanup has come to, main never names a file that goes.
    before, source_content = content(bed.main), content(work)
    merger, pauses = actor(bed.place)

    def collect() -> None:
        bed.main.branch.delete("work")
        for _ in range(runs):
            Cleanup(bed.main._runtime, replace(COLLECT, keep=1)).run()

    pauses.call_at(point, collect)
    try:
        merger.branch.merge("work")
        expected = source_content
    except OmnigraphError:
        assert runs > 1, "while its files are there a captured source can be merged"
        expected = before
    for _ in range(6):
        Cleanup(bed.main._runtime, replace(COLLECT, keep=1)).run()
    assert content(bed.main) == expected
    assert bed.main.verify(deep=True).ok


def test_a_source_captured_before_and_merged_while_its_files_go(bed: MergeBed, work: Graph) -> None:
    # H35: the target was captured after the last fence, so no fence can stop the plan. The look at the source does.
    source_content, pinned = content(work), version(work)
    runtime = bed.main._runtime
    merge = Merge(runtime.backend, runtime.catalogs, runtime.records, head(work), MergeOptions())
    bed.main.branch.delete("work")
    collector, pauses = actor(bed.place)
    target = runtime.branch("main")
    runs = 0
    while not Cleanup(collector._runtime, replace(COLLECT, keep=1)).preview().deletes:
        Cleanup(collector._runtime, replace(COLLECT, keep=1)).run()
        runs += 1
        assert runs < 6

    def merge_now() -> None:
        target.publisher.refresh()
        target.writer.run(merge, WriteOptions())

    pauses.call_at("cleanup.marked", merge_now)
    Cleanup(collector._runtime, replace(COLLECT, keep=1)).run()
    assert version(bed.main) != pinned
    assert content(bed.main) == source_content
    assert bed.main.verify(deep=True).ok


def test_after_a_criss_cross(bed: MergeBed, work: Graph) -> None:
    bed.main.apply([knows("Alice", "Bob", "a-b")])
    bed.fork("old", "main")
    bed.merge("work", "main")
    bed.merge("old", "work")
    bed.on("work", "staged").apply([change("Eve", age=5)])
    assert bed.merge("work").outcome == "merged"
    assert content(bed.main) == content(bed.on("work"))
    assert bed.main.verify(deep=True).ok
