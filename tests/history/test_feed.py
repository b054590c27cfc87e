"""The change feed: order, pages, resuming, gaps. S64, S120–S123."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import InvalidInput
from omnigraph.history.feed import ChangeFeedGap, FeedLimits, Page, decode_cursor, encode_cursor, page_to_json
from omnigraph.log.commit_record import CommitRecord, Stub, decode_record
from omnigraph.log.stream import record_key
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.store import Store
from tests.history.bed import QUIET, MergeBed, change, content, difference, people, remove, rows


def ids(page: Page) -> list[list[str]]:
    return [[change.id for change in commit.changes] for commit in page.commits]


def read_all(graph: Graph, limits: FeedLimits, since: str | None = None) -> tuple[list[list[str]], int]:
    """All that is left, and the number of pages."""
    found: list[list[str]] = []
    for pages in range(1, 100):
        page = graph.changes(since, limits=limits)
        found, since = found + ids(page), page.cursor
        if not page.more:
            return found, pages
    raise AssertionError("the feed does not end")


def test_commits_in_order_each_with_its_changes(bed: MergeBed) -> None:
    bed.main.apply([change("Alice", age=1)], actor="ada")
    bed.main.fold()
    bed.main.apply([remove("Bob")])
    page = bed.main.changes()
    assert ids(page) == [["b-c", "Alice", "Bob", "Carol", "Dan"], ["Alice"], ["b-c", "Bob"]]
    assert [commit.commit.actor for commit in page.commits] == [None, "ada", None]
    assert not page.more
    later = bed.main.changes(page.cursor)
    assert (later.commits, later.cursor, later.more) == ((), page.cursor, False)
    bed.main.apply(people("Eve"))
    assert ids(bed.main.changes(page.cursor)) == [["Eve"]]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7])
def test_pages_cut_between_commits_only(bed: MergeBed, size: int) -> None:
    start = bed.main.changes().cursor
    for number in range(6):
        bed.main.apply(people(*(f"{number}{one}" for one in "abcde"[: 1 + number % 3])))
    all_ids = ids(bed.main.changes(start))
    for limits in (FeedLimits(changes=size), FeedLimits(commits=size), FeedLimits(size_bytes=200 * size)):
        found, pages = read_all(bed.main, limits, start)
        assert found == all_ids
        if limits.commits == size:
            assert pages == 6 // size + 1
    wide = bed.main.changes(start, limits=FeedLimits(changes=3))
    assert (ids(wide), wide.more) == ([["0a"], ["1a", "1b"]], True)


def test_a_large_commit_is_alone_in_its_page(bed: MergeBed) -> None:
    start = bed.main.changes().cursor
    bed.main.apply(people("x"))
    bed.main.apply(people(*(f"p{number}" for number in range(20))))
    bed.main.apply(people("y"))
    limits = FeedLimits(changes=5)
    sizes = []
    while True:
        page = bed.main.changes(start, limits=limits)
        start = page.cursor
        sizes.append([len(commit.changes) for commit in page.commits])
        if not page.more:
            break
    assert sizes == [[1], [20], [1]]


def test_many_folds_between_do_not_end_the_feed(bed: MergeBed) -> None:
    start = bed.main.changes().cursor
    for number in range(5):
        bed.on("main", "folded").apply(people(f"f{number}"))
        bed.main.fold()
    limits = FeedLimits(commits=2)
    assert read_all(bed.main, limits, start)[0] == [[f"f{number}"] for number in range(5)]


def test_more_is_said_though_a_page_met_folds_only(bed: MergeBed) -> None:
    # 1 commit per page looks at 2 records: both are upkeep, and the commit behind them must not be missed.
    start = bed.main.changes().cursor
    bed.main.fold()
    bed.main.optimize()
    for _ in range(2):
        with_claim = bed.on("main")
        with_claim._runtime.release(
            with_claim._branch, with_claim._runtime.claim(with_claim._branch, WriteOptions()), WriteOptions()
        )
    bed.main.apply(people("x"))
    assert read_all(bed.main, FeedLimits(commits=1), start)[0] == [["x"]]


def test_a_merge_is_told_against_its_first_parent(bed: MergeBed) -> None:
    bed.fork("work").apply([change("Alice", age=1)])
    bed.on("work").apply(people("Eve"))
    bed.main.apply([change("Bob", age=1)])
    start = bed.main.changes().cursor
    bed.merge("work")
    page = bed.main.changes(start)
    assert ids(page) == [["Alice", "Eve"]]
    assert page.commits[0].commit.kind == "merge"
    assert ids(bed.on("work").changes()) == [["Alice"], ["Eve"]]


def test_a_cursor_survives_restarts_and_commit_ids_are_cursors_too(bed: MergeBed, tmp_path: Path) -> None:
    page = bed.main.changes()
    actor = _actor(bed.place)[0]
    bed.main.apply(people("Eve"))
    assert ids(actor.changes(page.cursor)) == [["Eve"]]
    assert ids(actor.changes(page.commits[-1].commit.commit_id)) == [["Eve"]]
    assert decode_cursor(encode_cursor(page.commits[-1].commit.ref)) == page.commits[-1].commit.ref


@pytest.mark.parametrize("text", ["", "x", "!!!", "W10", "bnVsbA", "WzIsICJhIiwgMSwgImIiXQ", "a.b.c", "a.-1", "ä"])
def test_a_text_that_is_no_cursor(bed: MergeBed, text: str) -> None:
    with pytest.raises(InvalidInput):
        bed.main.changes(text)


def test_a_branch_made_again_has_a_gap(bed: MergeBed) -> None:
    old = bed.fork("work")
    old.apply([change("Alice", age=1)])
    cursor = old.changes().cursor
    bed.main.branch.delete("work")
    last = old.changes(cursor)
    assert [commit.commit.kind for commit in last.commits] == ["close"]
    with pytest.raises(ChangeFeedGap):
        old.changes(last.cursor)
    bed.fork("work").apply([change("Alice", age=2)])
    for one in (cursor, last.cursor):
        with pytest.raises(ChangeFeedGap) as caught:
            bed.on("work").changes(one)
        assert caught.value.code == "change_feed_gap"
    with pytest.raises(ChangeFeedGap):
        bed.main.changes(cursor)


def test_collected_commits_are_a_gap_and_the_graph_a_new_start(bed: MergeBed) -> None:
    first = bed.main.changes().cursor
    for number in range(3):
        bed.main.apply([change("Alice", age=number)])
    graph, meter = _actor(bed.place)
    cursor_ref = decode_cursor(first)
    key = record_key(cursor_ref.stream, cursor_ref.seq + 1)
    record = decode_record(meter.get(key), key)
    assert isinstance(record, CommitRecord)
    meter.delete(key)
    meter.put_if_absent(key, Stub(record.header).encode())
    with pytest.raises(ChangeFeedGap, match="collected"):
        graph.changes(first)
    with pytest.raises(ChangeFeedGap, match="collected"):
        graph.changes(record.commit_id)
    view = graph.view()
    bed.main.apply([change("Bob", age=1)])
    assert ids(graph.changes(view.commit_id)) == [["Bob"]]


def test_the_feed_rebuilds_the_graph(bed: MergeBed) -> None:
    for number, layout in enumerate(("inline", "folded", "staged", "inline")):
        bed.on("main", layout).apply([change("Alice", age=number), *people(f"n{number}")])
    bed.main.apply([remove("Bob"), remove("n1")])
    state: dict[str, dict[str, object]] = {}
    for commit in bed.main.changes().commits:
        for one in commit.changes:
            rows_of = state.setdefault(one.type, {})
            if one.after is None:
                del rows_of[one.id]
            else:
                rows_of[one.id] = one.after
    now = content(bed.main)
    assert {kind: found for kind, found in state.items() if found} == {
        kind: found for kind, found in now.items() if found
    }
    assert difference({}, now)


def test_the_page_as_json(bed: MergeBed) -> None:
    document = page_to_json(bed.main.changes())
    assert list(document) == ["commits", "cursor", "more"]
    assert list(document["commits"][0]) == [
        "commit_id", "parents", "kind", "actor", "created_at", "message", "changes",
    ]  # fmt: skip
    assert rows(bed.main, "Person")


def _actor(path: Path) -> tuple[Graph, MeteredStore]:
    meters: list[MeteredStore] = []

    def meter(store: Store) -> Store:
        meters.append(MeteredStore(store))
        return meters[-1]

    backend = make_backend(str(path), None, QUIET, wrap=meter)
    runtime = GraphRuntime.open(backend, read_only=False)
    return Graph(runtime, runtime.branch("main")), meters[0]


@pytest.mark.parametrize("depth", [5, 100])
def test_a_caught_up_poll_costs_two_gets(bed: MergeBed, depth: int) -> None:
    for number in range(depth):
        bed.main.apply([change("Alice", age=number)])
    graph, meter = _actor(bed.place)
    cursor = encode_cursor(graph.view().state.record.ref)
    with meter.measure() as measured:
        assert graph.changes(cursor).commits == ()
    assert measured.requests == 2
