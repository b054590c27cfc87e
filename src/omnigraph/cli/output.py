"""What goes to stdout: data and nothing else. Notes for a person go to stderr."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import typer

Row = Mapping[str, Any]

PAGER_VARIABLE = "OMNIGRAPH_PAGER"
_TABLE_FRAME_LINES = 4


class RowFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    KV = "kv"


def choose_format(as_json: bool, row_format: RowFormat | None) -> RowFormat:
    """The format of the rows. `--json` is short for `--format json`; with another `--format` it is refused."""
    if as_json and row_format not in (None, RowFormat.JSON):
        raise typer.BadParameter(f"--json and --format {row_format} contradict each other")
    return RowFormat.JSON if as_json else row_format or RowFormat.TABLE


def emit_document(document: Row) -> None:
    """One JSON document."""
    typer.echo(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def emit(document: Row, *, as_json: bool, show: Callable[[Row], None] | None = None) -> None:
    """Write the answer of a verb: as JSON, or else as `show` presents it to a person (by default as facts)."""
    if as_json:
        emit_document(document)
    else:
        (show or emit_facts)(document)


def emit_facts(facts: Row) -> None:
    """`name: value` lines, aligned."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        typer.echo(f"{name + ':':<{width + 2}}{cell(value)}".rstrip())


def emit_rows(document: Row, rows: Sequence[Row], columns: Sequence[str], row_format: RowFormat) -> None:
    """Rows in the chosen format: `document` as JSON, in all other formats `columns` of the rows."""
    if row_format is RowFormat.JSON:
        emit_document(document)
    elif row_format is RowFormat.JSONL:
        for row in rows:
            typer.echo(json.dumps({name: row[name] for name in columns}, ensure_ascii=False, default=str))
    elif row_format is RowFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_plain(row[name]) for name in columns] for row in rows)
    elif row_format is RowFormat.KV:
        for position, row in enumerate(rows):
            if position:
                typer.echo()
            emit_facts({name: row[name] for name in columns})
    else:
        emit_table(rows, columns)


def note(text: str) -> None:
    """A remark for a person, never part of the data."""
    typer.echo(text, err=True)


def cell(value: object) -> str:
    """One line without control characters: stored text must not be able to steer somebody's terminal."""
    text = _plain(value)
    return "".join(char if char.isprintable() else " " for char in text)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)


def emit_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """A table for people: fitted to the terminal, or plain columns in a pipe."""
    lines = [[cell(row[name]) for name in columns] for row in rows]
    numeric = [all(isinstance(row[name], int) for row in rows) and bool(rows) for name in columns]
    if sys.stdout.isatty():
        _emit_rich_table(lines, columns, numeric)
        return
    # Piped: no width to fit into, so nothing is folded or cut.
    widths = [max(len(line[at]) for line in [list(columns), *lines]) for at in range(len(columns))]
    for line in [list(columns), *lines]:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        typer.echo("  ".join(padded).rstrip())


def _emit_rich_table(lines: Sequence[Sequence[str]], columns: Sequence[str], numeric: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(text, style="cyan" if at == 0 else "") for at, text in enumerate(line)))
    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    if len(lines) + _TABLE_FRAME_LINES <= console.height or os.environ.get(PAGER_VARIABLE) == "off":
        console.print(table)
        return
    with console.pager(styles=True):
        console.print(table)
