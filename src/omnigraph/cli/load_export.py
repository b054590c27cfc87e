"""`omnigraph load` and `export`: records in and out of a graph."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.options import (
    GRAPH_VARIABLE,
    ActorOption,
    Address,
    AtOption,
    BranchOption,
    ClientKeyOption,
    Engine,
    EngineOption,
    GraphOption,
    IfCommitOption,
    JsonOption,
    MasterOption,
    MessageOption,
    QuietOption,
    SparkConfOption,
    StorageOptions,
    TargetBranchOption,
    address_of,
    open_graph,
    open_view,
    pairs_of,
    use_spark,
)
from omnigraph.cli.output import emit, emit_facts, note
from omnigraph.cli.query import OnConflict, OnConflictOption

if TYPE_CHECKING:
    from omnigraph.load.export.export import ExportReport
    from omnigraph.load.report import LoadReport


class LoadMode(StrEnum):
    """What becomes of rows that are there already."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


class OnError(StrEnum):
    """What becomes of a load with bad records."""

    FAIL = "fail"
    SKIP = "skip"


class OnDuplicate(StrEnum):
    """Several records of one id, in merge."""

    LAST = "last"
    FAIL = "fail"


FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]... [GRAPH]",
        help="Files, directories, globs or addresses of mixed records; last the graph, "
        f"unless --graph or ${GRAPH_VARIABLE} names it.",
        show_default=False,
    ),
]
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE=PATH", help="Rows of one node type; may be repeated."),
]
EdgeOption = Annotated[
    list[str] | None,
    typer.Option("--edge", metavar="TYPE=PATH", help="Rows of one edge type, with columns from and to."),
]

ModeOption = Annotated[
    LoadMode, typer.Option("--mode", metavar="MODE", help="merge (default), append or overwrite.", show_default=False)
]
OnErrorOption = Annotated[
    OnError,
    typer.Option("--on-error", metavar="WHAT", help="fail (default), or skip bad records.", show_default=False),
]
RejectsOption = Annotated[
    str | None, typer.Option("--rejects", metavar="DIR", help="Where to write records that are not loaded.")
]
OnDuplicateOption = Annotated[
    OnDuplicate,
    typer.Option(
        "--on-duplicate",
        metavar="WHAT",
        help="Several records of one id, in merge: last (default) wins, or fail.",
        show_default=False,
    ),
]


def load(
    words: FilesArgument = None,
    graph: GraphOption = None,
    nodes: TypeOption = None,
    edges: EdgeOption = None,
    mode: ModeOption = LoadMode.MERGE,
    on_error: OnErrorOption = OnError.FAIL,
    rejects: RejectsOption = None,
    on_duplicate: OnDuplicateOption = OnDuplicate.LAST,
    engine: EngineOption = Engine.AUTO,
    master: MasterOption = None,
    spark_conf: SparkConfOption = None,
    branch: TargetBranchOption = None,
    if_commit: IfCommitOption = None,
    on_conflict: OnConflictOption = OnConflict.RETRY,
    client_key: ClientKeyOption = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Load records from files: all of them in one commit, or nothing.

    Mixed records are one JSON object per line (.jsonl, .ndjson, .json, also
    .gz and .zst); --type and --edge take Parquet, CSV, JSON and ORC.
    """
    from omnigraph.load.inputs import LoadSources

    mixed_files, graph_address = _split_words(list(words or ()), graph)
    typed_files = {**_paths_by_table("node", nodes, "--type"), **_paths_by_table("edge", edges, "--edge")}
    if not mixed_files and not typed_files:
        raise typer.BadParameter("no input is named: give files, or --type TYPE=PATH, or --edge TYPE=PATH")
    use_spark(master, spark_conf)
    opened = open_graph(graph_address, storage_option, branch, read_only=False)
    report = opened.load(
        LoadSources(tuple(mixed_files), typed_files),
        mode=mode.value,
        on_error=on_error.value,
        rejects=rejects,
        on_duplicate=on_duplicate.value,
        engine=engine.value,
        actor=actor,
        message=message,
        client_key=client_key,
        if_commit=if_commit,
        on_conflict="fail" if on_conflict is OnConflict.FAIL else "retry",
        progress=False if quiet else None,
        storage_options=pairs_of(storage_option, "--storage-option"),
    )
    document = {"branch": opened.branch_name, **report.to_json()}
    emit(document, as_json=as_json, show=lambda _: _show_load(report))


def _split_words(words: list[str], graph: str | None) -> tuple[list[str], str]:
    """The last word is the graph, unless something else names one: then all words are files."""
    if graph is None and words and not os.environ.get(GRAPH_VARIABLE):
        return words[:-1], words[-1]
    return words, address_of(None, graph)


def _paths_by_table(kind: str, words: Sequence[str] | None, option: str) -> dict[str, tuple[str, ...]]:
    """`Person=path` options, by the key of their table; a type may have several paths."""
    paths: dict[str, tuple[str, ...]] = {}
    for word in words or ():
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"{option} {word!r} is not of the form TYPE=PATH")
        table_key = f"{kind}:{name}"
        paths[table_key] = (*paths.get(table_key, ()), path)
    return paths


def _show_load(report: LoadReport) -> None:
    commit = report.commit_id or "none, nothing to do"
    facts: dict[str, object] = {"commit_id": f"{commit} (done before)" if report.replayed else commit}
    for table, counts in report.counts.items():
        facts[table] = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if report.duplicates:
        facts["duplicates"] = report.duplicates
    if report.rejects:
        by_code = ", ".join(f"{code} {count}" for code, count in sorted(report.rejects_by_code.items()))
        facts["rejects"] = f"{report.rejects} ({by_code})"
    emit_facts({**facts, "engine": report.engine})
    if report.rejects and report.rejects_path:
        note(f"Rejected records are in {report.rejects_path}")


class ExportFormat(StrEnum):
    """How rows are written."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    CSV = "csv"


def export(
    address: Address = None,
    graph: GraphOption = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="PATH", help="A file, or a folder ending in /. Default: stdout."),
    ] = None,
    export_format: Annotated[
        ExportFormat,
        typer.Option("--format", metavar="FORMAT", help="ndjson (default), parquet or csv.", show_default=False),
    ] = ExportFormat.NDJSON,
    type_name: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.")
    ] = None,
    branch: BranchOption = None,
    at: AtOption = None,
    partitioned: Annotated[bool, typer.Option("--partitioned", help="Several files in a folder per type.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is at PATH.")] = False,
    engine: EngineOption = Engine.AUTO,
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
    graph_address = address_of(address, graph)
    to_stdout = output is None or output == "-"
    if as_json and to_stdout:
        raise typer.BadParameter("--json describes the files that were written: name them with --output")
    use_spark(master, spark_conf)
    view, _ = open_view(graph_address, storage_option, branch, at)
    report = view.export(
        sys.stdout.buffer if output is None or to_stdout else output,
        export_format.value,
        types=type_name,
        engine=engine.value,
        partitioned=partitioned or None,
        overwrite=overwrite,
        progress=False if quiet or to_stdout else None,
    )
    if not to_stdout:
        emit(report.to_json(), as_json=as_json, show=lambda _: _describe_export(report))


def _describe_export(report: ExportReport) -> None:
    files = f"{len(report.files)} file{'s' if len(report.files) != 1 else ''}"
    note(f"{report.rows} rows of {report.commit_id} in {files}, {report.size_bytes} bytes: {report.path}")
