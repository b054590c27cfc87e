"""Graphs to try: a schema, some records and queries, written beside a new graph by `omnigraph init --template`."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from pathlib import Path

from omnigraph.errors import InvalidInput


class Template(StrEnum):
    """What there is to try."""

    SOCIAL = "social"
    DOCS = "docs"


FILES = ("schema.pg", "data.ndjson", "queries.gq")


def write_files(template: Template, folder: Path) -> list[Path]:
    """Put the template's files into `folder`. A file that is there already is never replaced."""
    present = [name for name in FILES if (folder / name).exists()]
    if present:
        raise InvalidInput(
            f"{folder / present[0]} is there already",
            code="file_exists",
            advice="Choose another folder with --into, or move the file away",
            file=str(folder / present[0]),
        )
    source = resources.files("omnigraph.cli") / "template_files" / template.value
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).write_bytes((source / name).read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"the files of the template cannot be written to {folder}: {error.strerror}",
            code="file_not_written",
            advice="Choose another folder with --into",
        ) from error
    return [folder / name for name in FILES]
