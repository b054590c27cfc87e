"""`omnigraph schema`: show the schema, plan a change of it, apply one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.errors import ExitCode
from omnigraph.cli.options import (
    ActorOption,
    Address,
    AtOption,
    BranchOption,
    GraphOption,
    IfCommitOption,
    JsonOption,
    MessageOption,
    StorageOptions,
    address_of,
    is_local,
    open_graph,
    open_view,
)
from omnigraph.cli.output import emit, note

if TYPE_CHECKING:
    from omnigraph.api import Graph
    from omnigraph.schema.catalog import Catalog

app = typer.Typer(no_args_is_help=True, help="Show the schema of a graph, plan and apply changes.")

SchemaFile = Annotated[
    Path, typer.Option("--schema", metavar="FILE", help="The new schema: a .pg file.", show_default=False)
]


@app.command()
def show(
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    at: AtOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Print the schema, exactly as it was given."""
    view, _ = open_view(address_of(address, graph), storage_option, branch, at)
    catalog, source = view.catalog, view.catalog.source
    types = [type_def.table_key for type_def in catalog.types]
    document = {"commit_id": view.commit_id, "schema": catalog.hash, "types": types, "source": source}
    emit(document, as_json=as_json, show=lambda _: typer.echo(source, nl=not source.endswith("\n")))


@app.command()
def plan(
    schema: SchemaFile,
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Show the steps that lead to a new schema. Nothing is written.

    Exit code 5 if a step is not possible. Rows are looked at by `schema
    apply`, so a step that checks rows may still be refused there.
    """
    opened = open_graph(address_of(address, graph), storage_option, branch)
    change_plan = opened.schema.plan(schema)
    _emit_plan({"branch": opened.branch_name, **change_plan.to_json()}, opened, as_json)
    if not change_plan.supported:
        raise typer.Exit(ExitCode.VALIDATION)


@app.command("apply")
def apply_(
    schema: SchemaFile,
    address: Address = None,
    graph: GraphOption = None,
    branch: BranchOption = None,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Let the next cleanup remove what is dropped; needs --confirm.")
    ] = False,
    confirm: Annotated[bool, typer.Option("--confirm", help="Really drop data for good.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Needed as well when the graph is not on this machine.")] = False,
    if_commit: IfCommitOption = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Bring a branch to a new schema, in one commit.

    Dropped types and properties stay readable in older commits. This is not so
    with --allow-data-loss, which only shows a preview unless --confirm is
    given, too.
    """
    graph_address = address_of(address, graph)
    preview = allow_data_loss and not confirm
    if allow_data_loss and confirm and not yes and not is_local(graph_address):
        raise typer.BadParameter(
            f"{graph_address} is not on this machine: dropping data needs --yes as well as --confirm"
        )
    opened = open_graph(graph_address, storage_option, branch, read_only=preview)
    if preview:
        change_plan = opened.schema.plan(schema)
        change_plan.check()
        _emit_plan({"branch": opened.branch_name, "commit_id": None, **change_plan.to_json()}, opened, as_json)
        note("Nothing was changed: this is a preview. Add --confirm to drop the data.")
        return
    receipt = opened.schema.apply(
        schema, allow_data_loss=allow_data_loss, actor=actor, message=message, if_commit=if_commit
    )
    _emit_plan({"branch": opened.branch_name, "commit_id": receipt.commit_id, **receipt.result}, opened, as_json)


def _emit_plan(document: Mapping[str, Any], opened: Graph, as_json: bool) -> None:
    emit(document, as_json=as_json, show=lambda _: _show_plan(document, opened.view(fresh=False).catalog))


def _show_plan(document: Mapping[str, Any], catalog: Catalog) -> None:
    for step in document.get("steps", ()):
        typer.echo(_describe_step(step, catalog))
    for refusal in document.get("refused", ()):
        advice = f". {refusal['advice']}" if refusal["advice"] else ""
        typer.echo(f"refused {refusal['code']}: {refusal['entity']}: {refusal['reason']}{advice}")
    if not document.get("steps") and not document.get("refused"):
        typer.echo("no change")
    if document.get("commit_id"):
        typer.echo(f"commit {document['commit_id']}")


def _describe_step(step: Mapping[str, Any], catalog: Catalog) -> str:
    """`add_property node:Person.age I32?`, with what it costs."""
    columns = [step["property"]] if step.get("property") else _column_names(step, catalog)
    where = ".".join([*([step["table"]] if step.get("table") else []), *([", ".join(columns)] if columns else [])])
    words = [step["step"], where, step.get("rule"), step.get("what"), step.get("type")]
    if step.get("old"):
        words.append(f"(was {step['old']})")
    if step.get("before") or step.get("after"):
        words.append(f"({step.get('before') or 'none'} → {step.get('after') or 'none'})")
    flags = {"rewrites_rows": "rewrites rows", "validates_rows": "checks rows"}
    costs = [text for flag, text in flags.items() if step[flag]]
    return " ".join(str(part) for part in words if part) + (f" [{', '.join(costs)}]" if costs else "")


def _column_names(step: Mapping[str, Any], catalog: Catalog) -> list[str]:
    """The user's names of the columns of a rule; a column that only the new schema has keeps its identity."""
    type_def = catalog.by_id.get(step.get("type_id") or "")
    names = {prop.id: prop.name for prop in type_def.properties} if type_def else {}
    return [names.get(column, column) for column in step.get("columns", ())]
