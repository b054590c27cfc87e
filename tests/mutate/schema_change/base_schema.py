"""The schema most tests start from, and how they look at a graph."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import FootprintBuilder
from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteOptions, WriteTxn
from omnigraph.log.commit_record import CommitKind
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import TypeDef
from tests.schedules.world import Actor

SCHEMA = """
node Person { name: String @key  age: I32?  weight: F32? }
node Pet { name: String @key  kind: enum(cat, dog)? }
edge Owns: Person -> Pet { since: I32? }
"""


def edit_schema(*changes: tuple[str, str], schema: str = SCHEMA) -> str:
    """The schema with parts of its text replaced; each part must be there."""
    for old, new in changes:
        assert old in schema, f"{old!r} is not in the schema"
        schema = schema.replace(old, new)
    return schema


def with_person(more: str, schema: str = SCHEMA) -> str:
    """`Person` with further properties or rules."""
    return edit_schema(("weight: F32?", f"weight: F32?  {more}"), schema=schema)


def rows(graph: Any, type_name: str) -> dict[str, dict[str, Any]]:
    """Rows by id, of a graph or a view; an id that is there twice is damage."""
    rows = graph.table(type_name).to_arrow().to_pylist()
    by_id = {row.pop("id"): row for row in rows}
    assert len(by_id) == len(rows)
    return by_id


class BulkLoad:
    """Rows straight from Arrow into one table, as a load does it."""

    kind: CommitKind = "load"

    def __init__(self, actor: Actor, type_def: TypeDef, rows: pa.Table) -> None:
        self.op_id = actor.runtime.backend.ids.ulid()
        self._type = type_def
        self._rows = rows

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        claims = FootprintBuilder()
        claims.write_all(self._type.id)
        count = self._rows.num_rows
        action = TableAction(
            self._type.id, arrow_schema(self._type), self._rows, inserted=count, present_ids=(), never_inline=True
        )
        return PublishPlan(self.kind, self.op_id, txn.record, claims.build(), (action,))


def load_people(actor: Actor, count: int, first: int = 0) -> Receipt:
    """`count` persons with an age, in one commit and one table version."""
    type_def = actor.graph.schema.catalog.node("Person")
    assert type_def is not None
    names = pa.array([f"p{number}" for number in range(first, first + count)])
    ages = pa.array(itertools.islice(itertools.cycle(range(100)), count), pa.int32(), size=count)
    columns = {"id": names, type_def.by_name["name"].id: names, type_def.by_name["age"].id: ages}
    for prop in type_def.properties:
        if prop.id not in columns:
            columns[prop.id] = pa.nulls(count, arrow_schema(type_def).field(prop.id).type)
    table = pa.table(columns).select(arrow_schema(type_def).names).cast(arrow_schema(type_def))
    return actor.branch.writer.run(BulkLoad(actor, type_def, table), WriteOptions())
