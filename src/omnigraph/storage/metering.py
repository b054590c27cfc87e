"""Counts what an operation costs: requests by kind and key class, bytes, and sequential hops."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.clock import Clock, SystemClock
from omnigraph.storage.keys import KeyClass, classify
from omnigraph.storage.store import ObjectInfo, PutResult, Store


class RequestKind(StrEnum):
    GET = "GET"
    PUT = "PUT"
    LIST = "LIST"
    HEAD = "HEAD"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the store would bill it. Requests of the same `call` ran in parallel."""

    call: int
    kind: RequestKind
    key: str
    sent_bytes: int
    received_bytes: int
    started_s: float
    ended_s: float
    outcome: str  # "ok", "exists", or the error's code

    @property
    def key_class(self) -> KeyClass:
        return classify(self.key)


class Measurement:
    """The requests inside one window. The caller of Lance adds Lance's own requests."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self.lance_reads = 0
        self.lance_writes = 0
        self.lance_hops = 0

    def add_lance(self, read_iops: int, write_iops: int, hops: int = 0) -> None:
        """Add requests that Lance made itself, not through `Store`. Lance counts no hops: the caller may pass them."""
        with self._lock:
            self.lance_reads += read_iops
            self.lance_writes += write_iops
            self.lance_hops += hops

    @property
    def log(self) -> list[Request]:
        """Every request through `Store`, in order of completion; requests of Lance are only counted."""
        with self._lock:
            return list(self._requests)

    @property
    def requests(self) -> int:
        """All requests, Lance's included."""
        with self._lock:
            return len(self._requests) + self.lance_reads + self.lance_writes

    @property
    def by_kind(self) -> Counter[RequestKind]:
        return Counter(request.kind for request in self.log)

    @property
    def by_class(self) -> Counter[KeyClass]:
        return Counter(request.key_class for request in self.log)

    @property
    def by_kind_and_class(self) -> Counter[tuple[RequestKind, KeyClass]]:
        return Counter((request.kind, request.key_class) for request in self.log)

    @property
    def sent_bytes(self) -> int:
        return sum(request.sent_bytes for request in self.log)

    @property
    def received_bytes(self) -> int:
        return sum(request.received_bytes for request in self.log)

    @property
    def hops(self) -> int:
        """Sequential depth: the longest chain of requests none of which overlaps another."""
        return self.lance_hops + longest_chain(self.log)

    def describe(self) -> str:
        """One line for a failing cost test."""
        parts = [f"{count} {kind} {key_class}" for (kind, key_class), count in sorted(self.by_kind_and_class.items())]
        if self.lance_reads or self.lance_writes:
            parts.append(f"lance {self.lance_reads} reads {self.lance_writes} writes")
        return f"{self.label}: {self.requests} requests, {self.hops} hops ({', '.join(parts) or 'none'})"

    def _add(self, requests: Sequence[Request]) -> None:
        with self._lock:
            self._requests.extend(requests)


def longest_chain(requests: Sequence[Request]) -> int:
    """The greatest number of calls that ran strictly one after the other."""
    spans = {request.call: (request.ended_s, request.started_s) for request in requests}
    chain, free_at = 0, float("-inf")
    for ended_s, started_s in sorted(spans.values()):
        if started_s >= free_at:
            chain, free_at = chain + 1, ended_s
    return chain


_in_context: ContextVar[tuple[tuple[int, Measurement], ...]] = ContextVar("omnigraph_measurements", default=())


Listener = Callable[[Sequence[Request]], None]


