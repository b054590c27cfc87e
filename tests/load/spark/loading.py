"""Loads on both engines over one small schema in which every rule can be broken."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import LoadRejected
from omnigraph.load.inputs import LoadSources
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from omnigraph.storage.open_backend import make_backend
from omnigraph.storage.pauses import NO_PAUSES, Pauses

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique  city: String @default("Rome") }
node City { name: String @key  size: U64?  code: String  @unique(size, code) }
node Note { text: String? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge Lives: Person -> City @card(0..1)
edge Owns: City -> Note @card(1..2)
edge Likes: Person -> City { why: String  @unique(src, why) }
"""
TYPES = ("Person", "City", "Note", "Knows", "Lives", "Owns", "Likes")

#: All rules in one task, or all shuffled by Spark.
ONE_TASK = Config(fsync=False)
SHUFFLED = replace(ONE_TASK, load_check_rows=0)

Line = Mapping[str, Any]


def node(kind: str, **data: Any) -> Line:
    return {"type": kind, "data": data}


def edge(kind: str, source: str, target: str, row_id: str | None = None, **data: Any) -> Line:
    named = {"id": row_id, **data} if row_id is not None else data
    return {"edge": kind, "from": source, "to": target, "data": named}


def write_lines(path: Path, lines: Iterable[Line | str]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def new_graph(path: Path, config: Config = ONE_TASK, pauses: Pauses = NO_PAUSES, schema: str = SCHEMA) -> Graph:
    og.init(path, schema, config=config)
    runtime = GraphRuntime.open(make_backend(str(path), None, config, pauses=pauses), read_only=False)
    return Graph(runtime, runtime.branch("main"))


def load(
    graph: Graph,
    paths: Any,
    *,
    engine: str = "spark",
    write: WriteOptions | None = None,
    split_bytes: int = 1_500,
    **options: Any,
) -> LoadReport:
    """Like `g.load`, in splits so small that a few lines make several."""
    load_options = LoadOptions(engine=engine, split_bytes=split_bytes, **options)  # type: ignore[arg-type]
    inputs = find_inputs(LoadSources.of(paths), graph._runtime.catalogs, graph._branch.publisher, load_options)
    return run_load(LoadJob(graph._runtime, graph._branch, None, inputs, load_options, write or WriteOptions(), False))


def contents(graph: Graph, types: Sequence[str] = TYPES) -> dict[str, list[dict[str, Any]]]:
    """Every row of every type, in the order of ids."""
    found = {}
    for name in types:
        rows = graph.table(name).to_arrow().to_pylist()
        ids = [row["id"] for row in rows]
        assert len(set(ids)) == len(ids), f"{name} has an id twice"
        found[name] = sorted(rows, key=lambda row: row["id"])
    return found


@dataclass(frozen=True)
class LoadAnswer:
    """What a load did or refused, in terms that both engines share."""

    refused: bool
    counts: Mapping[str, Mapping[str, int]]
    by_code: Mapping[str, int]
    duplicates: int
    rejects: frozenset[tuple[str, int, str]]


def answer_of(graph: Graph, paths: Any, rejects: Path, **options: Any) -> LoadAnswer:
    """Load, and read the rejects back."""
    rejects.mkdir(parents=True, exist_ok=True)
    try:
        report = load(graph, paths, rejects=str(rejects), **options)
    except LoadRejected as error:
        return LoadAnswer(True, {}, error.details["totals"], 0, _read_rejects(rejects))
    return LoadAnswer(False, report.counts, dict(report.rejects_by_code), report.duplicates, _read_rejects(rejects))


def _read_rejects(folder: Path) -> frozenset[tuple[str, int, str]]:
    lines = [json.loads(line) for path in folder.rglob("*.ndjson") for line in path.read_text().splitlines()]
    found = [(Path(line["file"]).name, line["line"], line["code"]) for line in lines]
    assert len({one[:2] for one in found}) == len(found), "a record is rejected twice"
    return frozenset(found)


BASE: tuple[Line, ...] = (
    *(node("Person", name=f"p{number}", age=number, email=f"p{number}@x") for number in range(6)),
    node("City", name="rome", size=1, code="r"),
    node("City", name="oslo", size=2, code="o"),
    node("Note", id="n1", text="one"),
    node("Note", id="n2", text="two"),
    edge("Knows", "p0", "p1", "k1", since="2020-01-01"),
    edge("Lives", "p0", "rome", "l1"),
    edge("Owns", "rome", "n1", "o1"),
    edge("Owns", "oslo", "n2", "o2"),
    edge("Likes", "p1", "rome", "i1", why="food"),
)


def pair(path: Path, config: Config, base: tuple[Line, ...] = BASE) -> tuple[Graph, Graph]:
    """Two graphs with the same rows: partly in tables, partly in the overlay."""
    graphs = []
    for name in ("local", "spark"):
        graph = new_graph(path / name, config)
        if base:
            half = write_lines(path / "base.ndjson", base)
            load(graph, half, engine="local")
            graph.fold()
            graph.mutate('query q() { update Person set { age: 33 } where name = "p2" }')
            graph.mutate('query q() { delete Person where name = "p5" }')
        graphs.append(graph)
    return graphs[0], graphs[1]


def both(path: Path, config: Config, paths: Any, **options: Any) -> tuple[LoadAnswer, Graph]:
    local, spark = pair(path, config)
    expected = answer_of(local, paths, path / "rejects-local", engine="local", **options)
    found = answer_of(spark, paths, path / "rejects-spark", engine="spark", **options)
    assert found == expected
    assert contents(spark) == contents(local)
    assert spark.verify().ok
    return found, spark


def random_input(seed: int) -> Iterator[Line | str]:
    """Good and bad records at random; some ids come twice, some refer to what is not there or is rejected."""
    choose = random.Random(seed)
    people = [f"p{number}" for number in range(12)]
    for number in range(40):
        name = choose.choice(people)
        kind = choose.randrange(9)
        if kind < 3:
            data: dict[str, Any] = {"name": name}
            if choose.random() < 0.7:
                data["age"] = choose.choice([1, 20, 151, None])
            if choose.random() < 0.5:
                data["email"] = choose.choice([f"{name}@x", "p1@x", "shared@x", None])
            yield node("Person", **data)
        elif kind == 3:
            yield node("City", name=choose.choice(["rome", "bern"]), size=choose.choice([1, 5]), code="r")
        elif kind < 6:
            yield edge("Knows", name, choose.choice(people), f"k{choose.randrange(20)}", weight=number / 2)
        elif kind == 6:
            yield edge("Lives", name, choose.choice(["rome", "oslo", "bern"]), f"l{choose.randrange(9)}")
        elif kind == 7:
            why = choose.choice(["food", "art", "sun"])
            yield edge("Likes", name, choose.choice(["rome", "oslo"]), f"i{choose.randrange(9)}", why=why)
        else:
            yield choose.choice(['{"type": "Person", "data": {"nam": 1}}', "{", '{"edge": "Knows", "from": "p0"}'])
