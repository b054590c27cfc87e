"""`omnigraph recover`: what bulk operations left behind, and how they end."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Address, FormatOption, GraphOption, JsonOption, StorageOptions, address_of, open_graph
from omnigraph.cli.output import choose, emit_rows, note

_ENDED = ("id", "operation", "branch", "actor", "verdict", "class", "commit_id", "reason")
_LISTED = ("id", "state", "operation", "branch", "actor", "last_sign_at", "commit_id", "garbage_files", "reason")


def recover(
    address: Address = None,
    graph: GraphOption = None,
    only_list: Annotated[bool, typer.Option("--list", help="Only show what is there.")] = False,
    now: Annotated[
        str | None, typer.Option("--now", metavar="ID", help="Do not wait any longer for this one.", show_default=False)
    ] = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """End bulk operations whose process is gone.

    What was staged in full is published, the rest is given up; nothing is
    deleted. An operation that gave a sign of life within the grace
    (OMNIGRAPH_RECOVERY_GRACE, 900 seconds) is left alone. Every opening for
    writing does the same.
    """
    if only_list and now is not None:
        raise typer.BadParameter("--list and --now contradict each other")
    chosen = choose(as_json, row_format)
    opened = open_graph(address_of(address, graph), storage_option, read_only=only_list, recover=False)
    if only_list:
        listed = [one.to_json() for one in opened.recover_list()]
        rows = [{**one, "garbage_files": sum(place["files"] for place in one["garbage"])} for one in listed]
        emit_rows({"intents": listed}, rows, _LISTED, chosen)
        return
    ended = [one.to_json() for one in opened.recover(now=now)]
    emit_rows({"intents": ended}, ended, _ENDED, chosen)
    if any(one["verdict"] == "rolled_back" for one in ended):
        note("What they had staged is unnamed; `omnigraph cleanup` takes it.")
