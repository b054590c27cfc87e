"""A load does what the same mutation does, and refuses what it refuses, with the same codes. S95–S99"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api import Graph
from omnigraph.config import Config
from omnigraph.errors import ConstraintViolation, KeyConflict, LoadRejected, OmnigraphError
from tests.load.corpus import CORPUS, SCHEMA, Entry, as_statements, contents


def graph_at(path: Path, entry: Entry) -> Graph:
    graph = og.init(str(path), SCHEMA, config=Config(fsync=False))
    if entry.before:
        graph.apply(as_statements(entry.before, "merge"))
    return graph


def codes_of(error: OmnigraphError) -> tuple[str, ...]:
    """What a mutation says, as codes of violations."""
    if isinstance(error, ConstraintViolation):
        return tuple(sorted(violation["rule"] for violation in error.violations))
    return ("key_conflict",) if isinstance(error, KeyConflict) else (error.code,)


def codes_of_rejects(error: LoadRejected) -> tuple[str, ...]:
    codes: list[str] = []
    for reject in error.details["rejects"]:
        codes += [reject["code"], *(problem["code"] for problem in reject.get("others", ()))]
    return tuple(sorted(codes))


def try_mutate(graph: Graph, entry: Entry) -> tuple[str, ...] | None:
    try:
        graph.apply(as_statements(entry.lines, entry.mode))
    except OmnigraphError as error:
        return codes_of(error)
    return None


def try_load(graph: Graph, entry: Entry, path: Path, **options: Any) -> tuple[str, ...] | None:
    path.write_text(entry.text)
    try:
        graph.load(path, mode=entry.mode, progress=False, **options)  # type: ignore[arg-type]
    except LoadRejected as error:
        return codes_of_rejects(error)
    return None


@pytest.mark.parametrize("entry", CORPUS, ids=str)
def test_the_same_graph_and_the_same_violations(entry: Entry, tmp_path: Path) -> None:
    first_graph, second_graph = graph_at(tmp_path / "mutated", entry), graph_at(tmp_path / "loaded", entry)
    before = contents(second_graph)
    assert before == contents(first_graph)
    rejects = try_load(second_graph, entry, tmp_path / "input.jsonl", engine="local")
    assert (try_mutate(first_graph, entry), rejects) == (entry.codes, entry.codes)
    assert contents(second_graph) == contents(first_graph)
    assert (contents(second_graph) == before) or entry.codes is None


def test_messages_are_those_of_a_mutation(tmp_path: Path) -> None:
    """Of rules on rows; the ids that a load makes up differ."""
    for entry in CORPUS:
        if entry.codes not in (("range",), ("check",), ("OG-V-002",), ("OG-V-004",), ("unique",)):
            continue
        mutated_graph = graph_at(tmp_path / f"m-{entry.name}", entry)
        loaded_graph = graph_at(tmp_path / f"l-{entry.name}", entry)
        with pytest.raises(OmnigraphError) as refusal:
            mutated_graph.apply(as_statements(entry.lines, entry.mode))
        path = tmp_path / "input.jsonl"
        path.write_text(entry.text)
        with pytest.raises(LoadRejected) as rejection:
            loaded_graph.load(path, mode=entry.mode, progress=False)  # type: ignore[arg-type]
        assert rejection.value.details["rejects"][0]["reason"] == refusal.value.message
