"""`omnigraph branch`: create, list and delete branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import (
    ActorOption,
    Address,
    FormatOption,
    GraphOption,
    JsonOption,
    MessageOption,
    StorageOptions,
    address_of,
    is_local,
    open_graph,
)
from omnigraph.cli.output import choose, emit_document, emit_facts, emit_rows, note

if TYPE_CHECKING:
    from omnigraph.graph import Graph

app = typer.Typer(no_args_is_help=True, help="Create, list and delete branches.")

BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="Name of the branch.", show_default=False)]


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
    if as_json:
        emit_document(facts)
    else:
        emit_facts(facts)


@app.command("list")
def list_(
    address: Address = None,
    graph: GraphOption = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """List the branches."""
    chosen = choose(as_json, row_format)
    names = open_graph(address_of(address, graph), storage_option).branch.list()
    emit_rows({"branches": names}, [{"branch": name} for name in names], ("branch",), chosen)


@app.command()
def delete(
    name: BranchName,
    address: Address = None,
    graph: GraphOption = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it. Without this only a preview is shown.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Needed as well when the graph is not on this machine.")] = False,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Delete a branch; without --confirm only show what would go.

    Its commits stay readable by their ids, and branches made from it live on.
    """
    place = address_of(address, graph)
    if confirm and not yes and not is_local(place):
        raise typer.BadParameter(f"{place} is not on this machine: deleting needs --yes as well as --confirm")
    opened = open_graph(place, storage_option, read_only=not confirm)
    facts: dict[str, Any] = {"branch": name, "commit_id": _newest(opened, name), "deleted": confirm}
    if confirm:
        opened.branch.delete(name, actor=actor, message=message)
    if as_json:
        emit_document(facts)
    else:
        emit_facts(facts)
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
