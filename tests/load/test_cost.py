"""A small load costs what a small write costs, however deep the history. S141"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from omnigraph.errors import LoadRejected
from tests.cost.budget import Budget, Cost
from tests.cost.ground import CostGround, MeteredActor, Shape, acting, build

#: What the design that this one replaces needed for the same load.
PREDECESSOR_REQUESTS, PREDECESSOR_REQUESTS_PER_COMMIT = 156, 18

#: One record, and the reads that its rules need: the two ends. No intent is written.
WARM = Budget(puts=1, table_reads=2, total=3, hops=1)
REQUESTS_MAX = 12

_numbers = itertools.count()


def edge_file(folder: Path, target: str = "bob") -> Path:
    path = folder / f"edge{next(_numbers)}.jsonl"
    path.write_text(f'{{"edge": "Knows", "from": "ada", "to": "{target}", "data": {{"since": 1}}}}\n')
    return path


def ground_of(folder: Path, depth: int) -> CostGround:
    ground = CostGround(str(folder / f"graph{depth}"))
    build(ground, Shape(depth=depth))
    return ground


def warm_cost(actor: MeteredActor, folder: Path) -> Cost:
    for _ in range(2):
        actor.graph.load(edge_file(folder), progress=False)
    path = edge_file(folder)
    with actor.measure() as gauge:
        report = actor.graph.load(path, progress=False)
    assert (report.engine, report.counts["edge:Knows"]["inserted"]) == ("local", 1)
    assert report.commit_id is not None
    record = actor.ground.record(report.commit_id)
    assert record.kind == "load"
    assert not any(touched_table.staged for touched_table in record.touched.values()), (
        "a small load rides in its record"
    )
    return gauge.cost


def cold_cost(ground: CostGround, folder: Path) -> Cost:
    """All that a process pays that opens the graph, loads one edge and ends."""
    actor = MeteredActor(ground)
    path = edge_file(folder)
    with actor.measure() as gauge:
        actor.open()
        assert actor.graph.load(path, progress=False).loaded == 1
    actor.close()
    return gauge.cost


@pytest.mark.parametrize("depths", [(1, 100), pytest.param((1, 100, 1000), marks=pytest.mark.slow)], ids=str)
def test_load_of_one_edge_costs_the_same_at_every_depth(
    depths: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm: list[Cost] = []
    cold: list[Cost] = []
    for depth in depths:
        ground = ground_of(tmp_path, depth)
        with acting(ground) as actor:
            warm.append(warm_cost(actor, tmp_path))
        cold.append(cold_cost(ground, tmp_path))
    with capsys.disabled():
        for depth, warm_cost_at, cold_cost_at in zip(depths, warm, cold, strict=True):
            then = PREDECESSOR_REQUESTS + PREDECESSOR_REQUESTS_PER_COMMIT * depth
            print(f"\none-edge load at depth {depth}: {warm_cost_at}; cold: {cold_cost_at}; once it was {then}", end="")
    assert len({warm_cost_at.counts for warm_cost_at in warm}) == 1
    assert len({warm_cost_at.counts for warm_cost_at in cold}) == 1
    WARM.hold(warm[0], "one-edge load, warm")
    assert cold[0].requests <= REQUESTS_MAX, str(cold[0])
    assert not any(part == "intent" and kind == "PUT" for (kind, part), _ in cold[0].counts)


def test_a_refused_load_writes_nothing(tmp_path: Path) -> None:
    with acting(ground_of(tmp_path, 1)) as actor:
        path = edge_file(tmp_path, "nobody of this name")
        with actor.measure() as gauge, pytest.raises(LoadRejected):
            actor.graph.load(path, progress=False)
        assert gauge.cost.own("PUT") == 0
        assert gauge.cost.table_writes == 0
