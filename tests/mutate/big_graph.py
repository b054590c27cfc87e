"""A graph of any size in seconds: whole Arrow tables are staged, published as one commit, then indexed by another.

People are `p0`, `p1` …, each with a unique email; every one has the same number of `Follows` edges to the people after
them, so what a probe finds does not depend on the size. The first ten thousand also like the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

import omnigraph
from omnigraph.api import make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction
from omnigraph.commit.publisher import PlanPublished
from omnigraph.config import Config
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from omnigraph.storage.lance import TableDelta
from omnigraph.storage.lance.indexes import IndexSpec
from omnigraph.storage.lance.pinned_table import PinnedTable

SCHEMA = """
node Person { name: String @key  email: String? @unique  age: I32? }
node Tag { name: String @key }
edge Follows: Person -> Person @card(0..100) { since: I32? }
edge Likes: Person -> Person { since: I32? }
"""
_LIKES = 10_000

_QUICK = Config(fsync=False, fold="never")


@dataclass(frozen=True, slots=True)
class Size:
    """How many people, and how many edges each of them has."""

    people: int
    edges_each: int = 5

    def __str__(self) -> str:
        return f"{self.people:,} nodes, {self.people * self.edges_each:,} edges"


def person(number: int) -> str:
    return f"p{number}"


def build(uri: str, size: Size, options: Mapping[str, str] | None = None) -> None:
    """The graph, in three commits: its birth, all rows, all indexes."""
    omnigraph.init(uri, SCHEMA, storage_options=options, config=_QUICK)
    backend = make_backend(uri, options, _QUICK)
    runtime = GraphRuntime.open(backend, read_only=False)
    catalog = runtime.catalogs.get(runtime.branch("main").publisher.head.schema)
    people, tags, follows, likes = (
        next(type_def for type_def in catalog.types if type_def.name == name)
        for name in ("Person", "Tag", "Follows", "Likes")
    )
    _publish(runtime, "load", [
        _stage_rows(runtime, people, _people(people, size)),
        _stage_rows(runtime, tags, _tags(tags)),
        _stage_rows(runtime, follows, _follows(follows, size)),
        _stage_rows(runtime, likes, _follows(likes, Size(min(size.people, _LIKES), 1))),
    ])  # fmt: skip
    email = people.by_name["email"].id
    _publish(runtime, "physical", [
        _stage_indexes(runtime, people, "id", email),
        _stage_indexes(runtime, tags, "id"),
        _stage_indexes(runtime, follows, "id", "src", "dst"),
        _stage_indexes(runtime, likes, "id", "src", "dst"),
    ])  # fmt: skip
    backend.close()


def _publish(runtime: GraphRuntime, kind: str, actions: list[TableAction]) -> None:
    publisher, backend = runtime.branch("main").publisher, runtime.backend
    plan = PublishPlan(kind, backend.ids.ulid(), publisher.refresh(), actions=tuple(actions))  # type: ignore[arg-type]
    outcome = publisher.publish(plan, backend.clock.monotonic() + 60.0)
    assert isinstance(outcome, PlanPublished), outcome


def _stage_rows(runtime: GraphRuntime, type_def: TypeDef, rows: pa.Table) -> TableAction:
    tables = runtime.backend.tables
    base = tables.birth(type_def.id, type_def.kind)
    staged = tables.stage(base, TableDelta(arrow_schema(type_def), rows, present_ids=()))
    committed_table = tables.commit(base, staged)
    return TableAction(
        type_def.id,
        arrow_schema(type_def),
        inserted=rows.num_rows,
        move=StagedMove(None, staged, committed_table.version, committed_table.size_bytes, committed_table.fragments),
    )


def _stage_indexes(runtime: GraphRuntime, type_def: TypeDef, *columns: str) -> TableAction:
    base = _open_pin(runtime, type_def)
    tables = runtime.backend.tables
    staged = tables.stage_index(base, [IndexSpec(f"by_{column}", column, "BTREE") for column in columns])
    graph = tables.open(type_def.id, staged.version)
    move = StagedMove(base.version, staged, graph.version, graph.size_bytes, graph.fragments)
    return TableAction(type_def.id, arrow_schema(type_def), move=move)


def _open_pin(runtime: GraphRuntime, type_def: TypeDef) -> PinnedTable:
    version = runtime.branch("main").publisher.head.pins[type_def.id].version
    assert version is not None
    return runtime.backend.tables.open(type_def.id, version)


def _people(type_def: TypeDef, size: Size) -> pa.Table:
    names = [person(number) for number in range(size.people)]
    columns = {
        "id": pa.array(names),
        type_def.by_name["name"].id: pa.array(names),
        type_def.by_name["email"].id: pa.array([f"{name}@example.org" for name in names]),
        type_def.by_name["age"].id: pa.array([number % 90 for number in range(size.people)], pa.int32()),
    }
    return _in_shape(type_def, columns)


def _tags(type_def: TypeDef) -> pa.Table:
    names = pa.array([f"t{number}" for number in range(1000)])
    return _in_shape(type_def, {"id": names, type_def.by_name["name"].id: names})


def _follows(type_def: TypeDef, size: Size) -> pa.Table:
    each, count = size.edges_each, size.people * size.edges_each
    sources = [number // each for number in range(count)]
    targets = [(source + number % each + 1) % size.people for number, source in enumerate(sources)]
    columns = {
        "id": pa.array([f"e{number}" for number in range(count)]),
        "src": pa.array(map(person, sources), pa.utf8()),
        "dst": pa.array(map(person, targets), pa.utf8()),
        type_def.by_name["since"].id: pa.array([2000 + number % 26 for number in range(count)], pa.int32()),
    }
    return _in_shape(type_def, columns)


def _in_shape(type_def: TypeDef, columns: dict[str, pa.Array]) -> pa.Table:
    schema = arrow_schema(type_def)
    return pa.table({field.name: columns[field.name] for field in schema}, schema=schema)
