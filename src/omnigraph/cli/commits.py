"""`omnigraph commit`: the history."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

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
    open_graph,
    open_view,
    pairs_of,
)
from omnigraph.cli.output import choose, emit_document, emit_facts, emit_rows

if TYPE_CHECKING:
    from omnigraph.graph import CommitInfo, GraphView

FILTERS = ("actor", "kind", "branch")
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
    commits = [_json(one) for one in _matching(view, wanted, limit or None)]
    emit_rows({"commits": commits}, commits, _COLUMNS if chosen == "table" else tuple(_FIELDS), chosen)


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
    info = view.commits(limit=1)[0]
    described = view.snapshot()
    changed = [one["table_key"] for one in described["tables"] if one["changed_seq"] == info.seq and info.seq > 0]
    facts = {**_json(info), "schema": described["schema"], "changed": changed}
    if as_json:
        emit_document(facts)
    else:
        emit_facts(facts)


_FIELDS = ("commit_id", "seq", "parents", "kind", "actor", "created_at", "message", "branch")


def _json(one: CommitInfo) -> dict[str, Any]:
    return {**asdict(one), "parents": list(one.parents)}


def _matching(view: GraphView, wanted: dict[str, str], limit: int | None) -> list[CommitInfo]:
    """The engine knows all actors of a commit, so it filters those; kind and branch are told by the commit itself."""
    others = {name: value for name, value in wanted.items() if name != "actor"}
    found = view.commits(limit=None if others else limit, actor=wanted.get("actor"))
    passing = (one for one in found if all(getattr(one, name) == value for name, value in others.items()))
    return list(islice(passing, limit))
