"""The facade's own tests of branches, merges, differences and history, on both graphs."""

from __future__ import annotations

import pytest

from omnigraph.errors import InvalidInput, MergeConflict, NotFound, PreconditionFailed
from omnigraph.history.feed import FeedLimits
from omnigraph.log.branches import BranchExists
from tests.server.bed import ADD, AGE, ALL, PEOPLE, Facade

BORN = "query born($n: String, $b: Date) { update Person set { born: $b } where name = $n }"


def _names(g: Facade) -> list[str]:
    return [row["name"] for row in g.query(ALL).rows]


def test_a_view_stays_where_it_is(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada"})
    then = g.view()
    g.mutate(ADD, {"n": "Bo"})
    assert _names(then) == ["Ada"]
    assert _names(g.view()) == ["Ada", "Bo"]
    assert then.commit_id == g.commits(2)[1].commit_id
    assert then.snapshot()["commit_id"] == then.commit_id


def test_two_handles_see_each_other(g: Facade) -> None:
    second_handle = g.on_branch("main")
    second_handle.mutate(ADD, {"n": "Ada"})
    assert _names(g) == ["Ada"]
    assert second_handle.branch_name == g.branch_name == "main"


def test_branches_that_cannot_be_made(g: Facade) -> None:
    g.branch.create("x")
    with pytest.raises(BranchExists):
        g.branch.create("x")
    for name in ("main", "", "a//b", "../x"):
        with pytest.raises((InvalidInput, BranchExists)):
            g.branch.create(name)
    with pytest.raises(NotFound):
        g.branch.create("y", "nothing")
    with pytest.raises(InvalidInput):
        g.branch.delete("main")
    assert g.branch.list() == ["main", "x"]


def test_a_branch_of_a_branch(g: Facade) -> None:
    x = g.branch.create("x")
    x.mutate(ADD, {"n": "Ada"})
    y = g.branch.create("y", "x")
    assert _names(y) == ["Ada"]
    g.branch.delete("x")
    assert _names(y) == ["Ada"]
    assert [commit.branch for commit in y.commits(1)] == ["y"]


def test_changes_of_different_properties_meet(g: Facade) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    x = g.branch.create("x")
    x.mutate(AGE, {"n": "Ada", "a": 2})
    g.mutate(BORN, {"n": "Ada", "b": "1815-12-10"})
    with pytest.raises(MergeConflict):
        g.branch.merge("x")
    before = g.refresh()
    preview = g.branch.merge("x", cell_level=True, dry_run=True)
    assert (preview.dry_run, preview.commit_id, g.refresh()) == (True, None, before)
    report = g.branch.merge("x", cell_level=True, delete_branch=True, message="both")
    assert (report.outcome, report.branch_deleted) == ("merged", True)
    assert g.query(ALL).rows == [{"name": "Ada", "age": 2}]
    assert [(commit.kind, commit.message, len(commit.parents)) for commit in g.commits(1)] == [("merge", "both", 2)]
    assert g.branch.list() == ["main"]


@pytest.mark.parametrize(("side", "age"), [("ours", 3), ("theirs", 2)])
def test_all_conflicts_settled_one_way(g: Facade, side: str, age: int) -> None:
    g.mutate(ADD, {"n": "Ada", "a": 1})
    x = g.branch.create("x")
    x.mutate(AGE, {"n": "Ada", "a": 2})
    g.mutate(AGE, {"n": "Ada", "a": 3})
    g.branch.merge("x", resolve=side)
    assert g.query(ALL).rows == [{"name": "Ada", "age": age}]


def test_a_merge_that_must_not_happen(g: Facade) -> None:
    x = g.branch.create("x")
    x.mutate(ADD, {"n": "Ada"})
    with pytest.raises(InvalidInput) as refused:
        g.branch.merge("main")
    assert refused.value.code == "self_merge"
    with pytest.raises(NotFound):
        g.branch.merge("nothing")
    with pytest.raises(PreconditionFailed):
        g.branch.merge("x", if_commit=x.refresh())
    assert _names(g) == []


def test_what_a_difference_is_asked_for(g: Facade) -> None:
    start = g.refresh()
    g.mutate(ADD, {"n": "Ada"})
    g.mutate(ADD, {"n": "Bo"})
    g.mutate('query k() { insert Knows { from: "Ada", to: "Bo" } }')
    g.mutate('query d() { insert Doc { name: "x" } }')
    kinds = {(change.kind, change.type) for change in g.diff(start)}
    assert kinds == {("node", "Person"), ("node", "Doc"), ("edge", "Knows")}
    assert [change.type for change in g.diff(start, kinds=["edge"])] == ["Knows"]
    assert [change.id for change in g.diff(start, types=["Doc"])] == ["x"]
    assert list(g.diff(start, ops=["update", "delete"])) == []
    back = list(g.diff("main", start, types=["Person"]))
    assert [(change.op, change.id, change.after) for change in back] == [
        ("delete", "Ada", None),
        ("delete", "Bo", None),
    ]
    with pytest.raises(NotFound):
        list(g.diff("main", "nothing"))


def test_pages_of_a_difference_stay_with_their_commits(g: Facade) -> None:
    start = g.refresh()
    g.mutate_many(ADD, [{"n": f"p{n}"} for n in range(5)])
    first = g.diff_page(start, "main", limit=2)
    g.mutate(ADD, {"n": "late"})
    second = g.diff_page(start, "main", limit=2, cursor=first.cursor)
    third = g.diff_page(start, "main", limit=2, cursor=second.cursor)
    ids = [change.id for page in (first, second, third) for change in page.changes]
    assert ids == [f"p{n}" for n in range(5)]
    assert (third.cursor, third.new) == (None, first.new)
    with pytest.raises(InvalidInput):
        g.diff_page(start, "main", cursor="nonsense")


def test_pages_of_the_feed(g: Facade) -> None:
    start = g.refresh()
    for number in range(3):
        g.mutate_many(ADD, [{"n": f"p{number}{n}"} for n in range(2)])
    page, ids = g.changes(start, limits=FeedLimits(commits=2)), []
    while page.commits:
        ids.append([len(commit.changes) for commit in page.commits])
        page = g.changes(page.cursor, limits=FeedLimits(commits=2))
    assert ids == [[2, 2], [2]]
    assert [len(commit.changes) for commit in g.changes(start, limits=FeedLimits(changes=1)).commits] == [2]


def test_which_commits(g: Facade) -> None:
    for name in ("Ada", "Bo", "Cy"):
        g.mutate(ADD, {"n": name}, message=name)
    g.branch.create("x").mutate(ADD, {"n": "Di"})
    assert [commit.message for commit in g.commits(2)] == ["Cy", "Bo"]
    assert len(g.commits(None)) == 4
    assert g.commits(0) == []
    assert [commit.branch for commit in g.on_branch("x").commits(branch="x")] == ["x", "x"]
    assert g.commits(actor="nobody") == []
    assert [commit.seq for commit in g.commits()] == [3, 2, 1, 0]


def test_a_schema_on_a_branch(g: Facade) -> None:
    wider = PEOPLE + "node City { name: String @key }\n"
    x = g.branch.create("x")
    newest = x.refresh()
    receipt = x.schema.apply(wider, if_commit=newest, client_key="wider")
    assert x.schema.apply(wider, client_key="wider").commit_id == receipt.commit_id
    assert (x.schema.source, g.schema.source) == (wider, PEOPLE)
    x.mutate('query c() { insert City { name: "Rome" } }')
    g.branch.merge("x")
    assert g.query("query q() { match { $c: City } return { $c.name as name } }").rows == [{"name": "Rome"}]
    with pytest.raises(PreconditionFailed):
        g.schema.apply(wider + "node Town { name: String @key }\n", if_commit=newest)
    with pytest.raises(InvalidInput):
        g.schema.apply("node Person { name: String @key  age: String? }\n")
    with pytest.raises(InvalidInput):
        g.schema.plan("node {")
    assert g.schema.source == wider
