"""`omnigraph load`: records from files, in one commit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.mutations import OnConflict, OnConflictOption
from omnigraph.cli.options import (
    GRAPH_VARIABLE,
    ActorOption,
    ClientKeyOption,
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
    pairs_of,
    use_spark,
)
from omnigraph.cli.output import emit_document, emit_facts, note

if TYPE_CHECKING:
    from omnigraph.load.report import LoadReport


class Mode(StrEnum):
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


class Engine(StrEnum):
    """What does the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


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
    Mode, typer.Option("--mode", metavar="MODE", help="merge (default), append or overwrite.", show_default=False)
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
EngineOption = Annotated[
    Engine, typer.Option("--engine", metavar="ENGINE", help="auto (default), local or spark.", show_default=False)
]


def load(
    words: FilesArgument = None,
    graph: GraphOption = None,
    nodes: TypeOption = None,
    edges: EdgeOption = None,
    mode: ModeOption = Mode.MERGE,
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
    from omnigraph.load.inputs import Given

    mixed, place = _files_and_graph(list(words or ()), graph)
    typed = {**_by_type("node", nodes, "--type"), **_by_type("edge", edges, "--edge")}
    if not mixed and not typed:
        raise typer.BadParameter("no input is named: give files, or --type TYPE=PATH, or --edge TYPE=PATH")
    use_spark(master, spark_conf)
    opened = open_graph(place, storage_option, branch, read_only=False)
    report = opened.load(
        Given(tuple(mixed), typed),
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
    _emit(report, opened.branch_name, as_json)


def _files_and_graph(words: list[str], graph: str | None) -> tuple[list[str], str]:
    """The last word is the graph, unless something else names one: then all words are files."""
    if graph is None and words and not os.environ.get(GRAPH_VARIABLE):
        return words[:-1], words[-1]
    return words, address_of(None, graph)


def _by_type(kind: str, given: Sequence[str] | None, option: str) -> dict[str, tuple[str, ...]]:
    """`Person=path` options, by the key of their table; a type may have several paths."""
    found: dict[str, tuple[str, ...]] = {}
    for one in given or ():
        name, equals, path = one.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"{option} {one!r} is not of the form TYPE=PATH")
        key = f"{kind}:{name}"
        found[key] = (*found.get(key, ()), path)
    return found


def _emit(report: LoadReport, branch: str, as_json: bool) -> None:
    if as_json:
        emit_document({"branch": branch, **report.to_json()})
        return
    place = report.commit_id or "none, nothing to do"
    facts: dict[str, object] = {"commit_id": f"{place} (done before)" if report.replayed else place}
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
