"""`omnigraph optimize`, `cleanup`, `recover`, `verify`, `repair` and `tag`: keeping a graph in shape."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from omnigraph.cli.errors import ExitCode
from omnigraph.cli.options import (
    ActorOption,
    Address,
    ConfirmOption,
    FormatOption,
    GraphOption,
    JsonOption,
    MasterOption,
    MessageOption,
    SparkConfOption,
    StorageOptions,
    TargetBranchOption,
    YesOption,
    address_of,
    check_consent,
    open_graph,
    pairs_of,
    use_spark,
)
from omnigraph.cli.output import RowFormat, choose_format, emit, emit_facts, emit_rows, emit_table, note

TagName = Annotated[str, typer.Argument(metavar="TAG", help="Name of the tag.", show_default=False)]

_PLANNED_COLUMNS = ("table_key", "rows", "removed_rows", "fragments", "rewrites", "into", "indexes", "drops", "expired")
_DONE_COLUMNS = ("table_key", "outcome", "fragments_before", "fragments", "size_bytes_before", "size_bytes", "indexes")
_FILES_COLUMNS = ("place", "condemned", "condemned_bytes", "waiting", "deleted", "deleted_bytes")
_PROBLEM_COLUMNS = ("severity", "code", "where", "message", "repairable")
_TAG_COLUMNS = ("tag", "commit_id", "actor", "created_at", "message")

tags = typer.Typer(no_args_is_help=True, help="Name commits, so that cleanup never collects them.")


def optimize(
    address: Address = None,
    graph: GraphOption = None,
    branch: TargetBranchOption = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="NAME", help="Only this type; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    on_spark: Annotated[bool, typer.Option("--spark", help="Compact and index in tasks of Spark.")] = False,
    master: MasterOption = None,
    spark_conf: SparkConfOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Compact tables and bring their indexes up to date.

    Writers are not disturbed. One commit for all tables, none if there is
    nothing to do.
    """
    opened = open_graph(address_of(address, graph), storage_option, branch, read_only=dry_run)
    progress = note if sys.stderr.isatty() else None
    use_spark(master, spark_conf)
    report = opened.optimize(types, dry_run=dry_run, progress=progress, engine="spark" if on_spark else "local")
    document = {"branch": opened.branch_name, **report.to_json()}
    emit(document, as_json=as_json, show=lambda _: _show_optimize(document, dry_run))
    if not report.is_complete and not as_json:
        note("Writers moved some tables every time; run it again when there is less to do.")


def _show_optimize(document: dict[str, Any], dry_run: bool) -> None:
    emit_facts({name: document[name] for name in ("branch", "overlay_entries", "folded", "commits")})
    rows, columns = (document["planned"], _PLANNED_COLUMNS) if dry_run else (document["tables"], _DONE_COLUMNS)
    if rows:
        typer.echo()
        emit_table(rows, columns)


def cleanup(
    address: Address = None,
    graph: GraphOption = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Collect commits beyond the newest N.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Collect only what is older: 7d, 24h, 30min.")
    ] = None,
    horizon: Annotated[
        str, typer.Option("--horizon", metavar="AGE", help="How long condemned files wait before they go.")
    ] = "1d",
    confirm: ConfirmOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Remove old commits and unnamed files.

    Without --confirm it only shows what would go. No commit goes unless
    --older-than or --keep is given. Tags, starts of branches and merge bases
    stay. Files are condemned first and removed by a later run.
    """
    graph_address = address_of(address, graph)
    check_consent(graph_address, confirm, yes)
    from omnigraph.upkeep.cleanup.retention import Policy, parse_age_s

    age_s = parse_age_s(older_than) if older_than is not None else None
    policy = Policy(keep, age_s, horizon_s=parse_age_s(horizon))
    report = open_graph(graph_address, storage_option, read_only=not confirm).cleanup(confirm=confirm, policy=policy)
    emit(report.to_json(), as_json=as_json, show=_show_cleanup)
    if report.unfenced:
        note(f"Nothing was condemned: another writer holds {', '.join(report.unfenced)}.")
    if not confirm:
        note("Nothing was removed: this is a preview. Add --confirm to do it.")
    if report.failures:
        raise typer.Exit(ExitCode.ERROR)


def _show_cleanup(document: Mapping[str, Any]) -> None:
    for name, columns in (
        ("expired", ("branch", "commits", "oldest", "newest")),
        ("files", _FILES_COLUMNS),
        ("protected", ("commit_id", "by")),
        ("lost", ("commit_id", "by")),
        ("failures", ("key", "error")),
    ):
        if document[name]:
            typer.echo(f"{name}:")
            emit_table(document[name], columns)
            typer.echo()
    if not document["expired"] and not document["files"]:
        typer.echo("nothing to do")


def verify(
    address: Address = None,
    graph: GraphOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every data file, count the rows of every commit.")] = False,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Check a graph and say exactly what is wrong. Exit code 1 if something is.

    Works on damaged graphs: no branch need be readable.
    """
    chosen = choose_format(as_json, row_format)
    options = pairs_of(storage_option, "--storage-option")
    from omnigraph.api.open_graph import verify as verify_at

    report = verify_at(address_of(address, graph), deep=deep, storage_options=options)
    document = report.to_json()
    if chosen is RowFormat.TABLE:
        emit_facts({"ok": report.ok, **document["checked"]})
        if document["problems"]:
            typer.echo()
    if document["problems"] or chosen is not RowFormat.TABLE:
        emit_rows(document, document["problems"], _PROBLEM_COLUMNS, chosen)
    if not report.ok:
        raise typer.Exit(ExitCode.ERROR)


