"""Progress: a bar on a terminal, plain lines now and then in a pipe, nothing when switched off. S157"""

from __future__ import annotations

import io
import os
import pty
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from omnigraph import progress as progress_module
from omnigraph.progress import Standing, report_progress
from omnigraph.spark.watch_tasks import watch_tasks


class HandClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Told(io.StringIO):
    """A pipe that says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_POLL_S", 0.005)


def test_words() -> None:
    standing = Standing("parse", done=3, total=12, stages=2, rows=4_000_000, size_bytes=1 << 30, elapsed_s=60.0)
    assert standing.words() == (
        "parse: 3 of 12 tasks, 2 stages, 1,000,000 rows of 4,000,000 rows, 16,667 rows/s, "
        "256 MiB of 1.0 GiB, 4.3 MiB/s, elapsed 1:00, remaining 3:00"
    )
    assert Standing("x", elapsed_s=3725).words() == "x: elapsed 1:02:05"


def test_a_short_step_in_a_pipe_says_nothing() -> None:
    stream, clock = Told(), HandClock()
    with report_progress(stream=stream, clock=clock) as progress, progress.step("quick") as counter:
        counter.advance(1, 2)
        clock.seconds = 9.9
    assert stream.getvalue() == ""


def test_a_long_step_in_a_pipe_writes_plain_lines() -> None:
    stream, clock = Told(), HandClock()
    with report_progress(stream=stream, clock=clock) as progress, progress.step("stage", rows=100) as counter:
        counter.advance(1, 4)
        clock.seconds = 12.0
        assert stream.written.wait(60)
    first, last = stream.getvalue().splitlines()
    assert first.startswith("stage: 1 of 4 tasks, 1 stage, 25 rows of 100 rows, 2 rows/s, elapsed 0:12, remaining 0:36")
    assert last == "stage: done in 0:12"
    assert "\x1b" not in stream.getvalue()


def test_switched_off_nothing_is_written_even_to_a_terminal() -> None:
    output = on_terminal(lambda stream: _steps(stream, False))
    assert output == ""


def test_a_terminal_gets_a_bar() -> None:
    output = on_terminal(lambda stream: _steps(stream, None))
    assert "\x1b" in output
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert "count rows" in plain
    assert "4 of 4 tasks" in plain
    assert "elapsed 0:" in plain


def _steps(stream: io.TextIOWrapper, enabled: bool | None) -> None:
    with report_progress(enabled, stream=stream) as progress, progress.step("count rows") as counter:
        counter.advance(4, 4)


def on_terminal(work: Callable[[io.TextIOWrapper], None]) -> str:
    """What `work` shows on a real terminal."""
    terminal, child_end = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # how Linux tells that the other side has closed
                return
            if not data:
                return
            chunks.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(child_end, "w", encoding="utf-8") as stream:
        work(stream)
    reader.join(60)
    os.close(terminal)
    return b"".join(chunks).decode()


def test_spark_tasks_are_counted(spark: SparkSession) -> None:
    stream, clock = Told(), HandClock()
    before = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    with report_progress(stream=stream, clock=clock) as progress, progress.step("job", watch_tasks(spark)) as counter:
        spark.sparkContext.range(0, 100, numSlices=3).count()
        clock.seconds = 11.0
        assert stream.written.wait(60)
        assert (counter.now().done, counter.now().total, counter.now().stages) == (3, 3, 1)
    assert stream.getvalue().startswith("job: 3 of 3 tasks, 1 stage")
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == before


def test_a_failed_step_ends_the_display() -> None:
    stream, clock = Told(), HandClock()
    with (
        pytest.raises(ZeroDivisionError),
        report_progress(stream=stream, clock=clock) as progress,
        progress.step("bad"),
    ):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "omnigraph-progress"]
