"""The awaited facade on a graph behind a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import aio
from omnigraph.errors import NotFound, ParseError, Unavailable, Unsupported
from tests.server.bed import ADD, ALL, Door


def test_the_verbs_of_a_remote_graph(door: Door, tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.connect(f"{door.url}/graphs/{door.name}", door.token) as g:
            first = await g.mutate(ADD, {"n": "Ada", "a": 36}, client_key="k")
            assert (await g.mutate(ADD, {"n": "Ada", "a": 36}, client_key="k")).replayed
            assert (await g.query(ALL)).rows == [{"name": "Ada", "age": 36}]
            x = await g.branch.create("x")
            await asyncio.gather(*(x.mutate(ADD, {"n": f"p{n}"}) for n in range(8)))
            assert [change.id async for change in g.diff("main", "x")] == [f"p{n}" for n in range(8)]
            assert (await g.branch.merge("x")).commit_id is not None
            assert first.commit_id is not None
            assert len((await (await g.at(first.commit_id)).query(ALL)).rows) == 1
            assert "Person" in await g.schema.source
            assert await g.graph_id == (await g.snapshot())["graph_id"]
            assert (await g.export(str(tmp_path / "all.ndjson"))).rows == 9
            assert await g.queries() == []
            with pytest.raises(ParseError):
                await g.query("query (")

    asyncio.run(story())


def test_what_is_not_possible_over_http(door: Door) -> None:
    async def story() -> None:
        async with aio.connect(f"{door.url}/graphs/{door.name}", door.token) as g:

            async def transaction() -> None:
                async with g.transaction():
                    raise AssertionError("entered")

            calls: list[Callable[[], Awaitable[Any]]] = [
                transaction,
                g.optimize,
                g.tags.list,
                lambda: g.table("Person"),
                lambda: g.mutate(ADD, {"n": "x"}, actor="somebody"),
            ]
            for call in calls:
                with pytest.raises(Unsupported):
                    await call()

    asyncio.run(story())


def test_servers_that_are_not_there(door: Door) -> None:
    async def story() -> None:
        with pytest.raises(NotFound):
            await aio.connect(door.url, graph="nothing")
        with pytest.raises(Unavailable):
            await aio.connect("http://127.0.0.1:1/graphs/x")

    asyncio.run(story())
