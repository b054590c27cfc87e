"""No room left: while staging, and while the record is written. A typed answer, at once, and nothing changed (S54)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from omnigraph.errors import Unavailable
from tests.faults.atomicity import AtomicityCheck, FaultAnswer, attempt
from tests.faults.faulty_process import FaultyProcess, HastyClock
from tests.faults.operations import OPERATIONS, FaultOperation

_WRITING = [one for one in OPERATIONS if one.name not in ("open", "init")]


@contextmanager
def _no_room(number: int = errno.ENOSPC, *, after_bytes: int = 0) -> Iterator[None]:
    """Files take `after_bytes` more, then nothing."""
    write, bytes_left = os.write, after_bytes

    def writing(descriptor: int, data: Any) -> int:
        nonlocal bytes_left
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            return write(descriptor, data)
        if bytes_left <= 0:
            raise OSError(number, os.strerror(number))
        part = memoryview(data)[:bytes_left]
        bytes_left -= len(part)
        return write(descriptor, part)

    with patch("os.write", writing):
        yield


@pytest.mark.parametrize(
    "after_bytes", [pytest.param(0, marks=pytest.mark.slow), 100], ids=["at-once", "in-the-middle"]
)
@pytest.mark.parametrize("operation", _WRITING, ids=str)
def test_no_room_for_the_record(
    operation: FaultOperation, after_bytes: int, atomicity: AtomicityCheck, tmp_path: Path
) -> None:
    """S54"""
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri, **operation.config)
    case = f"{operation} on a full disk"
    try:
        prepared = operation.prepare(process)
        clock = process.backend.clock
        assert isinstance(clock, HastyClock)
        with _no_room(after_bytes=after_bytes):
            started = clock.monotonic()
            answer = attempt(process, operation, prepared)
            assert clock.monotonic() - started < 5, "it kept trying, though no try can succeed"
        assert isinstance(answer.error, Unavailable), answer
        assert answer.error.code == "disk_full"
        assert answer.error.advice
        assert not atomicity.check(operation, uri, answer, case)
        assert not list(Path(uri).rglob(".tmp-*")), "a temporary file takes room for ever"
        again = attempt(process, operation, prepared)
        assert again.is_positive, f"{case}: with room again it fails with {again.error!r}"
        atomicity.check(operation, uri, again, case)
    finally:
        process.close()


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EDQUOT, "disk_full"), (errno.EROFS, "read_only_file_system"), (errno.EIO, None)],
    ids=["quota", "read-only", "io-error"],
)
def test_a_disk_that_fails_otherwise(number: int, code: str | None, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """Over quota, read-only or broken: typed, and nothing changed. S54"""
    operation = next(candidate for candidate in OPERATIONS if candidate.name == "several-tables")
    uri = atomicity.start(operation, tmp_path / "graph")
    process = FaultyProcess(uri)
    prepared = operation.prepare(process)
    with _no_room(number):
        answer = attempt(process, operation, prepared)
    assert answer.error is not None
    assert code is None or answer.error.code == code
    atomicity.finish(operation, uri, atomicity.check(operation, uri, answer, str(operation)), str(operation))
    process.close()


_CHILD = """
import json, shutil, sys
from tests.faults.faulty_process import FaultyProcess
from tests.faults.atomicity import attempt
from tests.faults.operations import BY_NAME
uri, name, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
operation = BY_NAME[name]
process = FaultyProcess(uri, **operation.config)
prepared = operation.prepare(process)
with open(uri + "/../filler", "wb", buffering=0) as filler:
    room = shutil.disk_usage(uri).free
    filler.write(bytes(max(0, room - left)))
answer = attempt(process, operation, prepared)
import os
os.unlink(uri + "/../filler")
shutil.copytree(uri, sys.argv[4])
again = attempt(process, operation, prepared)
print(json.dumps({"error": answer.error and type(answer.error).__name__, "code": answer.error and answer.error.code,
                  "again": again.is_positive}))
"""


def _small_disk_works() -> bool:
    """Whether this machine lets a process mount a file system that only it sees."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    tried = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.parametrize("left_bytes", [8192, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, 4096, 16384))])
@pytest.mark.parametrize("name", ["insert-staged", "several-tables-staged", "fold", "schema-rewrite"])
def test_no_room_while_staging(name: str, left_bytes: int, atomicity: AtomicityCheck, tmp_path: Path) -> None:
    """A real file system of 4 MiB that is full while Lance writes, past every seam of ours. S54"""
    if not _small_disk_works():
        pytest.skip("mounting a small file system in a namespace of one's own is not permitted here")
    operation = next(candidate for candidate in OPERATIONS if candidate.name == name)
    source, disk, remains = atomicity.start(operation, tmp_path / "source"), tmp_path / "disk", tmp_path / "left"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=4m tmpfs "{disk}" && cp -r "{source}" "{disk}/graph" && exec "$@"'
    child = [sys.executable, "-c", _CHILD, f"{disk}/graph", name, str(left_bytes), str(remains)]
    completed = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *child],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    if document["error"] is not None:
        assert document["code"] == "disk_full", document
    assert left_bytes or document["error"] is not None, "there was room after all"
    error = Unavailable("full", code=document["code"]) if document["error"] else None
    atomicity.check(operation, str(remains), FaultAnswer(error=error), f"{name} with {left_bytes} bytes left")
    assert document["again"], "with room again the same handle still fails"
