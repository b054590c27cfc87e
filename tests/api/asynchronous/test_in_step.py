"""The awaited facade has every verb of the blocking one, with its parameters and results."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, assert_type

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import aio
from omnigraph import api as graph
from omnigraph.api import remote as client
from omnigraph.api.asynchronous.twins import AwaitedProperty, AwaitedVerb, IteratedVerb, TwinVerb
from omnigraph.api.branches import Branches
from omnigraph.api.remote import RemoteGraph
from omnigraph.api.schema import Schema
from omnigraph.api.table import Table
from omnigraph.api.transaction import GraphTransaction
from omnigraph.api.view import GraphView
from omnigraph.history.diff import Change
from omnigraph.history.report import MergeReport
from omnigraph.query.run.result import Result
from omnigraph.upkeep.tags import Tag, Tags

#: Blocking class, awaited class, and what is for engines only.
TWINS: list[tuple[type, type, set[str]]] = [
    (og.Graph, aio.AsyncGraph, set()),
    (GraphView, aio.AsyncView, {"state"}),
    (Table, aio.AsyncTable, set()),
    (Branches, aio.AsyncBranches, set()),
    (Schema, aio.AsyncSchema, set()),
    (Tags, aio.AsyncTags, set()),
    (GraphTransaction, aio.AsyncTransaction, {"catalog", "state_for"}),
    (RemoteGraph, aio.AsyncRemoteGraph, set()),
]


def _names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "awaited", "inner"), TWINS, ids=lambda one: getattr(one, "__name__", ""))
def test_every_verb_has_its_twin(blocking: type, awaited: type, inner: set[str]) -> None:
    assert _names(blocking) - inner - _names(awaited) == set()


@pytest.mark.parametrize(("blocking", "awaited", "inner"), TWINS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_twin_stands_for_the_verb_of_its_name(blocking: type, awaited: type, inner: set[str]) -> None:
    for name in _names(blocking) - inner:
        attr_static = inspect.getattr_static(awaited, name)
        verb = inspect.getattr_static(blocking, name, None)
        if isinstance(attr_static, (AwaitedVerb, TwinVerb, IteratedVerb)):
            assert attr_static._name == name
            assert attr_static.__doc__ == attr_static.__wrapped__.__doc__
        elif isinstance(verb, property):
            assert not isinstance(attr_static, AwaitedVerb), name


def test_transactions_are_begun_alike() -> None:
    awaited_signature, blocking_signature = (
        inspect.signature(aio.AsyncGraph.transaction),
        inspect.signature(og.Graph.transaction),
    )
    assert list(awaited_signature.parameters.values()) == list(blocking_signature.parameters.values())


@pytest.mark.parametrize(
    ("awaited", "blocking"),
    [
        (aio.init, graph.init),
        (aio.open, graph.open),
        (aio.open_at, graph.open_at),
        (aio.connect, client.connect),
    ],
    ids=lambda one: one.__name__,
)
def test_graphs_are_opened_alike(awaited: Callable[..., Any], blocking: Callable[..., Any]) -> None:
    parameters = dict(inspect.signature(awaited, eval_str=True).parameters)
    assert parameters.pop("threads").default == 16
    assert parameters == dict(inspect.signature(blocking, eval_str=True).parameters)


async def check_types(g: aio.AsyncGraph) -> None:
    """Never run: `mypy` checks that results and parameters are those of the facade."""
    assert_type(await g.query("…", {"n": 1}, name="find"), Result)
    assert_type(await g.mutate("…", client_key="k", on_conflict="fail"), og.Receipt)
    assert_type(await g.on_branch("x"), aio.AsyncGraph)
    assert_type(await g.branch.create("x"), aio.AsyncGraph)
    assert_type(await g.branch.merge("x", into="main"), MergeReport)
    assert_type(await (await g.at("c.1")).commits(3), list[og.CommitInfo])
    assert_type(await (await g.table("Person")).count(), int)
    assert_type(await g.schema.source, str)
    assert_type(await g.tags.list(), list[Tag])
    assert_type(g.diff("main", "x"), AsyncGenerator[Change, None])
    assert_type(g.uri, str)
    async with g.transaction(actor="ada") as t:
        assert_type(await t.query("…"), Result)
    assert_type(t.receipt, og.Receipt | None)
    assert_type(await g.run(lambda handle: handle.table("Person").to_arrow()), pa.Table)
    await g.mutate("…", nonsense=1)  # type: ignore[call-arg]
    await g.query(5)  # type: ignore[arg-type]
    await g.branch.delete()  # type: ignore[call-arg]


def test_a_property_that_costs_a_request_is_awaited() -> None:
    for kind, name in ((aio.AsyncSchema, "source"), (aio.AsyncSchema, "catalog"), (aio.AsyncGraph, "graph_id")):
        assert isinstance(inspect.getattr_static(kind, name), AwaitedProperty)
