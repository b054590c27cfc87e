"""What schema changes cost: requests that do not depend on rows or types, and memory that does not either."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph.api import Graph, make_backend
from omnigraph.commit.birth import init_graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.errors import ConstraintViolation
from omnigraph.query.language.statements import Compare, Delete, InsertNode, Update
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.keys import KeyClass
from omnigraph.storage.metering import Measurement, MeteredStore, RequestKind
from omnigraph.storage.store import Store
from tests.mutate.schema_change.base_schema import SCHEMA, edit_schema, load_people, rows, with_person
from tests.mutate.schema_change.conftest import MakeWorld
from tests.schedules.world import Actor, World

MANY = 200_000
METADATA_ONLY: dict[str, str] = {
    "property": with_person("nick: String?"),
    "index": with_person("@index(age)"),
    "rename": edit_schema(("age: I32?", 'years: I32? @rename_from("age")')),
    "type rename": edit_schema(("node Person {", 'node Human @rename_from("Person") {'), ("Person ->", "Human ->")),
    "drop": edit_schema(("weight: F32?", "")),
    "type": f"{SCHEMA}\nnode Toy {{ name: String @key }}\n",
    "enum": edit_schema(("enum(cat, dog)", "enum(cat, dog, bird)")),
    "vacuous rule": with_person("nick: String? @unique"),
    "comment": f"{SCHEMA}\n// nothing\n",
}


class SchemaChangeMeter:
    """An actor of which every request is counted, Lance's included."""

    def __init__(self, world: World) -> None:
        stores: list[MeteredStore] = []

        def wrap(store: Store) -> MeteredStore:
            stores.append(MeteredStore(store))
            return stores[0]

        self.actor: Actor = world.actor(wrap=wrap)
        self._store = stores[0]

    @contextmanager
    def measure(self) -> Iterator[Measurement]:
        tables = self.actor.runtime.backend.tables
        before = tables.io_stats()
        with self._store.measure() as window:
            yield window
        spent = tables.io_stats() - before
        window.add_lance(spent.read_iops, spent.write_iops)


def _cost(world: World, schema: str) -> Measurement:
    meter = SchemaChangeMeter(world)
    meter.actor.graph.refresh()
    with meter.measure() as requests:
        receipt = meter.actor.graph.schema.apply(schema)
    assert receipt.commit_id is not None
    return requests


@pytest.mark.parametrize("schema", METADATA_ONLY.values(), ids=METADATA_ONLY)
def test_s102_s113_steps_that_move_no_data_touch_no_table(make_world: MakeWorld, schema: str) -> None:
    """One PUT for the schema, one for the record, whatever the graph holds; not a single request of Lance's."""
    world = make_world(SCHEMA)
    filler = world.actor()
    load_people(filler, 1000)
    filler.apply(InsertNode("Person", {"name": "p1", "age": 5}), InsertNode("Pet", {"name": "Kit"}))
    cost = _cost(world, schema)
    assert cost.by_kind_and_class == {
        (RequestKind.PUT, KeyClass.SCHEMA): 1,
        (RequestKind.PUT, KeyClass.RECORD): 1,
    }, cost.describe()
    assert (cost.lance_reads, cost.lance_writes) == (0, 0)


def test_s113_the_same_schema_costs_one_look(make_world: MakeWorld) -> None:
    meter = SchemaChangeMeter(make_world(SCHEMA))
    meter.actor.graph.refresh()
    with meter.measure() as requests:
        assert meter.actor.graph.schema.apply(SCHEMA).commit_id is None
    assert requests.by_kind_and_class == {(RequestKind.GET, KeyClass.RECORD): 1}, requests.describe()


