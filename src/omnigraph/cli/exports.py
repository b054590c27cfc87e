"""`omnigraph export`: write a branch or a commit out."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from omnigraph.cli.options import (
    Address,
    AtOption,
    BranchOption,
    GraphOption,
    JsonOption,
    MasterOption,
    QuietOption,
    SparkConfOption,
    StorageOptions,
    address_of,
    open_view,
    use_spark,
)
from omnigraph.cli.output import emit_document, note


class Format(StrEnum):
    """How rows are written."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    CSV = "csv"


class Engine(StrEnum):
    """What does the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def export(
    address: Address = None,
    graph: GraphOption = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PATH", help="A file, or a folder ending in /. Default: stdout."),
    ] = None,
    export_format: Annotated[
        Format, typer.Option("--format", metavar="FORMAT", help="ndjson (default), parquet or csv.", show_default=False)
    ] = Format.NDJSON,
    type_name: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.")
    ] = None,
    branch: BranchOption = None,
    at: AtOption = None,
    partitioned: Annotated[bool, typer.Option("--partitioned", help="Several files in a folder per type.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at PATH.")] = False,
    engine: Annotated[
        Engine, typer.Option("--engine", metavar="ENGINE", help="auto (default), local or spark.", show_default=False)
    ] = Engine.AUTO,
    master: MasterOption = None,
    spark_conf: SparkConfOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Write all records of a branch or a commit.

    Nodes come first, sorted by type and id. `omnigraph load` reads them back.
    PATH may be in an object store; .gz and .zst compress.
    """
    place = address_of(address, graph)
    to_stdout = output is None or output == "-"
    if as_json and to_stdout:
        raise typer.BadParameter("--json describes the files that were written: name them with --output")
    use_spark(master, spark_conf)
    view, _ = open_view(place, storage_option, branch, at)
    report = view.export(
        sys.stdout.buffer if output is None or to_stdout else output,
        export_format.value,
        types=type_name,
        engine=engine.value,
        partitioned=partitioned or None,
        overwrite=overwrite,
        progress=False if quiet or to_stdout else None,
    )
    if as_json:
        emit_document(report.to_json())
    elif not to_stdout:
        files = f"{len(report.files)} file{'s' if len(report.files) != 1 else ''}"
        note(f"{report.rows} rows of {report.commit_id} in {files}, {report.size_bytes} bytes: {report.path}")
