"""Turns verbs that block into verbs that are awaited, with the same names, parameters and results.

A class of the facade has a twin whose attributes say, verb by verb, how it is awaited. Parameters and results come from
the verb itself, so a type checker sees those of the facade and no signature is written twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from omnigraph.api.asynchronous.threads import CallQueue, ThreadRunner, Threads

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T", bound="Twin")
C = TypeVar("C", bound=Callable[..., object])

_BATCH = 256


class Twin:
    """An object of the facade and the threads that run its verbs.

    `get_target` returns the object. It is called in a thread as well, because it may raise.
    """

    def __init__(self, get_target: Callable[[], Any], threads: ThreadRunner) -> None:
        self._get_target = get_target
        self._threads = threads


class ClosableTwin(Twin):
    """A twin that a caller closes. The twin that was opened owns the threads; twins made from it share them."""

    _owned_threads: Threads | None = None

    def owning(self, threads: Threads) -> Self:
        self._owned_threads = threads
        return self

    async def close(self) -> None:
        """Wait for running calls, then release the threads. Handles that were made from this one end with it."""
        if self._owned_threads is None:
            await self._threads.run(self._close_target)
        elif not self._owned_threads.is_shut_down:
            # An exclusive branch is released after the writes that need it.
            await self._owned_threads.wait_until_idle()
            await self._threads.run(self._close_target)
            self._owned_threads.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _close_target(self) -> None:
        """Close the object of the facade; runs in a thread."""


class _Verb(Generic[P]):
    """Base of the descriptors for verbs: each stands for one verb of the facade, also for `help()`."""

    def __init__(self, verb: Callable[Concatenate[Any, P], object]) -> None:
        self._name = verb.__name__
        self.__doc__ = verb.__doc__
        self.__wrapped__ = verb

    def _bind(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> Callable[[], Any]:
        return lambda: getattr(twin._get_target(), self._name)(*args, **kwargs)

    def _present(self, call: C) -> C:
        for name, value in (("__name__", self._name), ("__doc__", self.__doc__), ("__wrapped__", self.__wrapped__)):
            setattr(call, name, value)
        return call


class AwaitedVerb(_Verb[P], Generic[P, A]):
    """A verb whose result is plain data."""

    def __init__(self, verb: Callable[Concatenate[Any, P], A]) -> None:
        super().__init__(verb)

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> Callable[P, Coroutine[Any, Any, A]]: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | Callable[P, Coroutine[Any, Any, A]]:
        if twin is None:
            return self

        async def call(*args: P.args, **kwargs: P.kwargs) -> A:
            return await self._run(twin, *args, **kwargs)

        return self._present(call)

    async def _run(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> A:
        result: A = await twin._threads.run(self._bind(twin, *args, **kwargs))
        return result


class CancellableQuery(AwaitedVerb[P, A]):
    """A query in this process: it stops, and frees its thread, when its caller is cancelled."""

    async def _run(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> A:
        from omnigraph.api import Graph
        from omnigraph.api.view import GraphView
        from omnigraph.query.limits import Cancellation, QueryLimits

        if not isinstance(twin._get_target(), (Graph, GraphView)):
            return await super()._run(twin, *args, **kwargs)
        requested = kwargs.get("limits")
        limits = requested if isinstance(requested, QueryLimits) else QueryLimits()
        cancellation = limits.cancellation or Cancellation()
        kwargs["limits"] = replace(limits, cancellation=cancellation)
        result: A = await twin._threads.run(self._bind(twin, *args, **kwargs), stop=cancellation.cancel)
        return result


class TwinVerb(_Verb[P], Generic[P, T]):
    """A verb whose result has verbs of its own: the result becomes a twin on the same threads."""

    def __init__(self, verb: Callable[Concatenate[Any, P], object], twin_class: Callable[[], type[T]]) -> None:
        super().__init__(verb)
        self._twin_class = twin_class

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | Callable[P, Coroutine[Any, Any, T]]:
        if twin is None:
            return self

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            target = await twin._threads.run(self._bind(twin, *args, **kwargs))
            return self._twin_class()(lambda: target, twin._threads)

        return self._present(call)


class IteratedVerb(_Verb[P], Generic[P, A]):
    """A verb that returns an iterator: for `async for`, a batch at a time from a thread."""

    def __init__(self, verb: Callable[Concatenate[Any, P], Iterator[A]]) -> None:
        super().__init__(verb)

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> Callable[P, AsyncGenerator[A, None]]: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | Callable[P, AsyncGenerator[A, None]]:
        if twin is None:
            return self

        async def call(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[A, None]:
            turns = CallQueue(twin._threads)
            iterator: Iterator[A] = await turns.run(self._bind(twin, *args, **kwargs))
            try:
                while batch := await turns.run(lambda: list(islice(iterator, _BATCH))):
                    for item in batch:
                        yield item
            finally:
                # If the reader stops half-way, the resources of the generator are released at once.
                if hasattr(iterator, "close"):
                    await turns.run(iterator.close)

        return self._present(call)


class AwaitedProperty(Generic[A]):
    """A property that may cost a request: `await g.schema.source`."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> Coroutine[Any, Any, A]: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | Coroutine[Any, Any, A]:
        if twin is None:
            return self
        return twin._threads.run(lambda: getattr(twin._get_target(), self._name))


class PlainProperty(Generic[A]):
    """A property that costs nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> A: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | A:
        if twin is None:
            return self
        value: A = getattr(twin._get_target(), self._name)
        return value


class VerbGroup(Generic[T]):
    """A group of verbs, such as `g.branch`."""

    def __init__(self, name: str, twin_class: type[T]) -> None:
        self._name = name
        self._twin_class = twin_class

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> T: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | T:
        if twin is None:
            return self
        # The verb looks the group up in its thread: a group that a server does not have is refused there.
        return self._twin_class(lambda: getattr(twin._get_target(), self._name), twin._threads)
