"""`omnigraph commit`, `diff` and `changes`: what happened, and what it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
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
    takes_options_of,
)
from omnigraph.cli.output import RowFormat, choose_format, emit, emit_facts, emit_rows, emit_table, note

if TYPE_CHECKING:
    from omnigraph.history.diff_pages import DiffPage


class EntityKind(StrEnum):
    """What changed."""

    NODE = "node"
    EDGE = "edge"


class Op(StrEnum):
    """How it changed."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


KindOption = Annotated[
    list[EntityKind] | None, typer.Option("--kind", metavar="KIND", help="Only node or edge.", show_default=False)
]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; may be repeated.")
]
OpOption = Annotated[
    list[Op] | None,
    typer.Option("--op", metavar="OP", help="Only insert, update or delete; may be repeated.", show_default=False),
]
StatOption = Annotated[bool, typer.Option("--stat", help="Only count the changes of each type.")]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="How many changes at most; 0 for all.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where the page that gave it ended.")
]

_FIELDS = ("op", "kind", "type", "id", "before", "after")
_COLUMNS = ("op", "table_key", "id", "what")
_COUNTS = ("table_key", "inserted", "updated", "deleted")
_FEED_FIELDS = ("commit_id", "parents", "kind", "actor", "created_at", "message", "changes")
_FEED_COLUMNS = ("commit_id", "actor", "op", "table_key", "id", "what")


def _show_page(
    read_page: Callable[..., Any],
    *,
    address: Address = None,
    graph: GraphOption = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    stat: StatOption = False,
    limit: LimitOption = 1000,
    cursor: CursorOption = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Read one page of changes and print it; both commands that show such a page take these options."""
    chosen = choose_format(as_json, row_format)
    opened = open_graph(address_of(address, graph), storage_option)
    page: DiffPage = read_page(opened, _page_options(kinds, types, ops, None if stat else limit, cursor))
    _emit_page(page, chosen, stat=stat)


@takes_options_of(_show_page)
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A branch or a commit.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A branch or a commit.", show_default=False)],
    **options: Any,
) -> None:
    """Show what changed from one commit or branch to another.

    Folds, compaction and indexes are no changes.
    """
    _show_page(lambda opened, page: opened.diff_page(old, new, **page), **options)


@takes_options_of(_show_page)
def commit_changes(
    commit_id: Annotated[str, typer.Argument(metavar="COMMIT", help="Id of the commit, as `commit list` shows it.")],
    **options: Any,
) -> None:
    """Show what one commit changed, against its first parent."""
    _show_page(lambda opened, page: opened.commit_changes(commit_id, **page), **options)


def changes(
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="CURSOR", help="A cursor, or a commit of the branch. Default: its birth."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many changes a page may hold.")] = 1000,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Show the commits of a branch with their changes, oldest first.

    One page, and the cursor to go on from. A commit is never cut in two: one
    with more changes than the limit is alone in its page.
    """
    chosen = choose_format(as_json, row_format)
    opened = open_graph(address_of(address, graph), storage_option, branch)
    from omnigraph.history.feed import FeedLimits, page_to_json

    document = page_to_json(opened.changes(since, limits=FeedLimits(changes=limit)))
    rows = document["commits"] if chosen is not RowFormat.TABLE else list(_feed_lines(document["commits"]))
    emit_rows(document, rows, _FEED_FIELDS if chosen is not RowFormat.TABLE else _FEED_COLUMNS, chosen)
    if chosen is not RowFormat.JSON:
        note(f"{'More to read' if document['more'] else 'Caught up'}: go on with --since {document['cursor']}")


def _page_options(
    kinds: list[EntityKind] | None,
    types: list[str] | None,
    ops: list[Op] | None,
    limit: int | None,
    cursor: str | None,
) -> dict[str, Any]:
    """What a page shall hold, as the facade takes it; a limit of 0 is none."""
    return {"kinds": kinds or (), "types": types or (), "ops": ops or (), "limit": limit or None, "cursor": cursor}


def _emit_page(page: DiffPage, chosen: RowFormat, *, stat: bool) -> None:
    if stat:
        from omnigraph.history.diff import diff_stat

        tables = diff_stat(page.changes)
        emit_rows({"old": page.old, "new": page.new, "tables": tables}, tables, _COUNTS, chosen)
        return
    document = page.to_json()
    is_table = chosen is RowFormat.TABLE
    rows = [_line(change) for change in document["changes"]] if is_table else document["changes"]
    emit_rows(document, rows, _COLUMNS if is_table else _FIELDS, chosen)
    if page.cursor is not None and chosen is not RowFormat.JSON:
        note(f"There is more: go on with --cursor {page.cursor}")


def _feed_lines(commits: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """One line per change; a commit without any has one too."""
    nothing = dict.fromkeys(_COLUMNS)
    for commit in commits:
        for line in [_line(change) for change in commit["changes"]] or [nothing]:
            yield {"commit_id": commit["commit_id"], "actor": commit["actor"], **line}


def _line(change: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "op": change["op"],
        "table_key": f"{change['kind']}:{change['type']}",
        "id": change["id"],
        "what": _describe_values(change["before"], change["after"]),
    }


def _describe_values(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """An update by the properties that differ, an insert or delete by those that have a value."""
    if before is not None and after is not None:
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return ", ".join(f"{name}: {_short(before.get(name))} → {_short(after.get(name))}" for name in names)
    image = after or before or {}
    return ", ".join(f"{name}: {_short(value)}" for name, value in image.items() if name != "id" and value is not None)


def _short(value: object) -> str:
    text = "null" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


FILTERS = ("actor", "kind", "branch")
_COMMIT_FIELDS = ("commit_id", "seq", "parents", "kind", "actor", "created_at", "message", "branch")
_COMMIT_COLUMNS = ("commit_id", "kind", "branch", "actor", "created_at", "message")

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
    chosen = choose_format(as_json, row_format)
    filter_values = pairs_of(filters, "--filter", FILTERS)
    view, _ = open_view(address_of(address, graph), storage_option, branch, at)
    infos = view.commits(limit or None, **{name: filter_values.get(name) for name in FILTERS})
    commits = [info.to_json() for info in infos]
    columns = _COMMIT_COLUMNS if chosen is RowFormat.TABLE else _COMMIT_FIELDS
    emit_rows({"commits": commits}, commits, columns, chosen)


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
    emit(view.commit(), as_json=as_json, show=_show_commit)


def _show_commit(commit: Mapping[str, Any]) -> None:
    emit_facts({name: commit[name] for name in _COMMIT_FIELDS})
    if commit["touched"]:
        typer.echo()
        emit_table(commit["touched"], tuple(commit["touched"][0]))


app.command("changes")(commit_changes)
