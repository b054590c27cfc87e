"""Prints tables, and writes the same numbers as JSON for comparisons over time."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class Report:
    """The results of one part of the benchmark. Each table is printed as soon as it is complete."""

    name: str
    console: Console
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    started_s: float = field(default_factory=time.monotonic)

    def add(self, title: str, rows: Sequence[Mapping[str, Any]], note: str = "") -> None:
        """Adds and prints a table whose columns are the keys of its rows."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = Table(title=title, caption=note or None, title_justify="left", caption_justify="left")
        for column in columns:
            numeric = all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
            table.add_column(column, justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(_format_value(row.get(column)) for column in columns))
        self.console.print(table)
        self.tables[title] = [dict(row) for row in rows]


def save(report: Report, folder: Path) -> Path:
    """Writes the report as `<part>-<time>.json` and returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    content = {
        "part": report.name,
        "at": now.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - report.started_s, 1),
        "machine": {
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in ("omnigraph", "pylance", "pyarrow", "obstore")},
        "tables": report.tables,
    }
    path = folder / f"{report.name}-{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 100
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )
