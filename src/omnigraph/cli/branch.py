"""`omnigraph branch`: create, list, merge and delete branches."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import (
    ActorOption,
    Address,
    ClientKeyOption,
    ConfirmOption,
    Engine,
    FormatOption,
    GraphOption,
    IfCommitOption,
    JsonOption,
    MasterOption,
    MessageOption,
    QuietOption,
    SparkConfOption,
    StorageOptions,
    YesOption,
    address_of,
    check_consent,
    open_graph,
    use_spark,
)
from omnigraph.cli.output import choose_format, emit, emit_facts, emit_rows, note
from omnigraph.cli.query import read_text

if TYPE_CHECKING:
    from omnigraph.api import Graph
    from omnigraph.history.decide_row import Resolution


class Side(StrEnum):
    """Whose row is taken where both branches changed it."""

    OURS = "ours"
    THEIRS = "theirs"


app = typer.Typer(no_args_is_help=True, help="Create, list, merge and delete branches.")

BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.", show_default=False)]

SourceBranch = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Branch whose changes are taken over.", show_default=False)
]
ResolveOption = Annotated[
    Side | None,
    typer.Option(
        "--resolve", metavar="SIDE", help="Settle conflicts: ours (--into) or theirs (SOURCE).", show_default=False
    ),
]
ResolveFileOption = Annotated[
    Path | None,
    typer.Option("--resolve-file", metavar="FILE", help="Settle single conflicts, as the JSON file says."),
]
MergeEngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine", metavar="ENGINE", help="auto (default: by the changed rows), local or spark.", show_default=False
    ),
]


@app.command()
def create(
    name: BranchName,
    address: Address = None,
    graph: GraphOption = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="SOURCE", help="Branch or commit to start at. Default: main.")
    ] = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Create a branch. No data is copied."""
    opened = open_graph(address_of(address, graph), storage_option, read_only=False)
    created = opened.branch.create(name, source, actor=actor, message=message)
    info = created.view(fresh=False).commits(limit=1)[0]
    facts = {"branch": name, "commit_id": info.commit_id, "source": info.parents[0]}
    emit(facts, as_json=as_json)


@app.command("list")
def list_(
    address: Address = None,
    graph: GraphOption = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """List the branches."""
    chosen = choose_format(as_json, row_format)
    names = open_graph(address_of(address, graph), storage_option).branch.list()
    emit_rows({"branches": names}, [{"branch": name} for name in names], ("branch",), chosen)


@app.command()
def merge(
    source: SourceBranch,
    address: Address = None,
    graph: GraphOption = None,
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="Branch that receives them.")] = "main",
    cell_level: Annotated[
        bool, typer.Option("--cell-level", help="Changes of different properties of one row are no conflict.")
    ] = False,
    resolve: ResolveOption = None,
    resolve_file: ResolveFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen.")] = False,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete SOURCE afterwards, unless it has moved on.")
    ] = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    client_key: ClientKeyOption = None,
    if_commit: IfCommitOption = None,
    engine: MergeEngineOption = Engine.AUTO,
    master: MasterOption = None,
    spark_conf: SparkConfOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Merge one branch into another, in one commit.

    Exit code 3 if both changed the same thing in different ways, or if the
    result would break a rule of the schema: then all conflicts are listed and
    nothing is written.
    """
    if dry_run and delete_branch:
        raise typer.BadParameter("--dry-run and --delete-branch contradict each other")
    resolutions = _read_resolutions(resolve_file)
    use_spark(master, spark_conf)
    # On Spark a dry run stages files, so the graph must be open for writing.
    read_only = dry_run and engine is not Engine.SPARK
    opened = open_graph(address_of(address, graph), storage_option, into, read_only=read_only)
    report = opened.branch.merge(
        source,
        cell_level=cell_level,
        resolve=resolve.value if resolve is not None else None,
        per_entity=resolutions,
        dry_run=dry_run,
        delete_branch=delete_branch,
        actor=actor,
        message=message,
        client_key=client_key,
        if_commit=if_commit,
        engine=engine.value,
        progress=False if quiet else None,
    )
    facts = {"source": source, "into": into, **report.to_json()}
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items())
    emit(facts, as_json=as_json, show=lambda facts: emit_facts({**facts, "counts": counts}))
    if delete_branch and not report.branch_deleted:
        note(f"Branch {source} was not deleted: it has commits that were not merged.")


def _read_resolutions(file: Path | None) -> dict[tuple[str, str], Resolution]:
    if file is None:
        return {}
    from omnigraph.errors import InvalidInput
    from omnigraph.history.decide_row import parse_resolutions

    try:
        return parse_resolutions(json.loads(read_text(str(file))), str(file))
    except ValueError as error:
        raise InvalidInput(f"{file} is not JSON: {error}", code="bad_resolutions", file=str(file)) from error


@app.command()
def delete(
    name: BranchName,
    address: Address = None,
    graph: GraphOption = None,
    confirm: ConfirmOption = False,
    yes: YesOption = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Delete a branch; without --confirm only show what would go.

    Its commits stay readable by their ids, and branches made from it live on.
    """
    graph_address = address_of(address, graph)
    check_consent(graph_address, confirm, yes)
    opened = open_graph(graph_address, storage_option, read_only=not confirm)
    facts: dict[str, Any] = {"branch": name, "commit_id": _newest(opened, name), "deleted": confirm}
    if confirm:
        opened.branch.delete(name, actor=actor, message=message)
    emit(facts, as_json=as_json)
    if not confirm:
        note("Nothing was deleted: this is a preview. Add --confirm to delete the branch.")


def _newest(opened: Graph, name: str) -> str:
    """Where the branch stands. A preview refuses what the deed would refuse."""
    from omnigraph.errors import InvalidInput
    from omnigraph.log.branches import MAIN

    if name.casefold() == MAIN:
        raise InvalidInput(
            f"{MAIN!r} cannot be deleted", code="reserved_branch", advice="Choose another name", branch=name
        )
    return opened.on_branch(name).view(fresh=False).commit_id
