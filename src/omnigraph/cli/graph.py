"""`omnigraph init`, `snapshot` and `version`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from enum import StrEnum
from importlib import metadata, resources
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
from omnigraph.cli.output import RowFormat, choose_format, emit, emit_facts, emit_rows, emit_table, note
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
    graph_address = address_of(address, graph)
    files: list[Path] = []
    if template is not None:
        files = write_files(template, into or Path(template.value))
        schema = files[0]
    assert schema is not None
    import omnigraph

    view = omnigraph.init(graph_address, schema, storage_options=options).view(fresh=False)
    described = view.snapshot()
    facts: dict[str, Any] = {
        "graph": graph_address,
        "graph_id": described["graph_id"],
        "branch": "main",
        "commit_id": view.commit_id,
        "internal_schema": described["internal_schema"],
        "types": [type_def.table_key for type_def in view.catalog.types],
        "files": [str(file) for file in files],
    }
    emit(
        facts,
        as_json=as_json,
        show=lambda facts: emit_facts({name: facts[name] for name in facts if name != "files" or files}),
    )
    if files and not as_json:
        note(f"Load the records:  omnigraph load {files[1]} --graph {graph_address}")
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
    chosen = choose_format(as_json, row_format)
    view, name = open_view(address_of(address, graph), storage_option, branch, at)
    described = {"branch": name, **view.snapshot(indexes=indexes)}
    rows = described["tables"]
    if chosen is RowFormat.TABLE:
        emit_facts(
            {
                "graph_id": described["graph_id"],
                "branch": name,
                "commit_id": described["commit_id"],
                "storage": f"internal-schema {described['internal_schema']}",
            }
        )
        typer.echo()
    columns = _SNAPSHOT_COLUMNS if chosen is RowFormat.TABLE or not rows else tuple(rows[0])
    emit_rows(described, rows, columns, chosen)
    if indexes and chosen is RowFormat.TABLE:
        typer.echo()
        index_rows = [{"table_key": row["table_key"], **index} for row in rows for index in row["indexes"]]
        emit_table(index_rows, _INDEX_COLUMNS)


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
    emit(facts, as_json=as_json, show=_show_versions)


def _show_versions(versions: Mapping[str, Any]) -> None:
    for name, value in versions.items():
        typer.echo(f"{name.replace('_', '-')} {value}")
