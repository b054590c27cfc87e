"""What the child processes of the scenarios do."""

from __future__ import annotations

from typing import Any

import omnigraph
from omnigraph.config import Config
from tests.scenarios.bed import person
from tests.support.processes import Link


def _config(config: dict[str, Any]) -> Config:
    return Config(**{"fsync": False, **config})


def insert_rows(link: Link, *, uri: str, config: dict[str, Any], rows: int, branch: str = "main") -> int:
    """Insert persons one by one, reporting each that was acknowledged."""
    graph = omnigraph.open(uri, branch, config=_config(config))
    link.ready()
    for number in range(rows):
        name = f"w{link.index}-{number}"
        graph.apply([person(name, number)])
        link.send(row=name)
    return rows