def repair(
    address: Address = None,
    graph: GraphOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Make damaged indexes and registry entries anew.

    Data is never guessed. Exit code 1 if something is still wrong.
    """
    report = open_graph(address_of(address, graph), storage_option, read_only=False).repair()
    emit(report.to_json(), as_json=as_json, show=_show_repair)
    if not report.ok:
        raise typer.Exit(ExitCode.ERROR)


def _show_repair(document: Mapping[str, Any]) -> None:
    emit_facts({"ok": document["ok"], "repaired": len(document["repaired"])})
    for line in document["repaired"]:
        typer.echo(f"  {line}")
    if document["problems"]:
        typer.echo()
        emit_table(document["problems"], _PROBLEM_COLUMNS)


@tags.command()
def create(
    name: TagName,
    commit_id: Annotated[str, typer.Argument(metavar="COMMIT", help="Id of the commit, of any branch.")],
    address: Address = None,
    graph: GraphOption = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Tag a commit: cleanup will never collect it."""
    opened = open_graph(address_of(address, graph), storage_option, read_only=False)
    tag = opened.tags.create(name, commit_id, actor=actor, message=message).to_json()
    emit(tag, as_json=as_json)


@tags.command("list")
def list_(
    address: Address = None,
    graph: GraphOption = None,
    row_format: FormatOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """List the tags."""
    chosen = choose_format(as_json, row_format)
    rows = [tag.to_json() for tag in open_graph(address_of(address, graph), storage_option).tags.list()]
    emit_rows({"tags": rows}, rows, _TAG_COLUMNS, chosen)


@tags.command()
def delete(
    name: TagName,
    address: Address = None,
    graph: GraphOption = None,
    confirm: ConfirmOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Delete a tag; without --confirm only show what would go.

    The commit itself stays until cleanup collects it.
    """
    graph_address = address_of(address, graph)
    check_consent(graph_address, confirm, yes)
    opened = open_graph(graph_address, storage_option, read_only=not confirm)
    tag = opened.tags.delete(name) if confirm else opened.tags.get(name)
    facts = {"tag": tag.name, "commit_id": tag.commit_id, "deleted": confirm}
    emit(facts, as_json=as_json)
    if not confirm:
        note("Nothing was deleted: this is a preview. Add --confirm to delete the tag.")


_ENDED_INTENT = ("id", "operation", "branch", "actor", "verdict", "class", "commit_id", "reason")
_LISTED_INTENT = ("id", "state", "operation", "branch", "actor", "last_sign_at", "commit_id", "garbage_files", "reason")


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
    chosen = choose_format(as_json, row_format)
    opened = open_graph(address_of(address, graph), storage_option, read_only=only_list, recover=False)
    if only_list:
        intents = [report.to_json() for report in opened.recover_list()]
        rows = [
            {**intent, "garbage_files": sum(garbage["files"] for garbage in intent["garbage"])} for intent in intents
        ]
        emit_rows({"intents": intents}, rows, _LISTED_INTENT, chosen)
        return
    intents = [recovered.to_json() for recovered in opened.recover(now=now)]
    emit_rows({"intents": intents}, intents, _ENDED_INTENT, chosen)
    if any(intent["verdict"] == "rolled_back" for intent in intents):
        note("What they had staged is unnamed; `omnigraph cleanup` takes it.")
