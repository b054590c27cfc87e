"""`python -m tests.spark.connect_client VERB …`: what a client of a Spark Connect server does, in a process of its own.

A process is a Connect client for good once it has been one, so the session of the other tests must not live in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.spark import session as session_module
from omnigraph.spark.session import get_session, is_connect, stop_session
from tests.load.spark.loading import (
    BASE,
    ONE_TASK,
    SHUFFLED,
    TYPES,
    answer_of,
    contents,
    edge,
    new_graph,
    node,
    pair,
    random_input,
    write_lines,
)
from tests.spark.bed import comparable

#: An id twice, an end that is not there: what the screening shuffle picks out, and a rule that is then asked.
FEW = (
    node("Person", name="x", age=1),
    edge("Knows", "x", "p0", "k1"),
    node("Person", name="x", age=2),
    edge("Knows", "x", "nobody", "k3"),
)


def read(root: str, out: str) -> None:
    """Frames, views, the data source by options and an export."""
    graph, session = og.open(root), get_session()
    assert is_connect(session)
    expected = comparable(graph.table("Thing").to_arrow())
    assert comparable(graph.spark("Thing").toArrow()) == expected
    assert [row.name for row in graph.spark("Thing", columns=["name"], where="small = 41").collect()] == ["void"]
    by_options = session.read.format("omnigraph").option("graph", root).option("type", "Thing").load()
    assert comparable(by_options.toArrow()) == expected
    assert graph.spark_views()["Thing"] == "node:Thing"
    assert session.sql("SELECT count(*) FROM Thing").collect()[0][0] == len(expected)
    graph.export(f"{out}/spark.ndjson", engine="spark", progress=False, types=["Thing", "Has"])
    graph.export(f"{out}/local.ndjson", engine="local", progress=False, types=["Thing", "Has"])


def load(folder: str, seed: str) -> None:
    """Files, checked by one task and by shuffles: the same graph and the same rejects as the engine in this process."""
    inputs = {"one task": (ONE_TASK, tuple(random_input(int(seed)))), "shuffled": (SHUFFLED, FEW)}
    for name, (config, lines) in inputs.items():
        path_here = Path(folder) / name
        path_here.mkdir()
        path = write_lines(path_here / "in.ndjson", lines)
        local, spark = pair(path_here, config)
        expected = answer_of(local, path, path_here / "rejects-local", engine="local", on_error="skip")
        assert (
            answer_of(spark, path, path_here / "rejects-spark", engine="spark", on_error="skip", split_bytes=60)
            == expected
        )
        assert contents(spark) == contents(local)
    assert is_connect(get_session())


def frames(address: str, folder: str) -> None:
    """The caller's own session, its frames, and an export into a folder that is loaded again."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(address).getOrCreate()
    graph = new_graph(Path(folder) / "g", ONE_TASK)
    graph.load(write_lines(Path(folder) / "base.ndjson", BASE), engine="spark", spark=session, progress=False)
    people = session.range(1_000).selectExpr("concat('f', id) AS name", "cast(id % 90 AS int) AS age")
    knows = session.range(999).selectExpr("concat('f', id) AS `from`", "concat('f', id + 1) AS `to`")
    report = graph.load_frames(nodes={"Person": people}, edges={"Knows": knows}, progress=False)
    assert report.loaded == 1_999
    assert graph.table("Person").count() == 1_006
    graph.export(f"{folder}/out", partitioned=True, engine="spark", spark=session, progress=False)
    again = new_graph(Path(folder) / "again", ONE_TASK)
    again.load(f"{folder}/out", engine="spark", spark=session, progress=False)
    assert contents(again, TYPES) == contents(graph, TYPES)
    assert get_session() is session
    stop_session()
    assert session.range(1).count() == 1, "somebody else's session was stopped"
    session.stop()


def expect_refusal(folder: str) -> None:
    """No server there: what is told, and that nothing is left behind."""
    session_module._CONNECT_S = 2.0
    graph = new_graph(Path(folder) / "g", ONE_TASK)
    path = write_lines(Path(folder) / "in.ndjson", [node("Person", name="a"), edge("Knows", "a", "a", "k")])
    try:
        graph.load(path, engine="spark", progress=False)
    except OmnigraphError as error:
        print(json.dumps({"class": type(error).__name__, "code": error.code, "message": error.message}))
    assert [commit.kind for commit in graph.commits()] == ["init"]
    assert graph.recover_list() == []


VERBS: dict[str, Callable[..., None]] = {"read": read, "load": load, "frames": frames, "refused": expect_refusal}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
    stop_session()
    print("done")