class MeteredStore:
    """Passes every request on and records it in the open windows; costs almost nothing while none is open.

    `listener` is called with the requests of every call when it has ended, in the thread and context of the call.
    """

    def __init__(self, inner: Store, clock: Clock | None = None, listener: Listener | None = None) -> None:
        self._inner = inner
        self._clock = clock or SystemClock()
        self._listener = listener
        self._lock = threading.Lock()
        self._windows: tuple[Measurement, ...] = ()
        self._calls = 0

    @property
    def root(self) -> str:
        return self._inner.root

    @property
    def inner(self) -> Store:
        return self._inner

    @contextmanager
    def measure(self, label: str = "", *, this_context_only: bool = False) -> Iterator[Measurement]:
        """Record requests until the block ends: of all threads, or only of this context and contexts copied from it."""
        window = Measurement(label)
        if this_context_only:
            token = _in_context.set((*_in_context.get(), (id(self), window)))
            try:
                yield window
            finally:
                _in_context.reset(token)
            return
        with self._lock:
            self._windows = (*self._windows, window)
        try:
            yield window
        finally:
            with self._lock:
                self._windows = tuple(open_window for open_window in self._windows if open_window is not window)

    def get(self, key: str) -> bytes:
        call = self._begin(RequestKind.GET, key)
        if call is None:
            return self._inner.get(key)
        with call:
            data = self._inner.get(key)
            call.received_bytes = len(data)
            return data

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        call = self._begin(RequestKind.GET, *keys)
        if call is None:
            return self._inner.get_many(keys)
        with call:
            objects = self._inner.get_many(keys)
            call.parts = [("object_missing", 0) if data is None else ("ok", len(data)) for data in objects]
            return objects

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        call = self._begin(RequestKind.PUT, key, sent_bytes=len(data))
        if call is None:
            return self._inner.put_if_absent(key, data)
        with call:
            result = self._inner.put_if_absent(key, data)
            if result is PutResult.EXISTS:
                call.outcome = "exists"
            return result

    def put(self, key: str, data: bytes) -> None:
        call = self._begin(RequestKind.PUT, key, sent_bytes=len(data))
        if call is None:
            return self._inner.put(key, data)
        with call:
            return self._inner.put(key, data)

    def head(self, key: str) -> ObjectInfo:
        call = self._begin(RequestKind.HEAD, key)
        if call is None:
            return self._inner.head(key)
        with call:
            return self._inner.head(key)

    def list(self, prefix: str, *, first_page: bool = False) -> list[ObjectInfo]:
        call = self._begin(RequestKind.LIST, prefix)
        if call is None:
            return self._inner.list(prefix, first_page=first_page)
        with call:
            return self._inner.list(prefix, first_page=first_page)

    def delete(self, key: str) -> None:
        call = self._begin(RequestKind.DELETE, key)
        if call is None:
            return self._inner.delete(key)
        with call:
            return self._inner.delete(key)

    def _begin(self, kind: RequestKind, *keys: str, sent_bytes: int = 0) -> _Call | None:
        windows = self._windows
        if context_windows := _in_context.get():
            windows += tuple(window for meter, window in context_windows if meter == id(self))
        if not keys or not (windows or self._listener):
            return None
        with self._lock:
            self._calls += 1
            number = self._calls
        hearers = tuple(window._add for window in windows)
        return _Call(
            number, kind, keys, sent_bytes, (*hearers, self._listener) if self._listener else hearers, self._clock
        )


class _Call:
    """One call in flight; when it ends it becomes one `Request` per key."""

    __slots__ = (
        "_clock", "_hearers", "_keys", "_kind", "_number", "_sent_bytes", "_started_s",
        "outcome", "parts", "received_bytes",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        kind: RequestKind,
        keys: tuple[str, ...],
        sent_bytes: int,
        hearers: tuple[Listener, ...],
        clock: Clock,
    ) -> None:
        self._number, self._kind, self._keys, self._sent_bytes = number, kind, keys, sent_bytes
        self._hearers, self._clock = hearers, clock
        self._started_s = 0.0
        self.outcome = "ok"
        self.received_bytes = 0
        self.parts: list[tuple[str, int]] | None = None

    def __enter__(self) -> None:
        self._started_s = self._clock.monotonic()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        ended_s = self._clock.monotonic()
        outcome = self.outcome if error is None else str(getattr(error, "code", type(error).__name__))
        parts = self.parts or [(outcome, self.received_bytes)] * len(self._keys)
        requests = [
            Request(self._number, self._kind, key, self._sent_bytes, received, self._started_s, ended_s, result)
            for key, (result, received) in zip(self._keys, parts, strict=True)
        ]
        for hear in self._hearers:
            hear(requests)
