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
from omnigraph.commit.graph_runtime import Site
from omnigraph.commit.publish_plan import PublishPlan, StagedMove, TableAction
from omnigraph.commit.publisher import Published
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
    site = Site.open(backend, read_only=False)
    catalog = site.catalogs.get(site.branch("main").publisher.head.schema)
    people, tags, follows, likes = (
        next(one for one in catalog.types if one.name == name) for name in ("Person", "Tag", "Follows", "Likes")
    )
    _publish(site, "load", [
        _loaded(site, people, _people(people, size)),
        _loaded(site, tags, _tags(tags)),
        _loaded(site, follows, _follows(follows, size)),
        _loaded(site, likes, _follows(likes, Size(min(size.people, _LIKES), 1))),
    ])  # fmt: skip
    email = people.by_name["email"].id
    _publish(site, "physical", [
        _indexed(site, people, "id", email),
        _indexed(site, tags, "id"),
        _indexed(site, follows, "id", "src", "dst"),
        _indexed(site, likes, "id", "src", "dst"),
    ])  # fmt: skip
    backend.close()


def _publish(site: Site, kind: str, actions: list[TableAction]) -> None:
    publisher, backend = site.branch("main").publisher, site.backend
    plan = PublishPlan(kind, backend.ids.ulid(), publisher.refresh(), actions=tuple(actions))  # type: ignore[arg-type]
    done = publisher.publish(plan, backend.clock.monotonic() + 60.0)
    assert isinstance(done, Published), done


def _loaded(site: Site, one: TypeDef, rows: pa.Table) -> TableAction:
    tables = site.backend.tables
    base = tables.birth(one.id, one.kind)
    staged = tables.stage(base, TableDelta(arrow_schema(one), rows, present_ids=()))
    made = tables.commit(base, staged)
    return TableAction(
        one.id,
        arrow_schema(one),
        inserted=rows.num_rows,
        move=StagedMove(None, staged, made.version, made.size_bytes, made.fragments),
    )


def _indexed(site: Site, one: TypeDef, *columns: str) -> TableAction:
    base = _pinned(site, one)
    tables = site.backend.tables
    staged = tables.stage_index(base, [IndexSpec(f"by_{column}", column, "BTREE") for column in columns])
    made = tables.open(one.id, staged.version)
    move = StagedMove(base.version, staged, made.version, made.size_bytes, made.fragments)
    return TableAction(one.id, arrow_schema(one), move=move)


def _pinned(site: Site, one: TypeDef) -> PinnedTable:
    version = site.branch("main").publisher.head.pins[one.id].version
    assert version is not None
    return site.backend.tables.open(one.id, version)


def _people(one: TypeDef, size: Size) -> pa.Table:
    names = [person(number) for number in range(size.people)]
    columns = {
        "id": pa.array(names),
        one.by_name["name"].id: pa.array(names),
        one.by_name["email"].id: pa.array([f"{name}@example.org" for name in names]),
        one.by_name["age"].id: pa.array([number % 90 for number in range(size.people)], pa.int32()),
    }
    return _in_shape(one, columns)


def _tags(one: TypeDef) -> pa.Table:
    names = pa.array([f"t{number}" for number in range(1000)])
    return _in_shape(one, {"id": names, one.by_name["name"].id: names})


def _follows(one: TypeDef, size: Size) -> pa.Table:
    each, count = size.edges_each, size.people * size.edges_each
    sources = [number // each for number in range(count)]
    targets = [(source + number % each + 1) % size.people for number, source in enumerate(sources)]
    columns = {
        "id": pa.array([f"e{number}" for number in range(count)]),
        "src": pa.array(map(person, sources), pa.utf8()),
        "dst": pa.array(map(person, targets), pa.utf8()),
        one.by_name["since"].id: pa.array([2000 + number % 26 for number in range(count)], pa.int32()),
    }
    return _in_shape(one, columns)


def _in_shape(one: TypeDef, columns: dict[str, pa.Array]) -> pa.Table:
    schema = arrow_schema(one)
    return pa.table({field.name: columns[field.name] for field in schema}, schema=schema)
