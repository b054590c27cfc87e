"""`omnigraph commit`: the history."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.differences import commit_changes
from omnigraph.cli.options import (
    Address,
    AtOption,
    BranchOption,
    FormatOption,
    GraphOption,
    JsonOption,
    StorageOptions,
    address_of,
    open_graph,
    open_view,
    pairs_of,
)
from omnigraph.cli.output import RowFormat, choose, emit_document, emit_facts, emit_rows

FILTERS = ("actor", "kind", "branch")
_FIELDS = ("commit_id", "seq", "parents", "kind", "actor", "created_at", "message", "branch")
_COLUMNS = ("commit_id", "kind", "branch", "actor", "created_at", "message")

app = typer.Typer(no_args_is_help=True, help="Show the history of a graph.")


@app.command("list")
def list_(
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    at: AtOption = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="How many commits at most; 0 for all.")
    ] = 20,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="K=V", help="Only actor=NAME, kind=KIND or branch=NAME; may be repeated."),
    ] = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """List commits, the newest first.

    With several filters a commit must pass them all. A commit made for
    several actors at once is found by the name of each.
    """
    chosen = choose(as_json, row_format)
    wanted = pairs_of(filters, "--filter", FILTERS)
    view, _ = open_view(address_of(address, graph), storage_option, branch, at)
    found = view.commits(limit or None, actor=wanted.get("actor"), kind=wanted.get("kind"), branch=wanted.get("branch"))
    commits = [one.to_json() for one in found]
    emit_rows({"commits": commits}, commits, _COLUMNS if chosen is RowFormat.TABLE else _FIELDS, chosen)


@app.command()
def show(
    commit_id: Annotated[str, typer.Argument(metavar="COMMIT", help="Id of the commit, as `commit list` shows it.")],
    address: Address = None,
    graph: GraphOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Show one commit: who, when, why, and what it changed."""
    view = open_graph(address_of(address, graph), storage_option).at(commit_id)
    document = view.commit()
    if as_json:
        emit_document(document)
        return
    emit_facts({name: document[name] for name in _FIELDS})
    if document["touched"]:
        typer.echo()
        emit_rows({}, document["touched"], tuple(document["touched"][0]), RowFormat.TABLE)


app.command("changes")(commit_changes)
