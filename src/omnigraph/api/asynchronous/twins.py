"""From a verb that blocks to one that is awaited, with the same name, parameters and result.

A class of the facade has a twin here whose attributes say, name by name, how each verb is awaited. Parameters and
results are taken from the verb itself, so a type checker sees what the facade has and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from omnigraph.api.asynchronous.threads import Runner, Threads, Turns

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T", bound="Twin")
C = TypeVar("C", bound=Callable[..., object])

_AT_ONCE = 256


class Twin:
    """Something of the facade and the threads on which it is asked. `of` is called in a thread, too: it may refuse."""

    def __init__(self, of: Callable[[], Any], threads: Runner) -> None:
        self._of = of
        self._threads = threads


class Held(Twin):
    """A twin that a caller opened and closes. The one that was opened owns the threads; those made from it borrow."""

    _own: Threads | None = None

    def owning(self, threads: Threads) -> Self:
        self._own = threads
        return self

    async def close(self) -> None:
        """Wait for what has begun, then let go of everything. Handles that were made from this one end with it."""
        if self._own is None:
            await self._threads.run(self._end)
        elif not self._own.is_over:
            # A claim is given up after the writes that rest on it.
            await self._own.settled()
            await self._threads.run(self._end)
            self._own.forget()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _end(self) -> None:
        """What closing the thing itself takes."""


class _Verb(Generic[P]):
    """What descriptors here have in common: the verb they stand for, also for `help()`."""

    def __init__(self, verb: Callable[Concatenate[Any, P], object]) -> None:
        self._name = verb.__name__
        self.__doc__ = verb.__doc__
        self.__wrapped__ = verb

    def _bound(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> Callable[[], Any]:
        return lambda: getattr(twin._of(), self._name)(*args, **kwargs)

    def _named(self, call: C) -> C:
        for name, value in (("__name__", self._name), ("__doc__", self.__doc__), ("__wrapped__", self.__wrapped__)):
            setattr(call, name, value)
        return call


class Awaited(_Verb[P], Generic[P, A]):
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

        return self._named(call)

    async def _run(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> A:
        found: A = await twin._threads.run(self._bound(twin, *args, **kwargs))
        return found


class Queried(Awaited[P, A]):
    """A query in this process: it is stopped, and its thread free again, when its caller is cancelled."""

    async def _run(self, twin: Twin, *args: P.args, **kwargs: P.kwargs) -> A:
        from omnigraph.api import Graph
        from omnigraph.api.view import GraphView
        from omnigraph.query.limits import Cancellation, QueryLimits

        if not isinstance(twin._of(), (Graph, GraphView)):
            return await super()._run(twin, *args, **kwargs)
        given = kwargs.get("limits")
        limits = given if isinstance(given, QueryLimits) else QueryLimits()
        cancellation = limits.cancellation or Cancellation()
        kwargs["limits"] = replace(limits, cancellation=cancellation)
        found: A = await twin._threads.run(self._bound(twin, *args, **kwargs), stop=cancellation.cancel)
        return found


class Giving(_Verb[P], Generic[P, T]):
    """A verb whose result has verbs itself: it becomes a twin, on the same threads."""

    def __init__(self, verb: Callable[Concatenate[Any, P], object], made: Callable[[], type[T]]) -> None:
        super().__init__(verb)
        self._made = made

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | Callable[P, Coroutine[Any, Any, T]]:
        if twin is None:
            return self

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            found = await twin._threads.run(self._bound(twin, *args, **kwargs))
            return self._made()(lambda: found, twin._threads)

        return self._named(call)


class Iterated(_Verb[P], Generic[P, A]):
    """A verb that gives one thing after the other: for `async for`, some at a time from a thread."""

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
            turns = Turns(twin._threads)
            found: Iterator[A] = await turns.run(self._bound(twin, *args, **kwargs))
            try:
                while some := await turns.run(lambda: list(islice(found, _AT_ONCE))):
                    for one in some:
                        yield one
            finally:
                # A reader that stops half-way must not leave open what the generator below holds.
                if hasattr(found, "close"):
                    await turns.run(found.close)

        return self._named(call)


class Asked(Generic[A]):
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
        return twin._threads.run(lambda: getattr(twin._of(), self._name))


class Plain(Generic[A]):
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
        found: A = getattr(twin._of(), self._name)
        return found


class Part(Generic[T]):
    """A group of verbs, such as `g.branch`."""

    def __init__(self, name: str, made: type[T]) -> None:
        self._name = name
        self._made = made

    @overload
    def __get__(self, twin: None, owner: type[Twin]) -> Self: ...
    @overload
    def __get__(self, twin: Twin, owner: type[Twin]) -> T: ...
    def __get__(self, twin: Twin | None, owner: type[Twin]) -> Self | T:
        if twin is None:
            return self
        # Looked up by the verb, in its thread: a group that a server does not have is refused there.
        return self._made(lambda: getattr(twin._of(), self._name), twin._threads)
