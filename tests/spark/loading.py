"""Loads on both engines over one small schema in which every rule can be broken."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.config import Config
from omnigraph.errors import LoadRejected
from omnigraph.graph import Graph
from omnigraph.load.inputs import Given
from omnigraph.load.options import LoadOptions
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from omnigraph.storage.opening import make_backend
from omnigraph.storage.pauses import NO_PAUSES, Pauses
from omnigraph.write.plan import WriteOptions
from omnigraph.write.site import Site

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
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def new_graph(place: Path, config: Config = ONE_TASK, pauses: Pauses = NO_PAUSES, schema: str = SCHEMA) -> Graph:
    og.init(place, schema, config=config)
    site = Site.open(make_backend(str(place), None, config, pauses=pauses), read_only=False)
    return Graph(site, site.branch("main"))


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
    chosen = LoadOptions(engine=engine, split_bytes=split_bytes, **options)  # type: ignore[arg-type]
    inputs = find_inputs(Given.of(paths), graph._site.catalogs, graph._branch.publisher, chosen)
    return run_load(LoadJob(graph._site, graph._branch, None, inputs, chosen, write or WriteOptions(), False))


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
class Answer:
    """What a load did or refused, in terms that both engines share."""

    refused: bool
    counts: Mapping[str, Mapping[str, int]]
    by_code: Mapping[str, int]
    duplicates: int
    rejects: frozenset[tuple[str, int, str]]


def answer_of(graph: Graph, paths: Any, rejects: Path, **options: Any) -> Answer:
    """Load, and read the rejects back."""
    rejects.mkdir(parents=True, exist_ok=True)
    try:
        report = load(graph, paths, rejects=str(rejects), **options)
    except LoadRejected as error:
        return Answer(True, {}, error.details["totals"], 0, _kept(rejects))
    return Answer(False, report.counts, dict(report.rejects_by_code), report.duplicates, _kept(rejects))


def _kept(folder: Path) -> frozenset[tuple[str, int, str]]:
    lines = [json.loads(line) for path in folder.rglob("*.ndjson") for line in path.read_text().splitlines()]
    found = [(Path(one["file"]).name, one["line"], one["code"]) for one in lines]
    assert len({one[:2] for one in found}) == len(found), "a record is rejected twice"
    return frozenset(found)
