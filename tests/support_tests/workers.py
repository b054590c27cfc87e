"""What the child processes of `test_processes` do."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

import obstore

from tests.support.processes import Link
from tests.support.s3 import S3Place


def count_up(link: Link, *, to: int, step: int = 1) -> int:
    """Report each number. Prints as well, which must not disturb the reports."""
    link.ready()
    for number in range(0, to, step):
        print("noise", number)
        link.send(number=number)
    return link.index


def count_for_ever(link: Link) -> NoReturn:
    link.ready()
    number = 0
    while True:
        link.send(number=number)
        number += 1


def fail(link: Link) -> None:
    link.ready()
    if link.index == 1:
        print("last words", file=sys.stderr)
        raise ValueError("of the second worker")


def die_before_ready(link: Link) -> None:
    os._exit(3)


def stay_for_ever(link: Link) -> None:
    link.ready()
    threading.Event().wait()


def never_ready(link: Link) -> None:
    link.receive()


def echo(link: Link) -> None:
    link.ready()
    while (order := link.receive()) != {"stop": True}:
        link.send(**order)


def who_is_there(link: Link) -> dict[str, int]:
    return {"index": link.index, "count": link.count, "pid": os.getpid()}


def claim(link: Link, *, endpoint: str, bucket: str, prefix: str, rounds: int) -> list[int]:
    """Race for one key per round; the rounds this worker won."""
    store = S3Place(endpoint, bucket, prefix).object_store()
    obstore.put(store, f"warm-{link.index}", b"")
    link.ready()
    won = []
    for number in range(rounds):
        try:
            obstore.put(store, f"round-{number}", b"%d" % link.index, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            continue
        won.append(number)
        link.send(won=number)
    return won


def put_until_killed(link: Link, *, endpoint: str, bucket: str, prefix: str) -> NoReturn:
    """Store objects of 1 MB, reporting each that was acknowledged."""
    store = S3Place(endpoint, bucket, prefix).object_store()
    data = bytes(1 << 20)
    link.ready()
    number = 0
    while True:
        obstore.put(store, f"{link.index}/{number}", data, use_multipart=False)
        link.send(put=f"{link.index}/{number}")
        number += 1
