"""Measures a server: the waiting time of one client, and 64 clients that read and write; checks every write."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import omnigraph as og
from bench.report import Report
from bench.timing import medians_s
from omnigraph.config import Config
from tests.server.bed import Server

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person
"""
CLIENTS = 64
WRITE_SHARE = 0.1
FIND = "query find($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"
FRIENDS = "query friends($n: String) { match { $p: Person { name: $n } $p knows $q } return { $q.name } }"
PERSON = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
NOTE = "query note($t: String) { insert Note { text: $t } }"


@dataclass
class Tally:
    """What the clients counted and timed."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"read": [], "write": []})
    statuses: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)


def run(report: Report, *, quick: bool) -> None:
    people, seconds_s = (2_000, 10.0) if quick else (20_000, 60.0)
    with TemporaryDirectory() as folder:
        graph_path = Path(folder) / "graph"
        _make(graph_path, people)
        server = Server(graph_path, environment={"OMNIGRAPH_FSYNC": "on"})
        try:
            report.add(
                "One client", _alone(graph_path, server, repeat=50 if quick else 200), "both with fsync, in turns"
            )
            tally, memory = asyncio.run(_load(server, people, seconds_s))
        finally:
            server.stop()
        rows = [_row(kind, seconds, seconds_s) for kind, seconds in tally.seconds.items()]
        report.add(f"{CLIENTS} clients, {WRITE_SHARE:.0%} writes, {seconds_s:g} s", rows)
        facts = _check_written(graph_path, tally)
        report.add("What became of it", [{**facts, **memory, **dict(tally.statuses)}])
    print(json.dumps({"latency": rows, **facts, **memory, "statuses": dict(tally.statuses)}))


def _make(graph_path: Path, people: int) -> None:
    graph = og.init(graph_path, SCHEMA)
    link = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
    step = 5_000
    for start in range(0, people, step):
        graph.mutate_many(PERSON, [{"n": f"p{n}", "a": n % 100} for n in range(start, min(people, start + step))])
    for start in range(0, people, step):
        ends = range(start, min(people, start + step))
        graph.mutate_many(link, [{"a": f"p{n}", "b": f"p{(n * 7 + 1) % people}"} for n in ends])
    graph.optimize()


def _alone(graph_path: Path, server: Server, repeat: int) -> list[dict[str, Any]]:
    """Measures the same calls in this process and over one HTTP connection."""
    doors: dict[str, Any] = {
        "in-process": og.open(graph_path, config=Config(fsync=True)),
        "over HTTP": og.connect(f"{server.url}/graphs/graph"),
    }
    names = itertools.count()
    calls: dict[str, Callable[[Any], object]] = {
        "find": lambda graph: graph.query(FIND, {"n": "p1"}).rows,
        "friends": lambda graph: graph.query(FRIENDS, {"n": "p1"}).rows,
        "insert": lambda graph: graph.mutate(PERSON, {"n": f"alone-{next(names)}", "a": None}),
    }
    rows = []
    for name, call in calls.items():
        medians = medians_s({door: partial(call, graph) for door, graph in doors.items()}, repeat)
        rows.append(
            {
                "call": name,
                **{f"{door} ms": spent_s * 1000 for door, spent_s in medians.items()},
                "ratio": medians["over HTTP"] / medians["in-process"],
            }
        )
    for graph in doors.values():
        graph.close()
    return rows


async def _load(server: Server, people: int, seconds_s: float) -> tuple[Tally, dict[str, float]]:
    tally = Tally()
    server_address = urlsplit(server.url)
    assert server_address.port is not None
    await _warm_up(server_address.port)
    until_s = time.monotonic() + seconds_s
    clients = [_client(tally, server_address.port, number, people, until_s) for number in range(CLIENTS)]
    both = asyncio.gather(*clients)
    await asyncio.sleep(seconds_s / 3)
    early = server.memory_mib()
    await both
    return tally, {"MiB after a third": early, "MiB at the end": server.memory_mib()}


async def _warm_up(port: int) -> None:
    """Runs each call once, so that one-time costs are not measured."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for source in (FIND, FRIENDS):
        assert await _ask(reader, writer, _request("query", {"source": source, "params": {"n": "p1"}})) == 200
    writer.close()
    await writer.wait_closed()


async def _client(tally: Tally, port: int, number: int, people: int, until_s: float) -> None:
    chance = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.monotonic() < until_s:
        count += 1
        writes = chance.random() < WRITE_SHARE
        if writes:
            text = f"{number}-{count}"
            request = _request("mutate", {"source": NOTE, "params": {"t": text}}, text)
        else:
            source = FIND if chance.random() < 0.7 else FRIENDS
            request = _request("query", {"source": source, "params": {"n": f"p{chance.randrange(people)}"}})
        started_s = time.perf_counter()
        status = await _ask(reader, writer, request)
        tally.seconds["write" if writes else "read"].append(time.perf_counter() - started_s)
        tally.statuses[str(status)] += 1
        if writes and status == 200:
            tally.acknowledged.append(text)
    writer.close()
    await writer.wait_closed()


def _request(verb: str, body: dict[str, Any], key: str | None = None) -> bytes:
    """Sends one HTTP request by hand, since a full HTTP client would use much of the two cores."""
    content = json.dumps(body).encode()
    more = f"idempotency-key: {key}\r\n" if key else ""
    head = f"POST /graphs/graph/{verb} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


def _row(kind: str, seconds: list[float], seconds_s: float) -> dict[str, Any]:
    cuts = quantiles(seconds, n=100)
    return {
        "kind": kind,
        "requests": len(seconds),
        "per second": len(seconds) / seconds_s,
        "p50 ms": cuts[49] * 1000,
        "p99 ms": cuts[98] * 1000,
        "max ms": max(seconds) * 1000,
    }


def _check_written(graph_path: Path, tally: Tally) -> dict[str, Any]:
    """Checks that every acknowledged write is in the graph once, and nothing else."""
    graph = og.open(graph_path)
    texts = Counter(graph.table("Note").to_arrow(["text"])["text"].to_pylist())
    lost = [text for text in tally.acknowledged if text not in texts]
    twice = [text for text, count in texts.items() if count > 1]
    unknown = set(texts) - set(tally.acknowledged)
    assert not lost, f"{len(lost)} acknowledged writes are lost, such as {lost[0]}"
    assert not twice, f"{len(twice)} writes are there twice, such as {twice[0]}"
    assert set(tally.statuses) <= {"200", "429", "503"}, f"undocumented answers: {tally.statuses}"
    return {"acknowledged": len(tally.acknowledged), "lost": 0, "twice": 0, "landed unanswered": len(unknown)}
