"""An added nullable property is a matter of the schema: the rows that are there already cost nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.commit.publish_plan import PublishPlan, TableAction, WriteOptions
from omnigraph.query.language.statements import InsertNode
from omnigraph.schema.arrow import arrow_schema
from tests.cost.budget import Budget, Cost
from tests.cost.ground import STAGED, CostGround, MeteredActor, schema_of

MANY_ROWS = 100_000


def _fill(actor: MeteredActor, rows: int) -> None:
    """So many notes in a table, published as a plan: statements would take longer than everything else here."""
    branch = actor.graph._branch
    note = actor.graph.schema.catalog.node("Note")
    assert note is not None
    schema = arrow_schema(note)
    ids = [f"note{number:08d}" for number in range(rows)]
    columns = {"id": pa.array(ids, pa.utf8()), note.by_name["text"].id: pa.array(ids, pa.utf8())}
    data = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    action = TableAction(note.id, schema, data, inserted=rows, present_ids=())
    plan = PublishPlan("load", actor.backend.ids.ulid(), branch.publisher.refresh(), actions=(action,))
    assert branch.writer.run_once(plan, WriteOptions()).commit_id is not None


def _cost_of_adding(path: Path, rows: int) -> Cost:
    ground = CostGround(str(path))
    actor = MeteredActor(ground, STAGED)
    actor.init(3)
    actor.open()
    if rows:
        _fill(actor, rows)
    assert actor.graph.table("Note").count() == rows
    with actor.measure() as gauge:
        receipt = actor.graph.schema.apply(schema_of(3).replace("text: String }", "text: String  mood: String? }", 1))
    assert ground.has_record(receipt.commit_id)
    assert "mood" in actor.graph.table("Note").to_arrow(["mood"]).column_names
    assert actor.graph.table("Note").count() == rows
    actor.graph.apply([InsertNode("Note", {"text": "late", "mood": "good"})])
    actor.close()
    return gauge.cost


@pytest.mark.parametrize("rows", [1000, MANY_ROWS])
def test_adding_a_property_costs_the_same_with_and_without_rows(rows: int, tmp_path: Path) -> None:
    empty = _cost_of_adding(tmp_path / "empty", 0)
    full = _cost_of_adding(tmp_path / "full", rows)
    Budget(puts=2, hops=2).hold(empty, "a property added to an empty table")
    assert full == empty
