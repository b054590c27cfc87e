"""Writes the same row into a bare Lance table, to show what the graph's guarantees cost, or save, on this disk.

This and `omnigraph.storage.lance` are the only places that use Lance directly; here it is what we measure against.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import omnigraph
from bench.timing import medians_s
from omnigraph.config import Config
from omnigraph.query.language.statements import InsertNode

ROWS = 10_000
SCHEMA = "node Note { name: String @key  text: String? }\n"


def compare(folder: Path, repeat: int) -> list[dict[str, Any]]:
    """Measures milliseconds of one-row inserts with a key, into the graph and into bare Lance."""
    ways: dict[str, Callable[[], object]] = {
        "omnigraph, inline": _omnigraph(folder / "inline", Config()),
        "omnigraph, inline, no fsync (as Lance)": _omnigraph(folder / "quick", Config(fsync=False)),
        "omnigraph, staged": _omnigraph(folder / "staged", Config(inline_share=0)),
        "Lance merge_insert(...).execute": _merge_insert(folder / "merge.lance"),
        'Lance write_dataset(mode="append")': _append(folder / "append.lance"),
    }
    spent_s = medians_s(ways, repeat)
    inline_s = spent_s["omnigraph, inline"]
    return [{"way": name, "ms": 1000 * spent, "ratio": inline_s / spent} for name, spent in spent_s.items()]


def _omnigraph(path: Path, config: Config) -> Callable[[], object]:
    graph = omnigraph.init(str(path), SCHEMA, config=config)
    graph.apply([InsertNode("Note", {"name": f"row{n}", "text": "x"}) for n in range(ROWS)])
    numbers = count()
    return lambda: graph.apply([InsertNode("Note", {"name": f"new{next(numbers)}", "text": "x"})])


def _merge_insert(path: Path) -> Callable[[], object]:
    _fill(path)
    dataset = lance.dataset(str(path))
    numbers = count()

    def once() -> None:
        merge = dataset.merge_insert("name").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(_row(f"new{next(numbers)}"))

    return once


def _append(path: Path) -> Callable[[], object]:
    _fill(path)
    numbers = count()
    return lambda: lance.write_dataset(_row(f"new{next(numbers)}"), str(path), mode="append")


def _fill(path: Path) -> None:
    names = [f"row{n}" for n in range(ROWS)]
    lance.write_dataset(pa.table({"name": names, "text": ["x"] * ROWS}), str(path))


def _row(name: str) -> pa.Table:
    return pa.table({"name": [name], "text": ["x"]})
