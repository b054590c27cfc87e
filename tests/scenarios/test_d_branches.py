"""Scenarios D: branches. S61 to S69."""

from __future__ import annotations

from functools import partial

import pytest

from omnigraph.errors import BranchClosed, InvalidInput, NotFound, OmnigraphError
from omnigraph.log.branches import BranchExists
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import RequestKind
from tests.scenarios.bed import (
    WAIT_S,
    ScenarioBed,
    at_once,
    company,
    knows,
    outcomes,
    person,
    rows_of,
    set_age,
    without,
)
from tests.support.faulty_store import Fault, FaultPlan


def test_s61_create_open_and_list(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    created = main.graph.branch.create("dev", actor="ada", message="try it")
    assert created.branch_name == "dev"
    assert main.graph.branch.list() == local_bed.process().graph.branch.list() == ["dev", "main"]
    assert local_bed.ages("dev") == {"a": 1}
    (fork, *_) = local_bed.process("dev").graph.commits()
    assert (fork.kind, fork.actor, fork.message, fork.branch) == ("fork", "ada", "try it", "dev")
    assert fork.parents == (main.graph.view().commit_id,)


def test_s61_from_a_branch_that_is_not_main_it_inherits_that_state(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    dev = main.graph.branch.create("dev")
    dev.apply([person("b", 2), set_age("a", 10)])
    main.apply(person("c", 3))
    dev.branch.create("sub")
    main.graph.branch.create("other", "dev")
    for name in ("sub", "other"):
        assert local_bed.ages(name) == {"a": 10, "b": 2}
    kinds = [info.kind for info in local_bed.process("sub").graph.commits(None) if info.kind != "fold"]
    assert kinds == ["fork", "mutate", "fork", "mutate", "init"]


def test_s61_from_any_commit(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    commits = [main.apply(person("a", age)).commit_id for age in range(4)]
    for age, commit_id in enumerate(commits):
        main.graph.branch.create(f"at{age}", commit_id)
        assert local_bed.ages(f"at{age}") == {"a": age}
    with pytest.raises(NotFound):
        main.graph.branch.create("never", f"{main.head.stream}.999")
    with pytest.raises(NotFound):
        main.graph.branch.create("never", "no-such-branch")
    assert "never" not in main.graph.branch.list()


def test_s61_creation_touches_no_table_and_costs_two_puts(local_bed: ScenarioBed) -> None:
    main = local_bed.process(staged=True)
    main.apply(person("a"), company("c"))
    before = set(local_bed.place.all_keys())
    with main.meter.measure() as cost:
        main.graph.branch.create("dev")
    assert local_bed.ages("dev") == {"a": None}, "it is there"
    assert cost.by_kind[RequestKind.PUT] == 2
    assert cost.by_kind[RequestKind.LIST] <= 1
    assert {key.split("/")[0] for key in set(local_bed.place.all_keys()) - before} == {"__manifest", "__branches"}


def test_s62_writes_on_a_branch_leave_others_untouched(local_bed: ScenarioBed) -> None:
    main = local_bed.process(staged=True)
    main.apply(person("a", 1), company("x", 1))
    main.graph.branch.create("dev")
    dev = local_bed.process("dev", staged=True)
    before = main.head
    dev.apply(set_age("a", 2), person("b", 3))
    assert main.head is before
    assert local_bed.ages() == {"a": 1}
    assert local_bed.ages("dev") == {"a": 2, "b": 3}
    moved = {table for table, pin in dev.head.pins.items() if pin.version != before.pins[table].version}
    assert [table.split(".")[1].split("-")[0] for table in moved] == ["person"], "only the touched table diverges"
    main.apply(without("a"))
    assert local_bed.ages("dev") == {"a": 2, "b": 3}
    local_bed.assert_sound()


def test_s63_branch_of_branch_of_branch_outlives_its_ancestors(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    created = main.graph.branch.create("one")
    created.apply([person("b", 2)])
    second = created.branch.create("two")
    second.apply([person("c", 3), knows("a", "c")])
    three = second.branch.create("three")
    three.apply([person("d", 4)])
    history = [info.commit_id for info in three.commits(None)]
    main.graph.branch.delete("one")
    main.graph.branch.delete("two")
    assert main.graph.branch.list() == ["main", "three"]
    assert local_bed.ages("three") == {"a": 1, "b": 2, "c": 3, "d": 4}
    fresh = local_bed.process("three").graph
    assert [info.commit_id for info in fresh.commits(None)][-len(history) :] == history, "merge bases stay"
    for commit_id in history:
        fresh.at(commit_id).snapshot()
    fresh.apply([person("e", 5), without("c")])
    assert local_bed.ages("three") == {"a": 1, "b": 2, "d": 4, "e": 5}
    local_bed.assert_sound()


def test_s64_a_re_created_name_never_aliases_the_old_branch(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    main.graph.branch.create("dev")
    old, idle = local_bed.process("dev"), local_bed.process("dev")
    old.apply(person("old", 9))
    view = old.graph.view()
    old_rows = rows_of(view, "Person")
    main.graph.branch.delete("dev")
    main.graph.branch.create("dev")
    new = local_bed.process("dev")
    new.apply(person("new", 5))
    for handle in (old, idle):
        for attempt in (
            handle.graph.view,
            partial(handle.graph.table, "Person"),
            partial(handle.apply, person("stray")),
            partial(handle.apply, without("nobody")),
            handle.graph.commits,
            handle.graph.snapshot,
            handle.graph.transaction().__enter__,
        ):
            with pytest.raises(BranchClosed) as caught:
                attempt()
            assert caught.value.advice
    assert rows_of(view, "Person") == old_rows, "a pinned view is a commit, not a branch"
    assert local_bed.ages("dev") == {"a": 1, "new": 5}
    assert rows_of(old.graph.on_branch("dev"), "Person").keys() == {"a", "new"}, "by name it is the new one"
    local_bed.assert_sound()


@pytest.mark.parametrize("staged", [False, True], ids=["inline", "staged"])
@pytest.mark.parametrize("point", ["write.captured", "write.validated", "write.before-record"])
def test_s64_a_writer_in_flight_is_fenced(local_bed: ScenarioBed, staged: bool, point: str) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    main.graph.branch.create("dev")
    writer = local_bed.process("dev", staged=staged)
    with writer.hold_at(point, lambda: writer.apply(person("late"))) as running:
        main.graph.branch.delete("dev")
        main.graph.branch.create("dev")
    assert isinstance(running.exception(WAIT_S), BranchClosed)
    assert local_bed.ages("dev") == {"a": 1}
    local_bed.assert_sound()


def test_s64_a_fold_in_flight_is_fenced(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.graph.branch.create("dev")
    dev = local_bed.process("dev", fold="never")
    dev.apply(person("a", 1))
    with dev.hold_at("fold.before-record", dev.graph.fold) as running:
        main.graph.branch.delete("dev")
    assert running.exception(WAIT_S) is None or isinstance(running.exception(), BranchClosed)
    local_bed.assert_sound()


def test_s65_a_crash_inside_create_leaves_nothing_and_the_name_is_free(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    victim = local_bed.process()
    victim.crash_at("branch.create.before-registry", partial(victim.graph.branch.create, "dev"))
    assert local_bed.process().graph.branch.list() == ["main"]
    with pytest.raises(NotFound):
        local_bed.process("dev")
    local_bed.process().graph.branch.create("dev")
    assert local_bed.ages("dev") == {"a": 1}


@pytest.mark.parametrize("next_step", ["open", "delete", "create", "write", "list"])
def test_s65_a_crash_inside_delete_is_completed_by_whoever_comes_next(local_bed: ScenarioBed, next_step: str) -> None:
    """The stream is closed, the registry says live. Nobody may write there, and the name can be used again."""
    main = local_bed.process()
    main.apply(person("a", 1))
    main.graph.branch.create("dev")
    old = local_bed.process("dev")
    old.apply(person("b", 2))
    victim = local_bed.process()
    victim.crash_at("branch.delete.before-registry", partial(victim.graph.branch.delete, "dev"))
    fresh = local_bed.process()
    if next_step == "open":
        with pytest.raises(NotFound):
            fresh.graph.on_branch("dev")
        assert local_bed.process().graph.branch.list() == ["main"]
    elif next_step == "delete":
        with pytest.raises(NotFound):
            fresh.graph.branch.delete("dev")
    elif next_step == "write":
        with pytest.raises(BranchClosed):
            old.apply(person("c"))
    elif next_step == "list":
        assert set(fresh.graph.branch.list()) <= {"dev", "main"}
    local_bed.process().graph.branch.create("dev")
    assert local_bed.ages("dev") == {"a": 1}
    local_bed.assert_sound()


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT])
@pytest.mark.parametrize("key_class", [KeyClass.RECORD, KeyClass.REGISTRY])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_s65_lost_answers_of_create_and_delete(
    local_bed: ScenarioBed, fault: Fault, key_class: KeyClass, verb: str
) -> None:
    main = local_bed.process()
    main.apply(person("a", 1))
    if verb == "delete":
        main.graph.branch.create("dev")
    plan = main.fail(FaultPlan.at(1, fault, kinds=[RequestKind.PUT], key_classes=[key_class]))
    getattr(main.graph.branch, verb)("dev")
    assert len(plan.hits) == 1
    main.fail(FaultPlan.none())
    fresh = local_bed.process()
    assert fresh.graph.branch.list() == (["dev", "main"] if verb == "create" else ["main"])
    if verb == "create":
        assert local_bed.ages("dev") == {"a": 1}
        fresh.graph.branch.delete("dev")
    fresh.graph.branch.create("dev")
    assert local_bed.ages("dev") == {"a": 1}


def test_s65_racing_creates_of_one_name_have_one_winner(local_bed: ScenarioBed) -> None:
    makers = [local_bed.process() for _ in range(6)]
    successes, failed = outcomes(at_once(local_bed, [partial(maker.graph.branch.create, "dev") for maker in makers]))
    assert len(successes) == 1
    assert all(isinstance(error, BranchExists) for error in failed), failed
    successes[0].apply([person("a", 1)])
    assert local_bed.ages("dev") == {"a": 1}


def test_s65_racing_deletes_end_with_the_branch_gone(local_bed: ScenarioBed) -> None:
    makers = [local_bed.process() for _ in range(4)]
    makers[0].graph.branch.create("dev")
    _, failed = outcomes(at_once(local_bed, [partial(maker.graph.branch.delete, "dev") for maker in makers]))
    assert all(isinstance(error, NotFound) for error in failed), failed
    assert local_bed.process().graph.branch.list() == ["main"]
    makers[0].graph.branch.create("dev")
    assert local_bed.process().graph.branch.list() == ["dev", "main"]


BAD_NAMES = [
    "", "/", "a/", "/a", "a//b", ".", "..", "a/..", "../a", "a..b", "-a", "__manifest", "__x", "a b", "a\tb", "a\nb",
    "a\x00b", "a\\b", "a:b", "a*b", "a?b", "a[b", "a~b", "a^b", "a\"b", "a|b", "a<b", "a{b", "end.", "x" * 256,
    "ü" * 128, "a\u200bb", "01ARZ3NDEKTSV4RRFFQ69G5FAV.3",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:24])
def test_s66_dangerous_names_are_refused(local_bed: ScenarioBed, name: str) -> None:
    main = local_bed.process()
    before = local_bed.place.all_keys()
    with pytest.raises(InvalidInput) as caught:
        main.graph.branch.create(name)
    assert caught.value.code == "bad_branch_name"
    assert caught.value.advice
    for attempt in (main.graph.on_branch, main.graph.branch.delete):
        with pytest.raises(OmnigraphError):
            attempt(name)
    assert local_bed.place.all_keys() == before


@pytest.mark.parametrize("name", ["main", "MAIN", "Main"])
def test_s66_main_is_reserved(local_bed: ScenarioBed, name: str) -> None:
    main = local_bed.process()
    for attempt in (main.graph.branch.create, main.graph.branch.delete):
        with pytest.raises(InvalidInput) as caught:
            attempt(name)
        assert caught.value.code == "reserved_branch"


GOOD_NAMES = [
    "a",
    "a/b",
    "a/b/c",
    "a.b",
    "a-b",
    "a_b",
    "1",
    "feature/x-1",
    "Ünïcode",
    "日本",
    "a%2Fb",
    "x" * 200,
    "head",
    "tables",
]


def test_s66_names_that_share_a_prefix_are_independent(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    for number, name in enumerate(GOOD_NAMES):
        main.graph.branch.create(name).apply([person(f"row{number}")])
    assert main.graph.branch.list() == sorted([*GOOD_NAMES, "main"])
    for number, name in enumerate(GOOD_NAMES):
        assert set(local_bed.ages(name)) == {f"row{number}"}
    main.graph.branch.delete("a")
    main.graph.branch.delete("a/b/c")
    assert set(local_bed.ages("a/b")) == {"row1"}
    with pytest.raises(NotFound):
        main.graph.on_branch("a")
    assert main.graph.branch.list() == sorted({*GOOD_NAMES, "main"} - {"a", "a/b/c"})


def test_s66_names_that_differ_only_by_case_are_refused(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.graph.branch.create("Review")
    with pytest.raises(BranchExists, match="Review"):
        main.graph.branch.create("review")
    with pytest.raises(NotFound):
        main.graph.on_branch("review")
    main.graph.branch.delete("Review")
    main.graph.branch.create("review")
    assert main.graph.branch.list() == ["main", "review"]
    with pytest.raises(NotFound):
        main.graph.on_branch("Review")


def test_s67_one_handle_reads_several_branches(local_bed: ScenarioBed) -> None:
    main = local_bed.process().graph
    main.apply([person("a", 1)])
    dev = main.branch.create("dev")
    dev_commit = dev.apply([set_age("a", 2)]).commit_id
    main.apply([set_age("a", 3)])
    assert dev_commit is not None
    assert rows_of(main, "Person")["a"]["age"] == 3
    assert rows_of(main.on_branch("dev"), "Person")["a"]["age"] == 2
    assert rows_of(main.at(dev_commit), "Person")["a"]["age"] == 2
    assert rows_of(dev.on_branch("main"), "Person")["a"]["age"] == 3
    assert (main.branch_name, dev.branch_name) == ("main", "dev")
    with pytest.raises(NotFound) as caught:
        main.on_branch("nowhere")
    assert caught.value.code == "branch_not_found"


def test_s68_writes_accumulate_neither_branches_nor_refs(local_bed: ScenarioBed) -> None:
    main = local_bed.process(fold="never")
    main.apply(person("a", 0))
    before = local_bed.place.all_keys()
    for age in range(1, 21):
        main.apply(person("a", age), client_key=f"k{age}")
    added = set(local_bed.place.all_keys()) - set(before)
    assert len(added) == 20
    assert {key.split("/")[0] for key in added} == {"__manifest"}
    assert local_bed.process().graph.branch.list() == ["main"]
    staged = local_bed.process(staged=True, fold="never")
    for age in range(5):
        staged.apply(person("a", age))
    tops = {key.split("/")[0] for key in local_bed.place.all_keys()}
    assert tops == {"__manifest", "graph.json", "schemas", "tables"}
    assert local_bed.process().graph.branch.list() == ["main"]


def _cost_of_delete(bed: ScenarioBed, name: str) -> tuple[int, int, int, int]:
    process = bed.process()
    process.graph.on_branch(name)
    with process.meter.measure() as cost:
        process.graph.branch.delete(name)
    assert name not in bed.process().graph.branch.list(), "it was deleted"
    kinds = cost.by_kind
    return kinds[RequestKind.PUT], kinds[RequestKind.GET], kinds[RequestKind.LIST], kinds[RequestKind.DELETE]


def test_s69_deleting_costs_the_same_with_few_and_with_many_branches(local_bed: ScenarioBed) -> None:
    main = local_bed.process()
    main.apply(person("a"), company("c"))
    main.graph.branch.create("first")
    few = _cost_of_delete(local_bed, "first")
    for number in range(40):
        main.graph.branch.create(f"b{number}")
    many = _cost_of_delete(local_bed, "b20")
    assert few == many
    assert few[0] == 2
    assert few[3] == 0
