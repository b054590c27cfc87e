"""Real child processes for tests about many writers: spawned, started together, killed without warning.

Children are new interpreters (Lance's threads do not survive a fork). They report over a pipe of their own, so that
whatever a library prints cannot garble a report, and a report that `Link.send` has returned from reaches the test even
if the child is killed in the next instruction. A child whose parent is gone ends at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

Target = str | Callable[..., Any]
_BOOT = (
    "import json,os,sys;"
    "job=json.loads(sys.stdin.buffer.readline());"
    "sys.path[:]=job['path'];"
    "from tests.support.processes import child_main;"
    "child_main(job)"
)


class WorkerFailed(AssertionError):
    """A worker raised, died without being killed, or did not end in time; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL for one worker: `delay_s` after it sent its `after_messages`-th message (0: after the start)."""

    worker: int
    after_messages: int = 0
    delay_s: float = 0.0


def random_kills(
    seed: int, workers: Sequence[int], *, max_messages: int = 10, max_delay_s: float = 0.05
) -> tuple[Kill, ...]:
    """One kill per named worker, at an instant that depends on its own progress, not on how fast the machine is."""
    chance = random.Random(seed)
    return tuple(Kill(worker, chance.randint(0, max_messages), chance.uniform(0, max_delay_s)) for worker in workers)


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """How one worker ended. `value` is what its function returned; `messages` what it sent, complete ones only."""

    index: int
    exit_code: int
    killed: bool
    messages: tuple[dict[str, Any], ...]
    value: Any
    error: str | None
    output: str

    @property
    def has_failed(self) -> bool:
        return not self.killed and (self.exit_code != 0 or self.error is not None)


def _write(fd: int, line: Mapping[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]


class Link:
    """The child's end: handed to the worker's function as its first argument."""

    def __init__(self, index: int, count: int, report_fd: int) -> None:
        self.index = index
        self.count = count
        self._fd = report_fd
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> None:
        """Say that all preparation is done, and wait until every worker has said so."""
        self.report({"ready": True})
        self.receive()

    def send(self, **fields: Any) -> None:
        """Report something to the test; once this returns the test will see it, whatever happens to this process."""
        self.report({"message": fields})

    def receive(self) -> dict[str, Any]:
        """The next order from the test (`Worker.order`)."""
        return self._orders.get()

    def report(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            _write(self._fd, line)

    def _listen(self) -> None:
        # Not sys.stdin: a thread that holds its lock makes the interpreter crash at the end.
        pending = b""
        while chunk := os.read(0, 65536):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._orders.put(json.loads(line))
        os._exit(70)


def child_main(job: Mapping[str, Any]) -> None:
    """The whole life of a child: find the function, call it, report what it returned or raised."""
    os.set_inheritable(job["report_fd"], False)
    link = Link(job["index"], job["count"], job["report_fd"])
    try:
        value = _function(job["target"])(link, **job["args"])
        link.report({"value": value})
    except BaseException:
        link.report({"error": traceback.format_exc()})
        raise


def _function(target: str) -> Callable[..., Any]:
    module_name, _, name = target.rpartition(":")
    if module_name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("worker_script", module_name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_name)
    function: Callable[..., Any] = getattr(module, name)
    return function


def _address(target: Target) -> str:
    return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"


class Worker:
    """The test's end of one child. `messages` grows while the child runs."""

    def __init__(
        self, index: int, job: Mapping[str, Any], env: Mapping[str, str], changed: threading.Condition
    ) -> None:
        self.index = index
        self.messages: list[dict[str, Any]] = []
        self.is_ready = False
        self._changed = changed
        self._kills: list[Kill] = []
        self._timers: list[threading.Timer] = []
        self._killed = False
        self._value: Any = None
        self._error: str | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by result()
        read_fd, write_fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            bufsize=0,  # or a death would leave bytes whose flush fails at the close
            pass_fds=[write_fd],
            env={**os.environ, **env},
        )
        os.close(write_fd)
        self.order(**job, index=index, report_fd=write_fd)
        self._reader = threading.Thread(target=self._read, args=(read_fd,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def order(self, **fields: Any) -> None:
        """Send something that the child gets from `Link.receive`; a child that is gone misses it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            _write(self._process.stdin.fileno(), fields)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if not self.has_ended:
            self._killed = True
            self._process.kill()

    def plan(self, kills: Iterable[Kill]) -> None:
        """Kills to come; those due after 0 messages begin to count now."""
        with self._changed:
            self._kills = list(kills)
            self._fire()

    def result(self, deadline_s: float) -> WorkerResult:
        """Wait for the end; past the deadline the child is made to print where all its threads are, and killed."""
        late = not self._wait(deadline_s - time.monotonic())
        if late:
            self._process.send_signal(signal.SIGABRT)
            if not self._wait(5.0):
                self._process.kill()
                self._process.wait()
        self._reader.join()
        for timer in self._timers:
            timer.cancel()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._output.seek(0)
        output = self._output.read().decode(errors="replace")
        self._output.close()
        code = self._process.returncode
        killed = self._killed and code == -signal.SIGKILL and not late
        error = "did not end in time" if late else self._error
        return WorkerResult(self.index, code, killed, tuple(self.messages), self._value, error, output)

    def _wait(self, timeout_s: float) -> bool:
        try:
            self._process.wait(max(timeout_s, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _read(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as reports:
            for line in reports:
                if not line.endswith(b"\n"):
                    break  # cut by a kill: `send` had not returned
                with self._changed:
                    self._take(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _take(self, report: dict[str, Any]) -> None:
        if "message" in report:
            self.messages.append(report["message"])
            self._fire()
        elif "ready" in report:
            self.is_ready = True
        elif "error" in report:
            self._error = report["error"]
        else:
            self._value = report["value"]

    def _fire(self) -> None:
        due = [kill for kill in self._kills if kill.after_messages <= len(self.messages)]
        self._kills = [kill for kill in self._kills if kill not in due]
        for kill in due:
            if kill.delay_s:
                timer = threading.Timer(kill.delay_s, self.kill)
                timer.start()
                self._timers.append(timer)
            else:
                self.kill()


class Workers:
    """`count` children of one function; a context manager that leaves none behind.

    `target` is a module-level function or its address (`"tests.x.workers:insert"`, `"dir/script.py:main"`). It is
    called as `target(link, **args)`, with `args_of[i]` on top for the i-th worker; arguments and result are JSON.
    """

    def __init__(
        self,
        target: Target,
        count: int,
        args: Mapping[str, Any] | None = None,
        *,
        args_of: Sequence[Mapping[str, Any]] = (),
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self._deadline_s = time.monotonic() + timeout_s
        self._changed = threading.Condition()
        self._results: dict[int, WorkerResult] = {}
        self.workers: list[Worker] = []
        try:
            for index in range(count):
                worker_args = args_of[index] if args_of else {}
                job = {
                    "path": sys.path,
                    "target": _address(target),
                    "count": count,
                    "args": {**(args or {}), **worker_args},
                }
                self.workers.append(Worker(index, job, env or {}, self._changed))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self.workers:
            worker.kill()
        self._collect()

    def start(self, kill: Iterable[Kill] = ()) -> None:
        """Wait until every worker is ready (or has ended), then let all go; `kill` counts from here."""
        self.wait_for(lambda: all(worker.is_ready or worker.has_ended for worker in self.workers), "all to be ready")
        kills = list(kill)
        for worker in self.workers:
            worker.order(go=True)
        for worker in self.workers:
            worker.plan(one for one in kills if one.worker == worker.index)

    def wait_for(self, condition: Callable[[], bool], description: str = "a condition") -> None:
        """Return once `condition` holds; looked at whenever a worker reports something or ends."""
        if not self._holds_in_time(condition):
            raise WorkerFailed(f"waited in vain for {description}\n{self._describe()}")

    def _holds_in_time(self, condition: Callable[[], bool]) -> bool:
        with self._changed:
            while not condition():
                remaining_s = self._deadline_s - time.monotonic()
                if remaining_s <= 0:
                    return False
                # A process may be gone a moment after its pipe: hence the short wait, and no reliance on the notice.
                self._changed.wait(min(remaining_s, 0.1))
        return True

    def wait(self, *, timeout_s: float | None = None, check: bool = True) -> list[WorkerResult]:
        """Every worker's result, in order. With `check`, any that failed without being killed raises WorkerFailed.

        `timeout_s` replaces what is left of the time given at the start.
        """
        if timeout_s is not None:
            self._deadline_s = time.monotonic() + timeout_s
        results = self._collect()
        if check and any(result.has_failed for result in results):
            raise WorkerFailed("\n".join(_describe(result) for result in results if result.has_failed))
        return results

    def _collect(self) -> list[WorkerResult]:
        for worker in self.workers:
            if worker.index not in self._results:
                self._results[worker.index] = worker.result(self._deadline_s)
        return [self._results[worker.index] for worker in self.workers]

    def _describe(self) -> str:
        self._deadline_s = time.monotonic()
        return "\n".join(_describe(result) for result in self._collect())


def _describe(result: WorkerResult) -> str:
    return f"worker {result.index}: exit code {result.exit_code}, {result.error}\n{result.output[-4000:]}"


def run_workers(
    target: Target,
    count: int,
    args: Mapping[str, Any] | None = None,
    *,
    args_of: Sequence[Mapping[str, Any]] = (),
    env: Mapping[str, str] | None = None,
    kill: Iterable[Kill] = (),
    timeout_s: float = 120.0,
    check: bool = True,
) -> list[WorkerResult]:
    """Run `count` workers from a common start to their end; see `Workers`."""
    with Workers(target, count, args, args_of=args_of, env=env, timeout_s=timeout_s) as workers:
        workers.start(kill)
        return workers.wait(check=check)
