"""A mutation that concerns more rows than it may change is refused before it has read them all. S100"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.log.table_view import TableView
from omnigraph.query.language.statements import Compare, Delete, Overwrite, Statement, Update
from tests.schedules.world import World, knows, person, without

_PIECES, _ROWS, _MOST = 8, 4, 6


@pytest.mark.parametrize(
    "statement",
    [
        Update("Person", {"age": 2}, Compare("age", "=", 1)),
        Delete("Person", Compare("age", "=", 1)),
        Overwrite("Person", [{"name": "only"}]),
    ],
    ids=["update", "delete", "overwrite"],
)
def test_s100_what_is_read_is_bounded_as_what_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: Statement
) -> None:
    stager, small = world.actor(inline_share=0), world.actor(mutation_max_rows=_MOST)
    for piece in range(_PIECES):
        stager.apply(*[person(f"p{piece}-{number}", 1) for number in range(_ROWS)])
    assert small.head.seq == _PIECES
    read = 0
    batches = TableView.batches

    def row_by_row(self: TableView, *args: Any, **keywords: Any) -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in batches(self, *args, **keywords):
            for at in range(batch.num_rows):
                read += 1
                yield batch.slice(at, 1)

    monkeypatch.setattr(TableView, "batches", row_by_row)
    with pytest.raises(InvalidInput) as refused:
        small.apply(statement)
    assert refused.value.code == "limit_exceeded"
    assert (refused.value.details["bound"], refused.value.details["value"]) == (_MOST, _PIECES * _ROWS)
    assert read == _MOST + 1


def test_s100_edges_that_go_with_a_node_count_as_well(world: World) -> None:
    writer, small = world.actor(), world.actor(mutation_max_rows=_MOST)
    writer.apply(*[person(f"p{number}") for number in range(_MOST + 1)])
    writer.apply(*[knows("p0", f"p{number}") for number in range(_MOST + 1)])
    with pytest.raises(InvalidInput) as refused:
        small.apply(without("p0"))
    assert (refused.value.code, refused.value.details["value"]) == ("limit_exceeded", _MOST + 1)
