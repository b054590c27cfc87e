"""Engine = interpreter, on random schemas, graphs and queries, with rows under an index, without one, in the overlay.

S126: the answer does not depend on how much of a table an index covers. H10: nor on what is folded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import TypeCheckError
from omnigraph.query.run.run_query import Coding
from tests.query.run.bed import QueryBed, make_bed, with_overlay_folded
from tests.query.run.generate import GeneratedWorld, queries, worlds
from tests.query.run.generate_ways import lookup_queries, tree_queries

QUERIES_PER_GRAPH = 6
CODINGS: tuple[Coding, ...] = ("ids", "codes", "arrays")
_RELAXED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


Queries = Callable[[GeneratedWorld], st.SearchStrategy[tuple[str, dict[str, Any]]]]


def _check(
    world: GeneratedWorld, data: st.DataObject, change: Callable[[QueryBed], QueryBed], ask: Queries = queries
) -> None:
    with TemporaryDirectory() as folder:
        bed = change(make_bed(Path(folder), world.schema, world.content))
        try:
            for _ in range(QUERIES_PER_GRAPH):
                source, params = data.draw(ask(world))
                try:
                    bed.check(source)
                except TypeCheckError:
                    continue
                for coding in CODINGS:
                    bed.coding = coding
                    bed.agree(source, params)
        finally:
            bed.backend.close()


def _examples(count: int) -> int:
    return int(os.environ.get("OMNIGRAPH_QUERY_EXAMPLES", count))


@settings(max_examples=_examples(20), deadline=None, suppress_health_check=_RELAXED)
@given(world=worlds(), data=st.data())
def test_any_layout(world: GeneratedWorld, data: st.DataObject) -> None:
    _check(world, data, lambda bed: bed)


@settings(max_examples=_examples(8), deadline=None, suppress_health_check=_RELAXED)
@given(world=worlds(), data=st.data())
def test_all_folded(world: GeneratedWorld, data: st.DataObject) -> None:
    _check(world, data, with_overlay_folded)


@pytest.mark.parametrize("ask", [tree_queries, lookup_queries])
@settings(max_examples=_examples(10), deadline=None, suppress_health_check=_RELAXED)
@given(world=worlds(), data=st.data(), fold=st.booleans())
def test_ways_of_their_own(ask: Queries, world: GeneratedWorld, data: st.DataObject, fold: bool) -> None:
    """Counted trees and lookups, which random queries seldom are."""
    _check(world, data, with_overlay_folded if fold else lambda bed: bed, ask)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=_examples(300), deadline=None, suppress_health_check=_RELAXED)
@given(world=worlds(), data=st.data(), fold=st.booleans())
def test_many(world: GeneratedWorld, data: st.DataObject, fold: bool) -> None:
    _check(world, data, with_overlay_folded if fold else lambda bed: bed)
