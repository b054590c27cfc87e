"""What a long operation is doing: a bar on a terminal, a plain line now and then elsewhere, nothing when switched off.

Everything goes to stderr. Lines start only after the operation has run for a while, so short ones stay quiet in a
pipe. Spark is asked for finished tasks from a thread of its own; Spark Connect has nobody to ask, there only the
steps are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Protocol

from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import TaskID

_POLL_S = 0.5
_LINE_EVERY_S = 10.0
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one step is. `rows` and `size_bytes` are the whole step's, if known beforehand."""

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
        found = []
        if self.total:
            found.append(f"{self.done} of {self.total} tasks")
            found.append(f"{self.stages} stage{'s' if self.stages != 1 else ''}")
        if self.rows is not None:
            found.append(_amount(self.share, self.rows, self.elapsed_s, _rows_text))
        if self.size_bytes is not None:
            found.append(_amount(self.share, self.size_bytes, self.elapsed_s, _size_text))
        found.append(f"elapsed {_span(self.elapsed_s)}")
        if self.remaining_s is not None:
            found.append(f"remaining {_span(self.remaining_s)}")
        return found


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
        session: SparkSession | None = None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Iterator[StepCounter]:
        """One step. Spark jobs that this thread starts inside it are counted; without a session call `advance`."""
        counter = StepCounter(Standing(name, rows=rows, size_bytes=size_bytes), self._clock)
        if self._display is None:
            yield counter
            return
        with _watched(session, self._ids) as tasks:
            ended = Event()
            watcher = Thread(target=self._watch, args=(counter, tasks, ended), name="omnigraph-progress", daemon=True)
            watcher.start()
            try:
                yield counter
            finally:
                ended.set()
                watcher.join()
        with self._lock:
            self._display.finish(counter.now())

    def _watch(self, counter: StepCounter, tasks: Callable[[], tuple[int, int, int] | None], ended: Event) -> None:
        assert self._display is not None
        while not ended.wait(_POLL_S):
            found = tasks()
            if found is not None:
                counter.set_tasks(*found)
            with self._lock:
                self._display.show(counter.now())


class StepCounter:
    """What the code inside a step may say about it."""

    def __init__(self, standing: Standing, clock: Clock) -> None:
        self._standing = standing
        self._clock = clock
        self._began = clock.monotonic()

    def set_tasks(self, done: int, total: int, stages: int) -> None:
        self._standing = replace(self._standing, done=done, total=total, stages=stages)

    def advance(self, done: int, total: int) -> None:
        """For work without Spark: so many parts are done of so many."""
        self.set_tasks(done, total, 1)

    def now(self) -> Standing:
        return replace(self._standing, elapsed_s=self._clock.monotonic() - self._began)


_CHOSEN: ContextVar[Display | None] = ContextVar("omnigraph_progress_display", default=None)


@contextmanager
def shown_on(display: Display) -> Iterator[None]:
    """Operations that this thread starts inside show their steps there, whatever they were told."""
    token = _CHOSEN.set(display)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


@contextmanager
def report_progress(
    enabled: bool | None = None,
    *,
    stream: IO[str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Iterator[Progress]:
    """Show the steps taken inside. `enabled=False` shows nothing; None and True choose by where stderr goes."""
    clock = clock or SystemClock()
    display = _CHOSEN.get() or (None if enabled is False else _display(stream or sys.stderr, clock))
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


@contextmanager
def _watched(session: SparkSession | None, ids: IdSource) -> Iterator[Callable[[], tuple[int, int, int] | None]]:
    """Marks the jobs of this thread and counts their tasks: (done, total, stages)."""
    from omnigraph.spark.session import is_connect

    if session is None or is_connect(session):
        yield lambda: None
        return
    context = session.sparkContext
    group = f"omnigraph-{ids.token(8)}"
    before = context.getLocalProperty("spark.jobGroup.id"), context.getLocalProperty("spark.job.description")
    context.setJobGroup(group, before[1] or "omnigraph")
    tracker = context.statusTracker()

    def tasks() -> tuple[int, int, int]:
        stages = {
            stage
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job)) is not None
            for stage in info.stageIds
        }
        infos = [info for info in map(tracker.getStageInfo, sorted(stages)) if info is not None]
        return sum(one.numCompletedTasks for one in infos), sum(one.numTasks for one in infos), len(infos)

    try:
        yield tasks
    finally:
        for name, value in zip(("spark.jobGroup.id", "spark.job.description"), before, strict=True):
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


def _amount(share: float, whole: int, elapsed_s: float, text: Callable[[float], str]) -> str:
    rate = f", {text(share * whole / elapsed_s)}/s" if share and elapsed_s > 0 else ""
    return f"{text(share * whole)} of {text(whole)}{rate}" if share else text(whole)


def _rows_text(count: float) -> str:
    return f"{count:,.0f} row{'' if round(count) == 1 else 's'}"


def _size_text(size: float) -> str:
    place = 0
    while size >= 1024 and place < len(_UNITS) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.0f} {_UNITS[place]}" if place == 0 or size >= 100 else f"{size:.1f} {_UNITS[place]}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
