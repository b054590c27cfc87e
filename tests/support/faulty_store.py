"""A store that fails on purpose, at an exact request or at random, in every way that a real one does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.errors import Forbidden, Unavailable
from omnigraph.storage.keys import KeyClass, classify
from omnigraph.storage.metering import RequestKind
from omnigraph.storage.store import ObjectInfo, PutResult, Store


class Fault(StrEnum):
    """What goes wrong with one request."""

    FAIL_BEFORE = "fail_before"  # no effect, the caller sees Unavailable
    LOSE_ANSWER = "lose_answer"  # the effect happened, the caller sees Unavailable
    EXISTS_WITHOUT_EFFECT = "exists_without_effect"  # 409: nothing landed, the caller sees EXISTS
    EXISTS_AFTER_EFFECT = "exists_after_effect"  # 412 after an own success: landed, the caller sees EXISTS
    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    FORBID = "forbid"
    CORRUPT = "corrupt"  # one byte of the answer is wrong
    TRUNCATE = "truncate"  # the second half of the answer is missing


EFFECTS = frozenset({RequestKind.PUT, RequestKind.DELETE})
KILLS = frozenset({Fault.KILL_BEFORE, Fault.KILL_AFTER})

_CONDITIONAL_ONLY = frozenset({Fault.EXISTS_WITHOUT_EFFECT, Fault.EXISTS_AFTER_EFFECT})
_READ_ONLY = frozenset({Fault.CORRUPT, Fault.TRUNCATE})


@dataclass(frozen=True, slots=True)
class FaultHit:
    """One fault that happened; `number` counts all requests of the store."""

    number: int
    fault: Fault
    kind: RequestKind
    key: str


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """The requests that a fault may hit; None means any."""

    kinds: Collection[RequestKind] | None = None
    key_classes: Collection[KeyClass] | None = None

    def matches(self, kind: RequestKind, key: str) -> bool:
        return (self.kinds is None or kind in self.kinds) and (
            self.key_classes is None or classify(key) in self.key_classes
        )


class FaultPlan:
    """Decides for each request, in order, whether it fails and how.

    Counting never restarts. A sweep makes a plan for n = 1, 2, … and ends when the operation has run with
    `plan.hits` still empty: then every request it makes has been hit once.
    """

    def __init__(self, *choosers: Callable[[RequestKind, str, bool], Fault | None]) -> None:
        self._choosers = choosers
        self._lock = threading.Lock()
        self._hits: list[FaultHit] = []
        self._request_count = 0

    @classmethod
    def none(cls) -> FaultPlan:
        return cls()

    @classmethod
    def at(
        cls,
        n: int,
        fault: Fault,
        *,
        kinds: Collection[RequestKind] | None = None,
        key_classes: Collection[KeyClass] | None = None,
        times: int | None = 1,
    ) -> FaultPlan:
        """Hit the n-th request (from 1) that matches and that `fault` can happen to, and the `times` - 1 after it.

        `times=None` is an outage without end.
        """
        if n < 1:
            raise ValueError(f"requests are counted from 1, not {n}")
        request_filter, matched = RequestFilter(kinds, key_classes), 0

        def choose(kind: RequestKind, key: str, conditional: bool) -> Fault | None:
            nonlocal matched
            if not (_can_happen(fault, kind, conditional) and request_filter.matches(kind, key)):
                return None
            matched += 1
            return fault if n <= matched and (times is None or matched < n + times) else None

        return cls(choose)

    @classmethod
    def rates(
        cls,
        rates: Mapping[Fault, float],
        roll: Callable[[], float],
        *,
        kinds: Collection[RequestKind] | None = None,
        key_classes: Collection[KeyClass] | None = None,
    ) -> FaultPlan:
        """Hit matching requests at random: each fault with its own rate, `roll` answering numbers in [0, 1)."""
        request_filter = RequestFilter(kinds, key_classes)

        def choose(kind: RequestKind, key: str, conditional: bool) -> Fault | None:
            if not request_filter.matches(kind, key):
                return None
            rolled = roll()
            for fault, rate in rates.items():
                if not _can_happen(fault, kind, conditional):
                    continue
                if rolled < rate:
                    return fault
                rolled -= rate
            return None

        return cls(choose)

    def also(self, fault_plan: FaultPlan) -> FaultPlan:
        """Both plans on one store; where both would hit the same request, the first one does."""
        return FaultPlan(*self._choosers, *fault_plan._choosers)

    @property
    def hits(self) -> list[FaultHit]:
        with self._lock:
            return list(self._hits)

    @property
    def request_count(self) -> int:
        """Requests so far, hit or not."""
        with self._lock:
            return self._request_count

    def decide(self, kind: RequestKind, key: str, *, conditional: bool = False) -> Fault | None:
        """Count one request and say what happens to it."""
        with self._lock:
            self._request_count += 1
            # Every chooser counts every request, so all are asked even after one has chosen.
            decisions = [choose(kind, key, conditional) for choose in self._choosers]
            fault = next((decision for decision in decisions if decision is not None), None)
            if fault is not None:
                self._hits.append(FaultHit(self._request_count, fault, kind, key))
            return fault


class FaultyStore:
    """Passes requests on unless the plan says otherwise. Each key of `get_many` is a request of its own."""

    def __init__(self, inner: Store, plan: FaultPlan) -> None:
        self._inner = inner
        self.plan = plan

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def inner(self) -> Store:
        return self._inner

    def get(self, key: str) -> bytes:
        fault = self.plan.decide(RequestKind.GET, key)
        _before(fault, key)
        data = self._inner.get(key)
        _after(fault, key)
        return _spoil(fault, data)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        faults = [self.plan.decide(RequestKind.GET, key) for key in keys]
        for fault, key in zip(faults, keys, strict=True):
            _before(fault, key)
        many = self._inner.get_many(keys)
        for fault, key in zip(faults, keys, strict=True):
            _after(fault, key)
        return [data and _spoil(fault, data) for fault, data in zip(faults, many, strict=True)]

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        fault = self.plan.decide(RequestKind.PUT, key, conditional=True)
        _before(fault, key)
        if fault is Fault.EXISTS_WITHOUT_EFFECT:
            return PutResult.EXISTS
        result = self._inner.put_if_absent(key, data)
        _after(fault, key)
        return PutResult.EXISTS if fault is Fault.EXISTS_AFTER_EFFECT else result

    def put(self, key: str, data: bytes) -> None:
        fault = self.plan.decide(RequestKind.PUT, key)
        _before(fault, key)
        self._inner.put(key, data)
        _after(fault, key)

    def head(self, key: str) -> ObjectInfo:
        fault = self.plan.decide(RequestKind.HEAD, key)
        _before(fault, key)
        info = self._inner.head(key)
        _after(fault, key)
        return info

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        fault = self.plan.decide(RequestKind.LIST, prefix)
        _before(fault, prefix)
        objects = self._inner.list(prefix, first_page=first_page)
        _after(fault, prefix)
        return objects

    def delete(self, key: str) -> None:
        fault = self.plan.decide(RequestKind.DELETE, key)
        _before(fault, key)
        self._inner.delete(key)
        _after(fault, key)


def _can_happen(fault: Fault, kind: RequestKind, conditional: bool) -> bool:
    if fault in _CONDITIONAL_ONLY:
        return conditional
    return kind is RequestKind.GET if fault in _READ_ONLY else True


def _before(fault: Fault | None, key: str) -> None:
    if fault is Fault.KILL_BEFORE:
        _kill()
    if fault is Fault.FAIL_BEFORE:
        raise Unavailable(f"injected: no answer about {key!r}, nothing happened", code="injected_fault")
    if fault is Fault.FORBID:
        raise Forbidden(f"injected: not allowed to touch {key!r}", code="injected_fault")


def _after(fault: Fault | None, key: str) -> None:
    if fault is Fault.KILL_AFTER:
        _kill()
    if fault is Fault.LOSE_ANSWER:
        raise Unavailable(f"injected: no answer about {key!r}, but it happened", code="injected_fault")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _spoil(fault: Fault | None, data: bytes) -> bytes:
    if fault is Fault.TRUNCATE:
        return data[: len(data) // 2]
    if fault is Fault.CORRUPT and data:
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
    return data
