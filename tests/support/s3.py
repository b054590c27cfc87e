"""S3 servers as child processes, and `S3Place`: what a test needs to reach an empty corner of one."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

START_TIMEOUT_S = 90.0
_REGION = "us-east-1"
_SECRET = "test"
_names = itertools.count(1)


class HasEndpoint(Protocol):
    """A server, or a proxy in front of one."""

    @property
    def endpoint(self) -> str: ...


@dataclass(frozen=True, slots=True)
class S3Place:
    """An address under which a test may write what it likes, with all that is needed to reach it."""

    endpoint: str
    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def storage_options(self) -> dict[str, str]:
        """For Lance; obstore wants `allow_http` among its client options instead (see `object_store`)."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_region": _REGION,
            "aws_access_key_id": _SECRET,
            "aws_secret_access_key": _SECRET,
            "allow_http": "true",
        }

    @property
    def env(self) -> dict[str, str]:
        """The same for a child process, which then needs no storage options."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": _REGION,
            "AWS_ACCESS_KEY_ID": _SECRET,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_ALLOW_HTTP": "true",
        }

    def through(self, server: HasEndpoint) -> S3Place:
        """The same objects, reached by way of a proxy."""
        return replace(self, endpoint=server.endpoint)

    def below(self, name: str) -> S3Place:
        return replace(self, prefix=f"{self.prefix}/{name}")

    def object_store(self, *, max_retries: int = 0, timeout_s: float = 30.0) -> S3Store:
        """An obstore client of this place; by default one that repeats nothing, so that a fault is seen as it is."""
        config: Any = {key: value for key, value in self.storage_options.items() if key.startswith("aws_")}
        return S3Store(
            self.bucket,
            prefix=self.prefix,
            config=config,
            client_options={"allow_http": True, "timeout": timedelta(seconds=timeout_s)},
            retry_config={"max_retries": max_retries, "retry_timeout": timedelta(seconds=timeout_s)},
        )

    def list_keys(self) -> list[str]:
        """Every key below the place, in order."""
        return sorted(meta["path"] for meta in self.object_store().list().collect())


class ServerProcess:
    """A server script of this folder in its own process; it ends with `stop`, or with the process that started it."""

    def __init__(self, script: str, *flags: str, timeout_s: float = START_TIMEOUT_S) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name(script)), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Ctrl-C goes to the tests; the server ends when its input does, after their teardown.
            start_new_session=True,
        )
        try:
            self.endpoint = f"http://127.0.0.1:{self._read_port(script, timeout_s)}"
        except BaseException:
            self.stop()
            raise

    def _read_port(self, script: str, timeout_s: float) -> int:
        output = self._process.stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            line = output.readline() if selector.select(timeout_s) else b""
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace")[-4000:]
            raise RuntimeError(f"{script} did not start within {timeout_s} s: {said}")
        return int(json.loads(line)["port"])

    def stop(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def request(server: HasEndpoint, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """One unsigned HTTP request: status and body."""
    address = urlsplit(server.endpoint)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def create_bucket(server: HasEndpoint, bucket: str) -> None:
    status, body = request(server, "PUT", f"/{bucket}")
    if status != 200:
        raise RuntimeError(f"cannot create bucket {bucket}: {status} {body[:500]!r}")


@contextmanager
def fresh_bucket(server: HasEndpoint) -> Iterator[S3Place]:
    """A place in a new bucket of a moto server; the bucket is forgotten afterwards, so that memory does not grow."""
    bucket = f"bucket-{os.getpid()}-{next(_names)}"
    create_bucket(server, bucket)
    yield S3Place(server.endpoint, bucket, "g")
    request(server, "POST", f"/__testbed/forget/{bucket}")


def fresh_prefix(server: HasEndpoint, bucket: str) -> S3Place:
    """A place under a new prefix of a shared bucket: on SeaweedFS a bucket is dear, since it claims volumes."""
    return S3Place(server.endpoint, bucket, f"p{os.getpid()}-{next(_names)}")


def race_put_if_absent(s3_place: S3Place, *, racers: int, rounds: int) -> list[int]:
    """The number of winners of each round, in which `racers` clients create one key at the same moment.

    Also reads each key back: the bytes must be those of a racer who was told that it won.
    """
    stores = [s3_place.object_store() for _ in range(racers)]
    barrier = threading.Barrier(racers, timeout=120)

    def run(racer: int) -> list[bool]:
        won = []
        for number in range(rounds):
            barrier.wait()
            try:
                obstore.put(stores[racer], f"round-{number}", b"%d" % racer, mode="create")
                won.append(True)
            except AlreadyExistsError:
                won.append(False)
            except BaseException:
                barrier.abort()
                raise
        return won

    with ThreadPoolExecutor(racers) as pool:
        racing = [pool.submit(run, racer) for racer in range(racers)]
    failures = [error for future in racing if (error := future.exception()) is not None]
    for error in failures:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error  # the others only broke off because of this one
    won = [future.result() for future in racing]
    for number in range(rounds):
        holder = int(bytes(obstore.get(stores[0], f"round-{number}").bytes()))
        if not won[holder][number]:
            raise AssertionError(f"round {number}: the key holds the bytes of racer {holder}, who was refused")
    return _winners(won, rounds)


def _winners(won: Sequence[Sequence[bool]], rounds: int) -> list[int]:
    return [sum(racer[number] for racer in won) for number in range(rounds)]
