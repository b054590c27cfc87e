"""Random chains of schema changes between writes, folds and forks: every commit keeps its content for ever.

Every kind of step, one to three of them per change, valid or violated; inline and staged writers; three ways to fold;
branches that go different ways. After each change all commits are read again with the schema they were made under.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.mutate.schema_change.chain import Chain
from tests.mutate.schema_change.steps import STEPS

Operation = tuple[str, Any]

numbers = st.tuples(*[st.integers(0, 60)] * 3)
schema_steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), numbers), min_size=1, max_size=3)
writes = st.tuples(st.sampled_from(["insert", "insert", "insert", "connect", "update", "delete"]), numbers)
upkeep = st.tuples(st.sampled_from(["fold", "fold", "reopen", "fork", "again", "again"]), numbers)
changes = st.tuples(st.just("schema"), schema_steps)
operations = st.one_of(writes, writes, changes, changes, upkeep)
folds = st.sampled_from(["never", "always", "random"])
# A failing chain is short enough to read; to shrink it takes minutes, since each try is a new graph.
_chains = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _run(fold: str, todo: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder), fold)
        try:
            for verb, argument in todo:
                getattr(chain, verb)(argument)
            chain.compare_all(chain.world.reader(chain.branch))
            chain.world.assert_sound()
        finally:
            chain.close()


@given(folds, st.lists(operations, min_size=6, max_size=12))
@settings(_chains, max_examples=20)
def test_every_commit_keeps_its_content(fold: str, todo: list[Operation]) -> None:
    """S102 to S107, S109, S170, H12"""
    _run(fold, todo)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(folds, st.lists(operations, min_size=15, max_size=40))
@settings(_chains, max_examples=40)
def test_every_commit_keeps_its_content_over_long_chains(fold: str, todo: list[Operation]) -> None:
    """S102 to S107, S109, S170, H12"""
    _run(fold, todo)
