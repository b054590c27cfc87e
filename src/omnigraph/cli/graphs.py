"""`omnigraph init`, `snapshot` and `version`."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.options import (
    Address,
    AtOption,
    BranchOption,
    FormatOption,
    GraphOption,
    JsonOption,
    StorageOptions,
    address_of,
    open_view,
    pairs_of,
)
from omnigraph.cli.output import RowFormat, choose, emit_document, emit_facts, emit_rows, note
from omnigraph.cli.templates import Template, write_files

_SNAPSHOT_COLUMNS = ("table_key", "rows", "overlay_entries", "fragments", "size_bytes", "changed_seq", "version")
_INDEX_COLUMNS = ("table_key", "name", "kind", "covered_fragments", "fragments", "covered_rows", "rows", "segments")


def init(
    address: Address = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Schema of the graph: a .pg file.")
    ] = None,
    template: Annotated[
        Template | None,
        typer.Option(
            "--template", metavar="NAME", help="Begin with a graph to try: social or docs.", show_choices=False
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Folder for the template's files. Default: its name."),
    ] = None,
    graph: GraphOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Create a graph. An existing graph is never replaced.

    With --template its schema, some records and queries to try are written
    beside it.
    """
    if (schema is None) == (template is None):
        raise typer.BadParameter("give either --schema FILE or --template NAME")
    if into is not None and template is None:
        raise typer.BadParameter("--into belongs to --template")
    options = pairs_of(storage_option, "--storage-option")
    place = address_of(address, graph)
    files: list[Path] = []
    if template is not None:
        files = write_files(template, into or Path(template.value))
        schema = files[0]
    assert schema is not None
    import omnigraph

    view = omnigraph.init(place, schema, storage_options=options).view(fresh=False)
    described = view.snapshot()
    facts: dict[str, Any] = {
        "graph": place,
        "graph_id": described["graph_id"],
        "branch": "main",
        "commit_id": view.commit_id,
        "internal_schema": described["internal_schema"],
        "types": [one.table_key for one in view.catalog.types],
        "files": [str(one) for one in files],
    }
    if as_json:
        emit_document(facts)
        return
    emit_facts({name: value for name, value in facts.items() if name != "files" or files})
    if files:
        note(f"Load the records:  omnigraph load {files[1]} --graph {place}")
        note(f"Then look into {files[2]} for queries to try.")


def snapshot(
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    at: AtOption = None,
    indexes: Annotated[bool, typer.Option("--indexes", help="Also how much of its table every index covers.")] = False,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Show a graph's commit, storage format and tables."""
    chosen = choose(as_json, row_format)
    view, name = open_view(address_of(address, graph), storage_option, branch, at)
    described = {"branch": name, **view.snapshot(indexes=indexes)}
    rows = described["tables"]
    if chosen is RowFormat.TABLE:
        named = {"graph_id": described["graph_id"], "branch": name, "commit_id": described["commit_id"]}
        emit_facts({**named, "storage": f"internal-schema {described['internal_schema']}"})
        typer.echo()
    columns = _SNAPSHOT_COLUMNS if chosen is RowFormat.TABLE or not rows else tuple(rows[0])
    emit_rows(described, rows, columns, chosen)
    if indexes and chosen is RowFormat.TABLE:
        typer.echo()
        found = [{"table_key": row["table_key"], **index} for row in rows for index in row["indexes"]]
        emit_rows({}, found, _INDEX_COLUMNS, chosen)


def version(as_json: JsonOption = False) -> None:
    """Show the versions of program, storage format and engine."""
    from omnigraph import __version__
    from omnigraph.log.stamp import INTERNAL_SCHEMA

    facts = {
        "omnigraph": __version__,
        "internal_schema": INTERNAL_SCHEMA,
        "lance": metadata.version("pylance"),
        "python": platform.python_version(),
    }
    if as_json:
        emit_document(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', '-')} {value}")
