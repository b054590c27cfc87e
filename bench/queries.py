"""Measures nine questions about a social graph, beside other engines on the same data: `python -m bench queries`.

The graph is generated: persons who follow each other, live in cities of states of countries, and have interests.
All systems answer the same questions; a question whose answers differ fails the run. Each is asked warm, taking turns,
and the median counts; what takes seconds is asked once. The peers are an embedded graph database from PyPI (`ladybug`,
else `kuzu`), `lance-graph` where it is installed, and hand-written SQL on DuckDB, the last two over the very Arrow
tables that the graph holds.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import lookups
from bench.report import Report
from bench.timing import medians_s, seconds
from omnigraph.api import make_backend
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord, Epoch, Header, Pin, WriteSet
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.query.run.run_query import prepare_run
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.lance import IndexSpec, TableDelta

SCHEMA = """
node Person { number: I64 @key  name: String  gender: enum(female, male)  age: I32 }
node City { number: I64 @key  name: String }
node State { number: I64 @key  name: String }
node Country { number: I64 @key  name: String }
node Interest { number: I64 @key  name: String }
edge Follows: Person -> Person
edge LivesIn: Person -> City
edge CityIn: City -> State
edge StateIn: State -> Country
edge HasInterest: Person -> Interest
"""
COUNTRIES, STATES, CITIES, INTERESTS = 3, 60, 7_000, 40
FOLLOWED_MEAN = 24
SEED = 20_260_301
#: A question that takes longer than this the first time is timed once.
SLOW_S = 2.0

Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Question:
    """One question in three languages. Floats are compared rounded."""

    title: str
    gq: str
    cypher: str
    sql: str


_FOLLOWS = "MATCH (a:Person)-[:Follows]->(b:Person)"
_PLACE = "-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(k:Country)"
_PLACE_GQ = "$p livesIn $c $c cityIn $s $s stateIn $k"
_PLACE_SQL = (
    "JOIN LivesIn l ON l.src = p.id JOIN City c ON c.id = l.dst JOIN CityIn ci ON ci.src = c.id "
    "JOIN State s ON s.id = ci.dst JOIN StateIn si ON si.src = s.id JOIN Country k ON k.id = si.dst"
)
_FOND = "(p:Person)-[:HasInterest]->(i:Interest)"
_FOND_SQL = "Person p JOIN HasInterest h ON h.src = p.id JOIN Interest i ON i.id = h.dst"

QUESTIONS = (
    Question(
        "1 the three most followed persons",
        "match { $a follows $b } return { $b.number, count($a) as n } order { n desc, $b.number } limit 3",
        f"{_FOLLOWS} RETURN b.number, count(a) AS n ORDER BY n DESC, b.number LIMIT 3",
        "SELECT b.number, count(*) n FROM Follows f JOIN Person b ON b.id = f.dst "
        "GROUP BY b.number ORDER BY n DESC, b.number LIMIT 3",
    ),
    Question(
        "2 the city of the most followed person",
        "match { $a follows $b $b livesIn $c } return { $b.number, $c.name, count($a) as n } "
        "order { n desc, $b.number } limit 1",
        f"{_FOLLOWS}-[:LivesIn]->(c:City) RETURN b.number, c.name, count(a) AS n ORDER BY n DESC, b.number LIMIT 1",
        "SELECT b.number, c.name, count(*) n FROM Follows f JOIN Person b ON b.id = f.dst "
        "JOIN LivesIn l ON l.src = b.id JOIN City c ON c.id = l.dst "
        "GROUP BY b.number, c.name ORDER BY n DESC, b.number LIMIT 1",
    ),
    Question(
        "3 the five cities of a country with the lowest average age",
        f'match {{ $p: Person {_PLACE_GQ} $k.name = "country 1" }} return {{ $c.name, avg($p.age) as a }} '
        "order { a, $c.name } limit 5",
        f"MATCH (p:Person){_PLACE} WHERE k.name = 'country 1' "
        "RETURN c.name, avg(p.age) AS a ORDER BY a, c.name LIMIT 5",
        f"SELECT c.name, avg(p.age) a FROM Person p {_PLACE_SQL} WHERE k.name = 'country 1' "
        "GROUP BY c.name ORDER BY a, c.name LIMIT 5",
    ),
    Question(
        "4 persons from 30 to 40 per country",
        f"match {{ $p: Person {_PLACE_GQ} $p.age >= 30 $p.age <= 40 }} return {{ $k.name, count($p) as n }} "
        "order { n desc, $k.name }",
        f"MATCH (p:Person){_PLACE} WHERE p.age >= 30 AND p.age <= 40 "
        "RETURN k.name, count(p) AS n ORDER BY n DESC, k.name",
        f"SELECT k.name, count(*) n FROM Person p {_PLACE_SQL} WHERE p.age BETWEEN 30 AND 40 "
        "GROUP BY k.name ORDER BY n DESC, k.name",
    ),
    Question(
        "5 men in one city with one interest",
        'match { $p: Person $p livesIn $c $p hasInterest $i $c.name = "city 17" $i.name = "interest 3" '
        '$p.gender = "male" } return { count($p) as n }',
        f"MATCH {_FOND}, (p)-[:LivesIn]->(c:City) WHERE i.name = 'interest 3' AND c.name = 'city 17' "
        "AND p.gender = 'male' RETURN count(p) AS n",
        f"SELECT count(*) n FROM {_FOND_SQL} JOIN LivesIn l ON l.src = p.id JOIN City c ON c.id = l.dst "
        "WHERE i.name = 'interest 3' AND c.name = 'city 17' AND p.gender = 'male'",
    ),
    Question(
        "6 the cities with most women of one interest",
        'match { $p: Person $p livesIn $c $p hasInterest $i $i.name = "interest 3" $p.gender = "female" } '
        "return { $c.name, count($p) as n } order { n desc, $c.name } limit 5",
        f"MATCH {_FOND}, (p)-[:LivesIn]->(c:City) WHERE i.name = 'interest 3' AND p.gender = 'female' "
        "RETURN c.name, count(p) AS n ORDER BY n DESC, c.name LIMIT 5",
        f"SELECT c.name, count(*) n FROM {_FOND_SQL} JOIN LivesIn l ON l.src = p.id JOIN City c ON c.id = l.dst "
        "WHERE i.name = 'interest 3' AND p.gender = 'female' GROUP BY c.name ORDER BY n DESC, c.name LIMIT 5",
    ),
    Question(
        "7 the state with most persons from 23 to 30 of one interest",
        'match { $p: Person $p livesIn $c $c cityIn $s $p hasInterest $i $i.name = "interest 3" '
        "$p.age >= 23 $p.age <= 30 } return { $s.name, count($p) as n } order { n desc, $s.name } limit 1",
        f"MATCH {_FOND}, (p)-[:LivesIn]->(c:City)-[:CityIn]->(s:State) WHERE i.name = 'interest 3' "
        "AND p.age >= 23 AND p.age <= 30 RETURN s.name, count(p) AS n ORDER BY n DESC, s.name LIMIT 1",
        f"SELECT s.name, count(*) n FROM {_FOND_SQL} JOIN LivesIn l ON l.src = p.id JOIN CityIn ci ON ci.src = l.dst "
        "JOIN State s ON s.id = ci.dst WHERE i.name = 'interest 3' AND p.age BETWEEN 23 AND 30 "
        "GROUP BY s.name ORDER BY n DESC, s.name LIMIT 1",
    ),
    Question(
        "8 paths of two steps",
        "match { $a follows $b $b follows $c } return { count($a) as n }",
        f"{_FOLLOWS}-[:Follows]->(c:Person) RETURN count(*) AS n",
        "SELECT count(*) n FROM Follows f JOIN Follows g ON g.src = f.dst",
    ),
    Question(
        "9 paths through persons of 50 to persons above 25",
        "match { $a follows $b $b follows $c $b.age = 50 $c.age > 25 } return { count($a) as n }",
        f"{_FOLLOWS}-[:Follows]->(c:Person) WHERE b.age = 50 AND c.age > 25 RETURN count(*) AS n",
        "SELECT count(*) n FROM Follows f JOIN Person b ON b.id = f.dst JOIN Follows g ON g.src = b.id "
        "JOIN Person c ON c.id = g.dst WHERE b.age = 50 AND c.age > 25",
    ),
)


# ---- the data --------------------------------------------------------------------------------------------------------


def generate(persons: int) -> dict[str, pa.Table]:
    """Generates tables by type name, with property names as columns; edges have `src` and `dst`."""
    draw = np.random.default_rng(SEED)
    nodes = {
        "Person": pa.table(
            {
                "number": np.arange(persons),
                "name": [f"person {number}" for number in range(persons)],
                "gender": pa.array(np.where(draw.random(persons) < 0.5, "female", "male")),
                "age": draw.integers(18, 90, persons).astype(np.int32),
            }
        )
    }
    for name, count in (("City", CITIES), ("State", STATES), ("Country", COUNTRIES), ("Interest", INTERESTS)):
        texts = [f"{name.lower()} {number}" for number in range(count)]
        nodes[name] = pa.table({"number": np.arange(count), "name": texts})
    tables = {name: table.append_column("id", table["number"].cast(pa.utf8())) for name, table in nodes.items()}
    # Some persons are followed much more than others; nobody follows the same person twice, or themselves.
    popular = (draw.pareto(2.0, persons) + 1) / 1
    followed = draw.choice(persons, persons * FOLLOWED_MEAN, p=popular / popular.sum())
    follower = draw.integers(0, persons, persons * FOLLOWED_MEAN)
    pairs = np.unique(follower * persons + followed)
    tables["Follows"] = _edges(pairs // persons, pairs % persons, drop_loops=True)
    everybody = np.arange(persons)
    tables["LivesIn"] = _edges(everybody, draw.integers(0, CITIES, persons))
    tables["CityIn"] = _edges(np.arange(CITIES), draw.integers(0, STATES, CITIES))
    tables["StateIn"] = _edges(np.arange(STATES), np.arange(STATES) % COUNTRIES)
    fond = np.unique(np.repeat(everybody, 3) * INTERESTS + draw.integers(0, INTERESTS, persons * 3))
    tables["HasInterest"] = _edges(fond // INTERESTS, fond % INTERESTS)
    return tables


def _edges(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], *, drop_loops: bool = False) -> pa.Table:
    if drop_loops:
        is_no_loop = source != target
        source, target = source[is_no_loop], target[is_no_loop]
    ids = pa.array(np.arange(len(source))).cast(pa.utf8())
    return pa.table({"id": ids, "src": pa.array(source).cast(pa.utf8()), "dst": pa.array(target).cast(pa.utf8())})


# ---- the systems -----------------------------------------------------------------------------------------------------


def store_graph(root: Path, tables: Mapping[str, pa.Table]) -> Snapshot:
    """Stores the graph with indexes, as after a load and an optimize."""
    catalog = compile_schema(SCHEMA, mint=lambda: "bench")
    backend = make_backend(str(root), None, Config(fsync=False))
    pins = {}
    for type_def in catalog.types:
        base = backend.tables.birth(type_def.id, type_def.kind)
        rows = _physical(type_def, tables[type_def.name])
        committed = backend.tables.commit(
            base, backend.tables.stage(base, TableDelta(arrow_schema(type_def), rows, present_ids=()))
        )
        committed = backend.tables.commit(committed, backend.tables.stage_index(committed, _indexes(type_def)))
        pins[type_def.id] = Pin(committed.version, committed.rows, committed.size_bytes, committed.fragments, 1)
    clock = backend.clock
    header = Header("0" * 26, 1, "bench", "load", (), 1, catalog.hash, clock.now(), None, None, (), "main")
    return Snapshot(backend, CommitRecord(header, Epoch(), 1, pins, {}, WriteSet(), {}), catalog)


def omnigraph_system(snapshot: Snapshot) -> Callable[[Question], Callable[[], Answer]]:
    """Runs questions on one snapshot, without the GET by which a handle finds the newest commit."""

    def ask(question: Question) -> Callable[[], Answer]:
        return lambda: _ask(snapshot, snapshot.catalog, f"query q() {{ {question.gq} }}")

    return ask


def _ask(snapshot: Snapshot, catalog: Catalog, source: str) -> Answer:
    checked = get_checked_query(source, None, catalog)
    result = prepare_run(snapshot, checked, bind_params(checked, {}), now=snapshot.backend.clock.now()).result()
    return [tuple(row.values()) for row in result.rows]


def _physical(type_def: TypeDef, table: pa.Table) -> pa.Table:
    schema = arrow_schema(type_def)
    names = {prop.id: prop.name for prop in type_def.properties}
    return pa.table({name: table[names.get(name, name)].cast(schema.field(name).type) for name in schema.names})


def _indexes(type_def: TypeDef) -> list[IndexSpec]:
    columns = ("id", "src", "dst") if type_def.kind == "edge" else ("id",)
    return [IndexSpec(f"by_{column}", column, "BTREE") for column in columns]


def duckdb_system(tables: Mapping[str, pa.Table]) -> Callable[[Question], Callable[[], Answer]]:
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)

    def ask(question: Question) -> Callable[[], Answer]:
        return lambda: [tuple(row) for row in connection.sql(question.sql).fetchall()]

    return ask


def graph_system(name: str, root: Path, tables: Mapping[str, pa.Table]) -> Callable[[Question], Callable[[], Answer]]:
    """Opens `ladybug` or `kuzu`, filled from Parquet files."""
    package = importlib.import_module(name)
    connection = package.Connection(package.Database(str(root / f"{name}.db")))
    nodes = ("Person", "City", "State", "Country", "Interest")
    for node_type in nodes:
        properties = "name STRING, gender STRING, age INT32" if node_type == "Person" else "name STRING"
        connection.execute(f"CREATE NODE TABLE {node_type}(number INT64, {properties}, id STRING, PRIMARY KEY(number))")
    ends = {
        "Follows": ("Person", "Person"),
        "LivesIn": ("Person", "City"),
        "CityIn": ("City", "State"),
        "StateIn": ("State", "Country"),
        "HasInterest": ("Person", "Interest"),
    }
    for edge_type, (source, target) in ends.items():
        connection.execute(f"CREATE REL TABLE {edge_type}(FROM {source} TO {target})")
    for type_name, table in tables.items():
        path = root / f"{type_name}.parquet"
        if type_name in ends:
            table = pa.table({"from": table["src"].cast(pa.int64()), "to": table["dst"].cast(pa.int64())})
        pq.write_table(table, path)
        connection.execute(f"COPY {type_name} FROM '{path}'")

    def ask(question: Question) -> Callable[[], Answer]:
        def run() -> Answer:
            result = connection.execute(question.cypher)
            rows = []
            while result.has_next():
                rows.append(tuple(result.get_next()))
            result.close()
            return rows

        return run

    return ask


def lance_graph_system(tables: Mapping[str, pa.Table]) -> Callable[[Question], Callable[[], Answer]]:
    """Opens an engine that runs Cypher over Arrow tables."""
    package = importlib.import_module("lance_graph")
    builder = package.GraphConfig.builder()
    for name, table in tables.items():
        is_edge = "src" in table.column_names
        builder = builder.with_relationship(name, "src", "dst") if is_edge else builder.with_node_label(name, "id")
    config = builder.build()

    def ask(question: Question) -> Callable[[], Answer]:
        query = package.CypherQuery(question.cypher).with_config(config)
        return lambda: [tuple(row.values()) for row in query.execute(dict(tables)).to_pylist()]

    return ask


def _peers() -> list[str]:
    """Returns the installed one of two names of the same program; both cannot be loaded into one process."""
    return [name for name in ("ladybug", "kuzu") if importlib.util.find_spec(name) is not None][:1]


# ---- the run ---------------------------------------------------------------------------------------------------------


def run(report: Report, *, quick: bool) -> None:
    tables = generate(10_000 if quick else 100_000)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        snapshot = store_graph(root / "graph", tables)
        systems = {"omnigraph": omnigraph_system(snapshot), "duckdb": duckdb_system(tables)}
        for name in _peers():
            systems[name] = graph_system(name, root, tables)
        if importlib.util.find_spec("lance_graph") is not None:
            systems["lance-graph"] = lance_graph_system(tables)
        looked_up = lookups.compare(snapshot, 20 if quick else 100)
        rows = [_measure(question, systems, 3 if quick else 10) for question in QUESTIONS]
    best = sum(row["ratio"] <= 1.0 for row in rows)
    note = f"milliseconds, medians, warm; ratio to the best peer; {best} of {len(rows)} at or below it"
    report.add(f"Nine questions, {tables['Follows'].num_rows} follows edges", rows, note)
    report.add("Lookups, before anything is coded in memory", looked_up, "milliseconds, medians, warm; at most 2")


def _measure(
    question: Question, systems: Mapping[str, Callable[[Question], Callable[[], Answer]]], repeat: int
) -> dict[str, Any]:
    ways = {name: ask(question) for name, ask in systems.items()}
    answers: dict[str, Answer] = {}
    first_s = {name: seconds(partial(_run_checked, name, way, answers)) for name, way in ways.items()}
    if len({repr(answer) for answer in answers.values()}) > 1:
        raise AssertionError(f"{question.title}: {answers}")
    slow = {name: seconds(way) for name, way in ways.items() if first_s[name] > SLOW_S}
    spent = medians_s({name: way for name, way in ways.items() if name not in slow}, repeat) | slow
    times = {name: round(spent[name] * 1000, 2) for name in ways}
    best = min(taken_s for name, taken_s in spent.items() if name != "omnigraph")
    return {"question": question.title, **times, "ratio": round(spent["omnigraph"] / best, 2)}


def _run_checked(name: str, way: Callable[[], Answer], answers: dict[str, Answer]) -> None:
    answers[name] = _round_floats(way())


def _round_floats(answer: Answer) -> Answer:
    return [tuple(round(value, 6) if isinstance(value, float) else value for value in row) for row in answer]
