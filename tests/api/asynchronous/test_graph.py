"""The facade, awaited, on a real graph."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import aio
from omnigraph.errors import ConstraintViolation, InvalidInput, NotFound, ReadSetChanged, Unsupported

QUICK = og.Config(fsync=False)
PEOPLE = """
node Person { name: String @key  age: I32?  @range(age, 0..150) }
edge Knows: Person -> Person
"""
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
ALL = "query everybody() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }"
AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
#: Takes minutes with a thousand people.
SLOW = """query slow() {
    match { $a: Person  $b: Person  $c: Person  $a.name != $b.name  $b.name != $c.name  $a.name != $c.name }
    return { count($a) as n }
}"""


def with_graph(path: Path, story: Callable[[aio.AsyncGraph], Awaitable[None]], threads: int = 4) -> None:
    """A new graph, what happens to it, and its end, in an event loop of its own."""

    async def whole() -> None:
        async with aio.init(path / "g", PEOPLE, config=QUICK, threads=threads) as g:
            await story(g)

    asyncio.run(whole())


async def _names(g: aio.AsyncGraph) -> list[str]:
    return [row["name"] for row in (await g.query(ALL)).rows]


def test_query_and_mutate(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        receipt = await g.mutate(ADD, {"n": "Ada", "a": 36}, actor="ada")
        result = await g.query(ALL)
        assert result.rows == [{"name": "Ada", "age": 36}]
        assert result.commit_id == receipt.commit_id == await g.refresh()
        assert [commit.actor for commit in await g.commits(1)] == ["ada"]
        with pytest.raises(ConstraintViolation):
            await g.mutate(ADD, {"n": "Old", "a": 200})
        assert (g.branch_name, g.uri) == ("main", str(tmp_path / "g"))
        assert (await g.snapshot())["graph_id"] == await g.graph_id
        assert await g.run(lambda handle: handle.table("Person").count()) == 1

    with_graph(tmp_path, story)


def test_branches_schema_and_history(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        first = (await g.mutate(ADD, {"n": "Ada"})).commit_id
        assert first is not None
        x = await g.branch.create("x")
        await x.mutate_many(ADD, [{"n": f"p{n:03d}"} for n in range(600)])
        assert [change.id async for change in g.diff("main", "x")] == [f"p{n:03d}" for n in range(600)]
        assert (await g.branch.merge("x")).outcome == "fast_forward"
        assert await g.branch.list() == ["main", "x"]
        then = await g.at(first)
        assert then.commit_id == first
        assert len((await then.query(ALL)).rows) == 1
        assert await (await g.table("Person")).count() == 601
        assert await g.schema.source == PEOPLE
        assert (await g.schema.plan(PEOPLE + "node City { name: String @key }\n")).supported
        await g.tags.create("v1", first)
        assert [object_info.name for object_info in await g.tags.list()] == ["v1"]
        assert (await g.verify()).ok
        with pytest.raises(NotFound):
            await g.on_branch("nothing")
        with pytest.raises(NotFound):
            _ = [change async for change in g.diff("main", "nothing")]

    with_graph(tmp_path, story)


def test_a_transaction_is_one_commit(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        async with g.transaction(actor="ada", message="two") as t:
            await t.mutate(ADD, {"n": "Ada"})
            assert [row["name"] for row in (await t.query(ALL)).rows] == ["Ada"]
            assert await _names(g) == []
            await t.mutate(ADD, {"n": "Bob"})
        assert t.receipt is not None
        assert await _names(g) == ["Ada", "Bob"]
        assert (await g.commits(1))[0].commit_id == t.receipt.commit_id
        assert len(await g.commits()) == 2

    with_graph(tmp_path, story)


def test_a_transaction_that_fails_has_no_effect(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        async def broken() -> None:
            async with g.transaction() as t:
                await t.mutate(ADD, {"n": "Ada"})
                raise ZeroDivisionError

        async def overtaken() -> None:
            async with g.transaction() as t:
                await t.query(ALL)
                await g.mutate(ADD, {"n": "Bob"})
                await t.mutate(ADD, {"n": "Cy"})

        with pytest.raises(ZeroDivisionError):
            await broken()
        with pytest.raises(ReadSetChanged):
            await overtaken()
        assert await _names(g) == ["Bob"]
        with pytest.raises(InvalidInput) as refused:
            await g.transaction().mutate(ADD, {"n": "x"})
        assert refused.value.code == "transaction_not_begun"

    with_graph(tmp_path, story)


def test_a_cancelled_transaction_has_no_effect(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        half_way = asyncio.Event()

        async def work() -> None:
            async with g.transaction() as t:
                await t.mutate(ADD, {"n": "Ada"})
                half_way.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await half_way.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _names(g) == []
        assert len(await g.commits()) == 1

    with_graph(tmp_path, story)


def test_many_tasks_at_once_on_few_threads(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        await asyncio.gather(*(g.mutate(ADD, {"n": f"p{n:02d}"}) for n in range(40)))
        results = await asyncio.gather(*(g.query(ALL) for _ in range(20)))
        assert {len(result.rows) for result in results} == {40}

    with_graph(tmp_path, story, threads=3)


@pytest.mark.timeout(120)
def test_a_cancelled_query_frees_its_thread(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        await g.mutate_many(ADD, [{"n": f"p{n}"} for n in range(1500)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await g.query(SLOW)
        async with asyncio.timeout(30):
            assert await (await g.table("Person")).count() == 1500

    with_graph(tmp_path, story, threads=1)


def test_who_awaits_it_closes_it(tmp_path: Path) -> None:
    async def story() -> None:
        g = await aio.init(tmp_path / "g", PEOPLE, config=QUICK)
        x = await g.branch.create("x")
        await x.close()
        assert await _names(g) == []
        await g.close()
        await g.close()
        for handle in (g, x):
            with pytest.raises(InvalidInput) as refused:
                await handle.query(ALL)
            assert refused.value.code == "closed_handle"
        async with aio.open(tmp_path / "g", "x", read_only=True, config=QUICK) as again:
            assert again.branch_name == "x"
            with pytest.raises(Unsupported):
                await again.mutate(ADD, {"n": "Ada"})
            newest = await again.refresh()
        async with aio.open_at(tmp_path / "g", newest, config=QUICK) as then:
            assert (await then.query(ALL)).commit_id == newest

    asyncio.run(story())


def test_an_exclusive_claim_ends_with_the_block(tmp_path: Path) -> None:
    async def story() -> None:
        async with aio.init(tmp_path / "g", PEOPLE, config=QUICK) as g:
            async with aio.open(tmp_path / "g", exclusive=True, config=QUICK) as alone:
                with pytest.raises(og.errors.WriterFenced):
                    await g.mutate(ADD, {"n": "Ada"})
                await alone.mutate(ADD, {"n": "Bob"})
            await g.mutate(ADD, {"n": "Cy"})
            assert await _names(g) == ["Bob", "Cy"]

    asyncio.run(story())


def test_a_graph_that_cannot_be_opened(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(NotFound):
            await aio.open(tmp_path / "nothing", config=QUICK)
        with pytest.raises(NotFound):
            async with aio.open(tmp_path / "nothing", config=QUICK):
                raise AssertionError("entered")
        with pytest.raises(InvalidInput):
            await aio.open(tmp_path / "nothing", threads=0)

    asyncio.run(story())


def test_what_is_not_built_is_refused_by_name(tmp_path: Path) -> None:
    async def story(g: aio.AsyncGraph) -> None:
        for name in ("stream", "analytics"):
            with pytest.raises(Unsupported) as refused:
                await getattr(g, name)()
            assert refused.value.code == "not_built"

    with_graph(tmp_path, story)
