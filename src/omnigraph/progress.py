"""Shows the steps of a long operation: a bar on a terminal, a plain line every ten seconds elsewhere, or nothing.

Everything goes to stderr. Lines start only after the operation has run for a while, so short operations print nothing
into a pipe. A thread polls the number of finished tasks while a step runs; the caller says how to count them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Protocol

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds

if TYPE_CHECKING:
    from rich.progress import TaskID

_POLL_S = 0.5
_LINE_EVERY_S = 10.0
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


CountTasks = Callable[[], tuple[int, int, int] | None]
"""Counts the tasks of a step: (finished, all, stages); None if nobody counts them."""
WatchTasks = Callable[[IdSource], AbstractContextManager[CountTasks]]
"""Makes the tasks that are started inside the context countable, as `spark.watch_tasks` does."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one step is. `rows` and `size_bytes` are those of the whole step, if they are known beforehand."""

    name: str
    done: int = 0
    total: int = 0
    stages: int = 0
    rows: int | None = None
    size_bytes: int | None = None
    elapsed_s: float = 0.0

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0

    @property
    def remaining_s(self) -> float | None:
        return self.elapsed_s * (self.total - self.done) / self.done if self.done else None

    def words(self) -> str:
        """`stage: 3 of 10 tasks, 1 stage, 120 MiB of 400 MiB, 12 MiB/s, elapsed 0:10, remaining 0:23`"""
        return f"{self.name}: " + ", ".join(self.facts())

    def facts(self) -> list[str]:
        facts = []
        if self.total:
            facts.append(f"{self.done} of {self.total} tasks")
            facts.append(f"{self.stages} stage{'s' if self.stages != 1 else ''}")
        if self.rows is not None:
            facts.append(_amount(self.share, self.rows, self.elapsed_s, _rows_text))
        if self.size_bytes is not None:
            facts.append(_amount(self.share, self.size_bytes, self.elapsed_s, _size_text))
        facts.append(f"elapsed {_span(self.elapsed_s)}")
        if self.remaining_s is not None:
            facts.append(f"remaining {_span(self.remaining_s)}")
        return facts


class Display(Protocol):
    """Where a standing is shown."""

    def show(self, standing: Standing) -> None: ...

    def finish(self, standing: Standing) -> None: ...

    def close(self) -> None: ...


class Progress:
    """The steps of one operation. Use `report_progress`."""

    def __init__(self, display: Display | None, clock: Clock, ids: IdSource) -> None:
        self._display = display
        self._clock = clock
        self._ids = ids
        self._lock = Lock()

    @contextmanager
    def step(
        self,
        name: str,
        watch: WatchTasks | None = None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Iterator[StepCounter]:
        """One step. `watch` counts its tasks; without it the code inside the step calls `advance`."""
        counter = StepCounter(Standing(name, rows=rows, size_bytes=size_bytes), self._clock)
        if self._display is None:
            yield counter
            return
        with watch(self._ids) if watch is not None else nullcontext(_count_nothing) as count_tasks:
            ended = Event()
            watcher = Thread(
                target=self._poll, args=(counter, count_tasks, ended), name="omnigraph-progress", daemon=True
            )
            watcher.start()
            try:
                yield counter
            finally:
                ended.set()
                watcher.join()
        with self._lock:
            self._display.finish(counter.now())

    def _poll(self, counter: StepCounter, count_tasks: CountTasks, ended: Event) -> None:
        assert self._display is not None
        while not ended.wait(_POLL_S):
            counts = count_tasks()
            if counts is not None:
                counter.set_tasks(*counts)
            with self._lock:
                self._display.show(counter.now())


class StepCounter:
    """How far one step is, as the code inside the step, or the thread that polls its tasks, says."""

    def __init__(self, standing: Standing, clock: Clock) -> None:
        self._standing = standing
        self._clock = clock
        self._began = clock.monotonic()

    def set_tasks(self, done: int, total: int, stages: int) -> None:
        self._standing = replace(self._standing, done=done, total=total, stages=stages)

    def advance(self, done: int, total: int) -> None:
        """For work that is not done in tasks: `done` of `total` parts are finished."""
        self.set_tasks(done, total, 1)

    def now(self) -> Standing:
        return replace(self._standing, elapsed_s=self._clock.monotonic() - self._began)


_DISPLAY: ContextVar[Display | None] = ContextVar("omnigraph_progress_display", default=None)


@contextmanager
def show_on(display: Display) -> Iterator[None]:
    """Operations that this thread starts inside the block show their steps on `display`, whatever their options say."""
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextmanager
def report_progress(
    enabled: bool | None = None,
    *,
    stream: IO[str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Iterator[Progress]:
    """Show the steps taken inside the block. `enabled=False` shows nothing; else the display depends on `stream`."""
    clock = clock or SystemClock()
    display = _DISPLAY.get() or (None if enabled is False else _display(stream or sys.stderr, clock))
    try:
        yield Progress(display, clock, ids or SystemIds(clock))
    finally:
        if display is not None:
            display.close()


def _display(stream: IO[str], clock: Clock) -> Display:
    return _Bar(stream) if stream.isatty() else _Lines(stream, clock)


class _Lines:
    """At most one line in ten seconds, and none in the first ten."""

    def __init__(self, stream: IO[str], clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._began = self._said_at = clock.monotonic()

    def show(self, standing: Standing) -> None:
        now = self._clock.monotonic()
        if now - self._said_at >= _LINE_EVERY_S:
            self._said_at = now
            print(standing.words(), file=self._stream, flush=True)

    def finish(self, standing: Standing) -> None:
        if self._said_at > self._began:
            print(f"{standing.name}: done in {_span(standing.elapsed_s)}", file=self._stream, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """One rich bar per step."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[facts]}", style="dim"),
            console=Console(file=stream),
        )
        self._rich.start()
        self._task: tuple[str, TaskID] | None = None

    def show(self, standing: Standing) -> None:
        if self._task is None or self._task[0] != standing.name:
            self._task = (standing.name, self._rich.add_task(standing.name, total=None, facts=""))
        self._rich.update(
            self._task[1],
            completed=standing.done,
            total=standing.total or None,
            facts=" · ".join(standing.facts()),
        )

    def finish(self, standing: Standing) -> None:
        total = standing.total or 1
        self.show(replace(standing, done=total, total=total))
        self._task = None

    def close(self) -> None:
        self._rich.stop()


def _count_nothing() -> None:
    return None


def _amount(share: float, total: int, elapsed_s: float, text: Callable[[float], str]) -> str:
    rate = f", {text(share * total / elapsed_s)}/s" if share and elapsed_s > 0 else ""
    return f"{text(share * total)} of {text(total)}{rate}" if share else text(total)


def _rows_text(count: float) -> str:
    return f"{count:,.0f} row{'' if round(count) == 1 else 's'}"


def _size_text(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


def _span(seconds: float) -> str:
    minutes, full_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{full_seconds:02}" if hours else f"{minutes}:{full_seconds:02}"
