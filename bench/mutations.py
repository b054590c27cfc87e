"""Measures small transactional writes: their requests in a large graph, and their time beside other systems."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import omnigraph
from bench.report import Report
from bench.timing import medians_s
from omnigraph.api import Graph, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import MeteredStore, RequestKind
from omnigraph.storage.store import Store
from tests.cost.ground import CostGround, MeteredActor
from tests.mutate.big_graph import Size, build, person
from tests.mutate.costs import profile
from tests.support.processes import Link, run_workers
from tests.support.proxy import Proxy
from tests.support.s3 import ServerProcess, fresh_bucket

ROWS = 10_000
PROCESSES = 8
SIZES = (Size(10_000), Size(100_000), Size(1_000_000))
QUICK_SIZES = (Size(10_000), Size(50_000))
ON_THE_WIRE = Size(10_000)

NOTES = "node Note { name: String @key  text: String? }\n"
UPSERT = "query upsert($n: String, $t: String) { insert Note { name: $n, text: $t } }"
BARE_LANCE = "Lance merge_insert(...).execute, key indexed"
LIMIT = 1.0
"""The promise: inserting an edge takes no longer than a bare Lance write of one row, without checks or fsync."""
LINK = "query link($a: String, $b: String) { insert %s { from: $a, to: $b, since: 1 } }"

Way = Callable[[], object]


def run(report: Report, *, quick: bool) -> None:
    repeat = 20 if quick else 100
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        report.add(
            "Requests (hops) of an insert of a node with a unique value and an edge with a cardinality",
            [*_costs(folder, QUICK_SIZES if quick else SIZES), _on_the_wire()],
            "budget 8 (4) when warm; hops of Lance's own requests are seen on the wire only",
        )
        report.add(
            "One edge, local directory",
            _compare("omnigraph", _edge_ways(folder), repeat, {BARE_LANCE: LIMIT}),
            f"median of inserts into {ROWS:,} nodes and edges; ratio = omnigraph / that line; Lance checks no "
            "ends and does not sync to disk; Ladybug is a database of one process",
        )
        report.add(
            "One-row upsert, local directory",
            _compare("omnigraph", _upsert_ways(folder), repeat),
            f"median of upserts into {ROWS:,} rows, every second one of a row that exists",
        )
        report.add(
            f"{PROCESSES} processes that insert different keys into one table of one branch",
            [_racing(folder, 2.0 if quick else 8.0)],
            "one-row inserts, fsync on, folding on; attempts = record PUTs, the refused ones included",
        )


# ---- requests --------------------------------------------------------------------------------------------------------


def _costs(folder: Path, sizes: tuple[Size, ...]) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        ground = CostGround(str(folder / f"graph{size.people}"))
        build(ground.uri, size)
        rows.append(_cost_row(str(size), MeteredActor(ground).open()))
    return rows


def _on_the_wire() -> dict[str, Any]:
    server = ServerProcess("moto_server.py")
    try:
        with fresh_bucket(server) as bucket, Proxy(server.endpoint) as proxy:
            build(bucket.uri, ON_THE_WIRE, bucket.storage_options)
            ground = CostGround.on_s3(bucket.through(proxy), proxy)
            return _cost_row(f"{ON_THE_WIRE}, on the wire", MeteredActor(ground).open())
    finally:
        server.stop()


def _cost_row(title: str, actor: MeteredActor) -> dict[str, Any]:
    costs = profile(actor)
    actor.close()
    cells = {name: f"{cost.requests} ({cost.hops})" for name, cost in (
        ("cold", costs.cold), ("pages of the source cold", costs.other_pages), ("warm", costs.warm),
        ("plain keyed node", costs.plain),
    )}  # fmt: skip
    return {"graph": title, **cells}


# ---- seconds ---------------------------------------------------------------------------------------------------------


def _compare(
    ours: str, ways: dict[str, Way | None], repeat: int, promised: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    spent_s = medians_s({name: way for name, way in ways.items() if way is not None}, repeat)
    rows: list[dict[str, Any]] = []
    for name in ways:
        if name not in spent_s:
            rows.append({"way": f"{name}: not installed"})
            continue
        rows.append({"way": name, "ms": 1000 * spent_s[name], "ratio": spent_s[ours] / spent_s[name]})
        if promised:
            rows[-1]["promised"] = f"≤ {promised[name]:g}" if name in promised else ""
    return rows


def _edge_ways(folder: Path) -> dict[str, Way | None]:
    ways: dict[str, Way | None] = {}
    for name, config in (("omnigraph", Config()), ("omnigraph, no fsync", Config(fsync=False))):
        uri = str(folder / name.replace(", ", "-").replace(" ", "-"))
        build(uri, Size(ROWS, edges_each=1))
        ways[name] = _link(omnigraph.open(uri, config=config), "Likes")
        if config.fsync:
            ways[f"{name}, with a cardinality"] = _link(omnigraph.open(uri, config=config), "Follows")
    ways[BARE_LANCE] = _lance_edges(folder / "edges.lance")
    ways["Ladybug CREATE"] = _ladybug_edges(folder / "edges.lbdb")
    return ways


def _link(graph: Graph, edge: str) -> Way:
    numbers, source = count(), LINK % edge

    def once() -> None:
        number = next(numbers)
        graph.mutate(source, {"a": person(number % ROWS), "b": person((number * 7 + 1) % ROWS)})

    return once


def _lance_edges(path: Path) -> Way:
    ends = [person(number) for number in range(ROWS)]
    ids = [f"e{number}" for number in range(ROWS)]
    table = pa.table({"id": ids, "src": ends, "dst": ends[::-1], "since": pa.array([1] * ROWS, pa.int32())})
    lance.write_dataset(table, str(path)).create_scalar_index("id", "BTREE")
    dataset = lance.dataset(str(path))
    numbers = count()

    def once() -> None:
        row = table.slice(0, 1).set_column(0, "id", pa.array([f"new{next(numbers)}"]))
        dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(row)

    return once


def _ladybug_edges(path: Path) -> Way | None:
    connection = _ladybug(path, "CREATE NODE TABLE Person(name STRING PRIMARY KEY)")
    if connection is None:
        return None
    connection.execute("CREATE REL TABLE Follows(FROM Person TO Person, since INT32)")
    names = [person(number) for number in range(ROWS)]
    connection.execute("UNWIND $names AS name CREATE (:Person {name: name})", {"names": names})
    numbers = count()

    def once() -> None:
        number = next(numbers)
        connection.execute(
            "MATCH (a:Person {name: $a}), (b:Person {name: $b}) CREATE (a)-[:Follows {since: 1}]->(b)",
            {"a": person(number % ROWS), "b": person((number * 7 + 1) % ROWS)},
        )

    return once


def _upsert_ways(folder: Path) -> dict[str, Way | None]:
    ways: dict[str, Way | None] = {}
    for name, config in (("omnigraph", Config()), ("omnigraph, no fsync", Config(fsync=False))):
        graph = omnigraph.init(str(folder / f"notes-{name[-5:]}"), NOTES, config=config)
        graph.mutate_many(UPSERT, [{"n": f"row{number}", "t": "x"} for number in range(ROWS)])
        ways[name] = _omnigraph_upsert(graph)
    ways["LanceDB merge_insert"] = _lancedb(folder / "lancedb")
    ways["Ladybug MERGE"] = _ladybug_upsert(folder / "notes.lbdb")
    return ways


def _next_name(number: int) -> str:
    return f"row{number}" if number % 2 else f"new{number}"


def _omnigraph_upsert(graph: Graph) -> Way:
    numbers = count()
    return lambda: graph.mutate(UPSERT, {"n": _next_name(next(numbers)), "t": "y"})


def _lancedb(path: Path) -> Way | None:
    try:
        import lancedb
    except ImportError:
        return None
    rows = pa.table({"name": [f"row{number}" for number in range(ROWS)], "text": ["x"] * ROWS})
    table = lancedb.connect(str(path)).create_table("note", rows)
    table.create_scalar_index("name")
    numbers = count()

    def once() -> None:
        row = pa.table({"name": [_next_name(next(numbers))], "text": ["y"]})
        table.merge_insert("name").when_matched_update_all().when_not_matched_insert_all().execute(row)

    return once


def _ladybug_upsert(path: Path) -> Way | None:
    connection = _ladybug(path, "CREATE NODE TABLE Note(name STRING PRIMARY KEY, text STRING)")
    if connection is None:
        return None
    names = [f"row{number}" for number in range(ROWS)]
    connection.execute("UNWIND $names AS name CREATE (:Note {name: name, text: 'x'})", {"names": names})
    numbers = count()
    return lambda: connection.execute(
        "MERGE (n:Note {name: $n}) ON CREATE SET n.text = 'y' ON MATCH SET n.text = 'y'",
        {"n": _next_name(next(numbers))},
    )


def _ladybug(path: Path, schema: str) -> Any:
    try:
        import ladybug
    except ImportError:
        return None
    connection = ladybug.Connection(ladybug.Database(str(path)))
    connection.execute(schema)
    return connection


# ---- many processes --------------------------------------------------------------------------------------------------


def _racing(folder: Path, seconds_s: float) -> dict[str, Any]:
    uri = str(folder / "racing")
    graph = omnigraph.init(uri, NOTES)
    results = run_workers(
        insert, PROCESSES, {"uri": uri, "seconds_s": seconds_s}, timeout_s=seconds_s + 120.0
    )  # fmt: skip
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.value)
    landed = graph.table("Note").count()
    assert landed == total["acknowledged"] + PROCESSES, f"{total['acknowledged']} acknowledged, {landed} there"
    each = [result.value["acknowledged"] for result in results]
    return {
        "inserts/s": total["acknowledged"] / seconds_s,
        "attempts per acknowledged": total["attempts"] / total["acknowledged"],
        "prepared again": total["prepared"] / total["acknowledged"] - 1,
        "fewest of one process": min(each),
        "most": max(each),
    }


def insert(link: Link, *, uri: str, seconds_s: float) -> dict[str, int]:
    """Runs in one process: inserts its own keys until the time is over."""
    meters: list[MeteredStore] = []

    def wrap_store(store: Store) -> Store:
        meters.append(MeteredStore(store))
        return meters[0]

    runtime = GraphRuntime.open(make_backend(uri, None, Config(), wrap=wrap_store), read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    graph.mutate(UPSERT, {"n": f"{link.index}.warm", "t": "x"})
    link.ready()
    counts: Counter[str] = Counter(acknowledged=0, prepared=0)
    until_s = time.monotonic() + seconds_s
    with meters[0].measure() as usage:
        while time.monotonic() < until_s:
            receipt = graph.mutate(UPSERT, {"n": f"{link.index}.{counts['acknowledged']}", "t": "x"})
            counts["acknowledged"] += 1
            counts["prepared"] += receipt.attempts
    runtime.backend.close()
    puts = usage.by_kind_and_class[RequestKind.PUT, KeyClass.RECORD]
    return {**counts, "attempts": puts}
