"""The counters are right and the checker bites: one request too many fails the very check that the tests use. S143."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from omnigraph.api import Graph
from omnigraph.commit.publish_plan import Receipt
from omnigraph.storage.store import ObjectInfo, ObjectMissing, PutResult, Store
from tests.cost.budget import Budget, Cost, OverBudget
from tests.cost.ground import CostGround, MeteredActor
from tests.cost.operations import ALL, BRANCH_CREATE, INSERT, INSERT_STAGED, READ, CostedOperation, measure, warm

A = TypeVar("A")
Act = Callable[..., MeteredActor]
KINDS = ("GET", "PUT", "LIST", "HEAD", "DELETE")
SPARE_KEY = "__manifest/spare/0000000000000000.rec"


class Wasteful:
    """A store whose first call after `armed` sends one request more, before, or beside it."""

    def __init__(self, inner: Store, kind: str, *, beside: bool = False) -> None:
        self._inner = inner
        self._kind = kind
        self._beside = beside
        self.armed = False

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def inner(self) -> Store:
        return self._inner

    def get(self, key: str) -> bytes:
        return self._with_waste(lambda: self._inner.get(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return self._with_waste(lambda: self._inner.get_many(keys))

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self._with_waste(lambda: self._inner.put_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._with_waste(lambda: self._inner.put(key, data))

    def head(self, key: str) -> ObjectInfo:
        return self._with_waste(lambda: self._inner.head(key))

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        return self._with_waste(lambda: self._inner.list(prefix, first_page=first_page))

    def delete(self, key: str) -> None:
        self._with_waste(lambda: self._inner.delete(key))

    def _with_waste(self, call: Callable[[], A]) -> A:
        armed, self.armed = self.armed, False
        if not armed:
            return call()
        if not self._beside:
            self._waste()
            return call()
        thread = threading.Thread(target=self._waste)
        thread.start()
        try:
            return call()
        finally:
            thread.join()

    def _waste(self) -> None:
        requests: dict[str, Callable[[], object]] = {
            "GET": lambda: self._inner.get(SPARE_KEY),
            "PUT": lambda: self._inner.put(SPARE_KEY, b""),
            "LIST": lambda: self._inner.list("__manifest/"),
            "HEAD": lambda: self._inner.head(SPARE_KEY),
            "DELETE": lambda: self._inner.delete(SPARE_KEY),
        }
        try:
            requests[self._kind]()
        except ObjectMissing:
            return


class Serial:
    """A store that lets one request run at a time: what should be parallel waits in turn."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        attr = getattr(self._inner, name)
        if not callable(attr):
            return attr

        def alone(*args: Any, **options: Any) -> Any:
            with self._lock:
                return attr(*args, **options)

        return alone


def _wasting(operation: CostedOperation, store: Wasteful) -> CostedOperation:
    def act(graph: Graph, tag: str) -> Any:
        store.armed = True
        return operation.act(graph, tag)

    return replace(operation, act=act)


def _open_with(ground: CostGround, layer: Callable[[Store], Store], operation: CostedOperation) -> MeteredActor:
    actor = MeteredActor(ground, operation.config, layer=layer).open()
    warm(actor)
    return actor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beside", [False, True], ids=["before", "beside"])
@pytest.mark.parametrize("operation", [INSERT, INSERT_STAGED, BRANCH_CREATE, READ], ids=str)
def test_one_request_more_is_over_budget(
    operation: CostedOperation, beside: bool, kind: str, ground: CostGround
) -> None:
    layers: list[Wasteful] = []

    def layer(store: Store) -> Store:
        layers.append(Wasteful(store, kind, beside=beside))
        return layers[-1]

    actor = _open_with(ground, layer, operation)
    measure(actor, operation)
    with pytest.raises(OverBudget, match=f" {kind} instead of"):
        measure(actor, _wasting(operation, layers[0]))
    actor.close()


def test_what_should_be_parallel_and_is_not_is_over_budget(ground: CostGround) -> None:
    actor = _open_with(ground, Serial, BRANCH_CREATE)
    with pytest.raises(OverBudget, match="4 hops instead of at most 2"):
        measure(actor, BRANCH_CREATE)
    actor.close()


def test_a_read_by_lance_is_over_budget(ground: CostGround, act_on: Act) -> None:
    actor, cold = act_on(ground), act_on(ground)
    warm(actor)

    def act(graph: Graph, tag: str) -> Receipt:
        record = graph._branch.publisher.head
        actor.backend.tables.close()  # forgets what it opened
        for table, pin in record.pins.items():
            actor.backend.tables.open(table, pin.version or "")
        receipt: Receipt = INSERT.act(graph, tag)
        return receipt

    with pytest.raises(OverBudget, match="reads by Lance instead of at most 0"):
        measure(actor, replace(INSERT, act=act))
    assert cold.graph.table("Note").count() > 1


def test_a_write_that_did_not_land_is_no_measurement(ground: CostGround, act_on: Act) -> None:
    """A refused write is cheap, so it must never pass for the cost of a write."""
    nothing = replace(INSERT, act=lambda _graph, _tag: Receipt(None, {"inserted": 0, "updated": 0}))
    with pytest.raises(AssertionError, match="had no effect"):
        measure(act_on(ground), nothing)
    invented = replace(
        INSERT, act=lambda graph, _tag: Receipt(f"{graph._branch.entry.stream}.99999", {"inserted": 1, "updated": 0})
    )
    with pytest.raises(AssertionError, match="had no effect"):
        measure(act_on(ground), invented)


def test_an_unmentioned_request_may_not_happen() -> None:
    for kind in KINDS:
        assert Budget(hops=9).breaches(Cost.of({(kind, "record"): 1}, 1))
    for part in ("table", "table-data", "table-index"):
        assert Budget(hops=9).breaches(Cost.of({("GET", part): 1}, 1))
        assert Budget(hops=9).breaches(Cost.of({("PUT", part): 1}, 1))


def test_exactly_also_means_not_less() -> None:
    assert Budget(puts=1, exactly=True).breaches(Cost.of({}, 0)) == ["0 PUT instead of exactly 1"]
    assert not Budget(puts=1).breaches(Cost.of({}, 0))


def test_a_listing_counts_whoever_asks() -> None:
    assert Budget(table_reads=5).breaches(Cost.of({("LIST", "table-manifest"): 1}, 1)) == [
        "1 LIST instead of at most 0"
    ]


def test_intents_are_never_touched_by_small_operations() -> None:
    assert Budget(puts=1, gets=1, lists=1).breaches(Cost.of({("LIST", "intent"): 1}, 1)) == ["1 LIST of intent"]


def test_every_operation_bounds_its_hops() -> None:
    assert [operation.name for operation in ALL if operation.budget.hops is None] == []
