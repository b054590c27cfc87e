"""The same input gives the same list of conflicts and violations in every process, whatever Python's hash seed. S146"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import ConstraintViolation, MergeConflict
from tests.history.bed import LAYOUTS, MergeBed, change, knows, people, person, remove

_NAMES = tuple(f"p{number:02d}" for number in range(24))
_SEEDS = ("0", "1", "7919")


def conflicts_and_violations(graph_path: str, layout: str) -> dict[str, Any]:
    """What a merge full of conflicts and a mutation full of violations answer, as this process finds it."""
    graph = MergeBed(Path(graph_path)).on(layout=layout)
    with pytest.raises(MergeConflict) as merge:
        graph.branch.merge("side")
    ends = [knows(name, f"nobody {name}", edge=f"e{name}") for name in _NAMES]
    with pytest.raises(ConstraintViolation) as write:
        graph.apply(ends)
    return {"conflicts": merge.value.conflicts, "violations": write.value.violations}


def _make_conflicts(bed: MergeBed) -> None:
    """Two branches that quarrel over every third of the people in one way each, and over new ones."""
    bed.main.apply([*people(*_NAMES), *(knows(name, _NAMES[0], edge=f"k{name}") for name in _NAMES[1:])])
    side = bed.fork("side")
    for graph, age in ((bed.main, 1), (side, 2)):
        graph.apply([change(name, age=age) for name in _NAMES[1::3]])
        graph.apply([person(f"new {name}", age=age) for name in reversed(_NAMES[:8])])
    side.apply([remove(name) for name in _NAMES[2::3]])
    bed.main.apply([change(name, nick="kept") for name in _NAMES[2::3]])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_hash_seed_changes_no_list(layout: str, tmp_path: Path) -> None:
    """S146"""
    graph_path = tmp_path / "g"
    bed = MergeBed.make(graph_path)
    _make_conflicts(bed)
    answers = [_in_process(str(graph_path), layout, seed) for seed in _SEEDS]
    kinds = [conflict["kind"] for conflict in json.loads(answers[0])["conflicts"]]
    assert {"divergent_insert", "divergent_update", "delete_vs_update"} <= set(kinds)
    assert len(json.loads(answers[0])["violations"]) == len(_NAMES)
    assert answers[1:] == answers[:1] * (len(_SEEDS) - 1)


def _in_process(graph_path: str, layout: str, seed: str) -> str:
    script = (
        "import json, sys; from tests.history.test_hash_seeds import conflicts_and_violations as ask;"
        "print(json.dumps(ask(*sys.argv[1:])))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    outcome = subprocess.run(
        [sys.executable, "-c", script, graph_path, layout], env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout
