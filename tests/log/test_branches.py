"""The registry of branches: even numbers create, odd numbers delete, names never alias."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import Corruption, InvalidInput, NotFound, Unknown
from omnigraph.log.branches import BranchEntry, BranchExists, Registry, check_branch_name
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore, RequestKind
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> MeteredStore:
    return MeteredStore(LocalStore(tmp_path / "graph", fsync=False))


def _registry(store: object, patience_s: float = 5.0) -> Registry:
    return Registry(store, SystemClock(), patience_s)  # type: ignore[arg-type]


@pytest.fixture
def registry(store: MeteredStore) -> Registry:
    return _registry(store)


def test_an_empty_registry(registry: Registry) -> None:
    assert registry.names() == []
    assert registry.find("dev") is None
    with pytest.raises(NotFound):
        registry.live("dev")


def test_create_costs_one_put(registry: Registry, store: MeteredStore) -> None:
    with store.measure() as cost:
        entry = registry.create("dev", "s1")
    assert entry == BranchEntry("dev", 0, "s1")
    assert entry.alive
    assert cost.by_kind == {RequestKind.PUT: 1}
    assert registry.live("dev") == entry


def test_create_delete_create_never_aliases(registry: Registry) -> None:
    entry = registry.create("dev", "s0")
    for incarnation in range(1, 4):
        registry.end_life(entry)
        rows = registry.find("dev")
        assert rows is not None
        assert not rows.alive
        assert rows.stream == entry.stream
        with pytest.raises(NotFound):
            registry.live("dev")
        assert registry.names() == []
        entry = registry.create("dev", f"s{incarnation}")
        assert entry == BranchEntry("dev", 2 * incarnation, f"s{incarnation}")
        assert registry.names() == ["dev"]


def test_a_taken_name_is_refused(registry: Registry) -> None:
    registry.create("dev", "s1")
    with pytest.raises(BranchExists):
        registry.create("dev", "s2")
    assert registry.live("dev").stream == "s1"


def test_creating_the_same_stream_again_is_the_same_branch(registry: Registry) -> None:
    """A lost answer that is repeated."""
    assert registry.create("dev", "s1") == registry.create("dev", "s1")


def test_an_end_entry_ends_exactly_one_life(registry: Registry) -> None:
    first = registry.create("dev", "s1")
    registry.end_life(first)
    registry.end_life(first)
    second = registry.create("dev", "s2")
    registry.end_life(first)
    assert registry.live("dev") == second, "a late deletion of the first does not touch the second"


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.EXISTS_AFTER_EFFECT, Fault.EXISTS_WITHOUT_EFFECT])
@pytest.mark.parametrize("times", [1, 2])
def test_unclear_answers_are_looked_into(store: MeteredStore, fault: Fault, times: int) -> None:
    faulty = FaultyStore(store, FaultPlan.at(1, fault, kinds=[RequestKind.PUT], times=times))
    entry = _registry(faulty).create("dev", "s1")
    assert _registry(store).live("dev") == entry
    faulty.plan = FaultPlan.at(1, fault, kinds=[RequestKind.PUT], times=times)
    _registry(faulty).end_life(entry)
    assert _registry(store).names() == []


def test_a_store_that_never_tells_is_unknown(store: MeteredStore) -> None:
    faulty = FaultyStore(store, FaultPlan.at(1, Fault.FAIL_BEFORE, kinds=[RequestKind.PUT], times=None))
    with pytest.raises(Unknown) as caught:
        _registry(faulty, patience_s=0.1).create("dev", "s1")
    assert caught.value.advice


def test_names_are_listed_in_order_in_one_listing(registry: Registry, store: MeteredStore) -> None:
    for name in ("b", "a/b", "a", "Ünï", "a%2Fb"):
        registry.create(name, f"s-{name}")
    registry.end_life(registry.live("b"))
    with store.measure() as cost:
        assert registry.names() == sorted(["a/b", "a", "Ünï", "a%2Fb"])
    assert cost.by_kind[RequestKind.LIST] == 1
    assert cost.hops == 2


def test_case_matters_but_may_not_differ_alone(registry: Registry) -> None:
    registry.create("Dev", "s1")
    with pytest.raises(BranchExists, match="only by case"):
        registry.create("dEV", "s2")
    with pytest.raises(NotFound):
        registry.live("dev")
    assert registry.names() == ["Dev"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": "dev"}', b"\xff\xff"])
def test_a_damaged_entry_is_named(registry: Registry, store: MeteredStore, content: bytes) -> None:
    registry.create("dev", "s1")
    store.put("__branches/dev/00000000.json", content)
    with pytest.raises(Corruption, match="dev"):
        registry.live("dev")


def test_a_stranger_in_the_registry_is_named(registry: Registry, store: MeteredStore) -> None:
    registry.create("dev", "s1")
    store.put("__branches/dev/readme.txt", b"x")
    with pytest.raises(Corruption, match="readme"):
        registry.live("dev")


@pytest.mark.parametrize("name", ["a", "a/b", "x.y", "v1.2.3", "-".join("abc"), "ä" * 40, "a" * 240, "main2"])
def test_names_that_may_be(name: str) -> None:
    check_branch_name(name)


@pytest.mark.parametrize("name", ["", "a//b", "a/./b", "a/../b", "..", "-x", "__x", "a.", "a b", "a\u202eb", "a" * 256])
def test_names_that_may_not_be(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_branch_name(name)
    assert (caught.value.code, caught.value.details["name"]) == ("bad_branch_name", name)