@pytest.mark.parametrize("count", [MANY, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_s102_a_property_costs_a_large_table_what_it_costs_an_empty_one(make_world: MakeWorld, count: int) -> None:
    empty = _cost(make_world(SCHEMA), with_person("nick: String?"))
    world = make_world(SCHEMA)
    load_people(world.actor(), count)
    large = _cost(world, with_person("nick: String?"))
    assert (large.by_kind_and_class, large.requests) == (empty.by_kind_and_class, empty.requests)
    reader = world.reader().graph
    assert reader.table("Person").count() == count
    assert reader.table("Person").to_arrow(["nick"], Compare("name", "=", "p7")).to_pylist() == [{"nick": None}]


def test_a_default_on_a_large_table_with_holes_and_an_overlay(make_world: MakeWorld) -> None:
    """Every row of a large table gets the value and the wider type; removed rows stay removed."""
    world = make_world(SCHEMA)
    actor = world.actor()
    load_people(actor, MANY)
    actor.apply(Delete("Person", Compare("age", "=", 99)))
    actor.graph.fold()
    actor.apply(Update("Person", {"age": 1000}, Compare("name", "=", "p0")), Delete("Person", Compare("id", "=", "p1")))
    actor.apply(InsertNode("Person", {"name": "new"}))
    remaining = MANY - MANY // 100 - 1 + 1
    text = edit_schema(("age: I32?", "age: I64?  rank: I32 @default(7)"))
    actor.graph.schema.apply(text)
    for reader in (actor, world.reader()):
        table = reader.graph.table("Person")
        assert table.count() == remaining
        assert table.to_arrow(["id"], Compare("rank", "=", 7)).num_rows == remaining
        assert table.to_arrow(["id"], Compare("age", "=", 99)).num_rows == 0
        assert table.to_arrow(["id"], Compare("age", "=", 1000)).to_pylist() == [{"id": "p0"}]
        assert table.to_arrow(["id"], Compare("id", "in", ["p1", "new"])).to_pylist() == [{"id": "new"}]


_GROWTH = """
import sys
from tests.mutate.schema_change.test_cost import apply_to_large
print(apply_to_large(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def apply_to_large(path: str, schema: str, rows_wanted: int) -> int:
    """For a process of its own: how much its memory grew, in kB, while it applied a schema to a wide table."""
    world = World(Path(path), edit_schema(("weight: F32?", "weight: F32?  text: String?")))
    actor = world.actor()
    for first in range(0, rows_wanted, 50_000):
        load_people(actor, 50_000, first)
    actor.graph.table("Person").count()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    actor.graph.schema.apply(schema)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    world.close()
    return grown


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """A default of 2 kB on 200,000 rows is 400 MB of values; they are never in memory together."""
    rule = f'rank: String @default("{"x" * 2000}")'
    schema = edit_schema(("weight: F32?", f"weight: F32?  text: String?  {rule}"))
    outcome = subprocess.run(
        [sys.executable, "-c", _GROWTH, str(tmp_path), schema, str(MANY)], capture_output=True, text=True, check=True
    )
    assert int(outcome.stdout) < 250_000, f"memory grew by {int(outcome.stdout)} kB"


def test_violations_of_a_large_table_are_found_in_batches(make_world: MakeWorld) -> None:
    """The last row breaks the rule; the table is read once, one column of it."""
    world = make_world(SCHEMA)
    actor = world.actor()
    load_people(actor, MANY)
    actor.apply(InsertNode("Person", {"name": "last", "age": 101}))
    actor.graph.fold()
    with pytest.raises(ConstraintViolation, match="101 is not in the range") as refused:
        actor.graph.schema.apply(edit_schema(("age: I32?", "age: I32? @range(0..100)")))
    assert [violation["id"] for violation in refused.value.violations] == ["last"]
    assert len(rows(actor.graph, "Pet")) == 0


# --- many types ----------------------------------------------------------------------------------------------------


def large_schema(types: int, properties: int) -> str:
    """Half nodes, half edges, each with its share of the properties."""
    share = properties // types
    body = "  ".join(f"p{number}: String?" for number in range(share - 1))
    nodes = [f"node T{number} {{ name: String @key  {body} }}" for number in range(types // 2)]
    edges = [f"edge E{number}: T{number} -> T0 {{ since: I32?  {body} }}" for number in range(types // 2)]
    return "\n".join([*nodes, *edges]) + "\n"


class Begun:
    """A graph made and opened with every request counted."""

    def __init__(self, path: Path, source: str) -> None:
        stores: list[MeteredStore] = []

        def wrap(store: Store) -> MeteredStore:
            stores.append(MeteredStore(store))
            return stores[0]

        numbers = iter(range(10**6))
        self.backend = make_backend(str(path), None, Config(fsync=False), wrap=wrap)
        self.store = stores[0]
        with self.store.measure("init") as self.made:
            init_graph(self.backend, compile_schema(source, mint=lambda: f"{next(numbers):08}"))
        with self.store.measure("open") as self.opened:
            runtime = GraphRuntime.open(self.backend, read_only=False)
            self.graph = Graph(runtime, runtime.branch("main"))
            assert self.graph.schema.source == source


def test_200_types_with_3000_properties(tmp_path: Path) -> None:
    """At most six requests to begin, and as many as for one type to open and to change: types cost bytes."""
    source = large_schema(200, 3000)
    large = Begun(tmp_path / "large", source)
    small = Begun(tmp_path / "small", SCHEMA)
    assert large.made.requests <= 6, large.made.describe()
    assert large.opened.by_kind_and_class == small.opened.by_kind_and_class
    large.graph.apply([InsertNode("T7", {"name": "x", "p3": "y"})])
    with large.store.measure("apply") as applied:
        large.graph.schema.apply(source.replace("node T7 {", "node T7 { extra: I32?  "))
    assert applied.requests == 2, applied.describe()
    assert rows(large.graph, "T7")["x"]["p3"] == "y"
    assert len(large.graph.schema.catalog.types) == 200
    for one in (large, small):
        one.backend.close()
