"""`omnigraph schema` shows the schema, plans a change of it and applies one.

`omnigraph lint` checks files of schemas and queries, `omnigraph fmt` formats them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.errors import ExitCode
from omnigraph.cli.options import (
    GRAPH_VARIABLE,
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
from omnigraph.cli.query import read_text
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api import Graph
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.diagnostics import Diagnostic

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


SCHEMA_SUFFIX, QUERY_SUFFIX, STDIN = ".pg", ".gq", "-"

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILES...", help="Schemas (.pg) and queries (.gq).", show_default=False),
]


def lint(
    files: Files = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="Schema that queries must fit; it is checked as well."),
    ] = None,
    graph: Annotated[
        str | None, typer.Option("--graph", metavar="GRAPH", help="Graph whose schema the queries must fit.")
    ] = None,
    branch: BranchOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Check schemas and queries, and report all errors at once.

    Queries are checked against --schema, or the schema of --graph, or of
    $OMNIGRAPH_GRAPH. Exit code 5 if there are errors; warnings do not count.
    """
    paths = list(dict.fromkeys([*([schema] if schema else []), *(files or [])]))
    if not paths:
        raise typer.BadParameter("nothing to check: name .pg or .gq files, or --schema FILE")
    queries = [path for path in paths if _suffix(path) == QUERY_SUFFIX and path != schema]
    schemas = [path for path in paths if path not in queries]
    checked = {path: _lint_schema(path) for path in schemas}
    reports = [report for report, _ in checked.values()]
    if queries:
        catalog = checked[schema][1] if schema else _catalog_of_graph(graph, branch, storage_option)
        reports += [_lint_queries(path, catalog) for path in queries] if catalog else []
    _emit_reports(reports, [path for path in queries if catalog is None] if queries else [], as_json)


def fmt(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Schemas (.pg) and queries (.gq); - for a schema on stdin."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 5 if a file would change.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring schemas and queries into the standard layout.

    Files are changed in place, and only if every one of them can be parsed. `-` reads a schema
    from stdin and writes it to stdout.
    """
    if Path(STDIN) in files:
        if len(files) > 1 or as_json:
            raise typer.BadParameter("- stands alone: a schema from stdin goes to stdout")
        _fmt_stdin(check)
        return
    suffixes = {path: _suffix(path) for path in files}
    texts = {path: read_text(str(path)) for path in files}
    layouts = {path: _format_text(text, path, suffixes[path]) for path, text in texts.items()}
    changed = [path for path in layouts if layouts[path] != texts[path]]
    if not check:
        for path in changed:
            _replace(path, layouts[path])
    document = {"files": [{"file": str(path), "changed": path in changed} for path in layouts]}
    emit(document, as_json=as_json, show=lambda _: _show_layout_changes(changed, len(layouts), check))
    if check and changed:
        raise typer.Exit(ExitCode.VALIDATION)


def _show_layout_changes(changed: list[Path], file_count: int, check: bool) -> None:
    verb = "would change" if check else "changed"
    for path in changed:
        typer.echo(f"{verb} {path}")
    note(f"{len(changed)} of {file_count} files {verb}")


# --- lint ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LintReport:
    """Findings of one file. `declared` says in JSON what the text declares."""

    file: str
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    declared: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": not self.errors,
            **self.declared,
            "errors": [error.to_json() for error in self.errors],
            "warnings": [warning.to_json() for warning in self.warnings],
        }


def _lint_schema(path: Path) -> tuple[_LintReport, Catalog | None]:
    from omnigraph.clock import SystemIds
    from omnigraph.schema.compile import compile_schema
    from omnigraph.schema.problems import SchemaError

    ids = SystemIds()
    try:
        catalog = compile_schema(read_text(str(path)), file=str(path), mint=lambda: ids.token(8))
    except SchemaError as error:
        return _LintReport(str(path), error.diagnostics, (), {"types": []}), None
    return _LintReport(str(path), (), (), {"types": [type_def.table_key for type_def in catalog.types]}), catalog


def _lint_queries(path: Path, catalog: Catalog) -> _LintReport:
    from omnigraph.query.language.lint import lint as lint_queries

    report = lint_queries(read_text(str(path)), catalog, str(path))
    return _LintReport(
        report.file, report.errors, report.warnings, {"queries": [query.to_json() for query in report.queries]}
    )


def _catalog_of_graph(graph: str | None, branch: str | None, storage_option: list[str] | None) -> Catalog:
    if not (graph or os.environ.get(GRAPH_VARIABLE)):
        raise typer.BadParameter("queries are checked against a schema: give --schema FILE or --graph GRAPH")
    return open_graph(address_of(None, graph), storage_option, branch).schema.catalog


def _emit_reports(reports: list[_LintReport], unchecked: list[Path], as_json: bool) -> None:
    has_errors = any(report.errors for report in reports)
    files = [report.to_json() for report in reports]
    document = {"ok": not has_errors, "files": files, "unchecked": [str(path) for path in unchecked]}
    emit(document, as_json=as_json, show=lambda _: _show_reports(reports, unchecked))
    if has_errors:
        raise typer.Exit(ExitCode.VALIDATION)


def _show_reports(reports: list[_LintReport], unchecked: list[Path]) -> None:
    from omnigraph.schema.diagnostics import render

    for report in reports:
        for error in report.errors:
            typer.echo(f"error: {render(error)}")
        for warning in report.warnings:
            typer.echo(f"warning: {render(warning)}")
    for path in unchecked:
        note(f"{path} was not checked: the schema has errors")
    errors, warnings = sum(len(report.errors) for report in reports), sum(len(report.warnings) for report in reports)
    note(f"{len(reports)} files checked: {errors} errors, {warnings} warnings")


# --- fmt -----------------------------------------------------------------------------------------------------------


def _fmt_stdin(check: bool) -> None:
    from omnigraph.schema.format import format_schema

    text = sys.stdin.read()
    layout = format_schema(text, file="<stdin>")
    if not check:
        typer.echo(layout, nl=False)
    elif layout != text:
        note("the schema on stdin would change")
        raise typer.Exit(ExitCode.VALIDATION)


def _format_text(text: str, path: Path, suffix: str) -> str:
    if suffix == QUERY_SUFFIX:
        from omnigraph.query.language.format import format_queries

        return format_queries(text, str(path))
    from omnigraph.schema.format import format_schema

    return format_schema(text, file=str(path))


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: somebody's source must survive a full disk. A link keeps pointing where it points."""
    target = path.resolve()
    fresh = target.with_name(f".{target.name}.fmt")
    try:
        fresh.write_text(text, encoding="utf-8", newline="")
        fresh.chmod(target.stat().st_mode)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", code="file_error", advice="Check the permissions"
        ) from error


# --- files ---------------------------------------------------------------------------------------------------------


def _suffix(path: Path) -> str:
    if path.suffix not in (SCHEMA_SUFFIX, QUERY_SUFFIX):
        raise typer.BadParameter(f"{path} is neither a schema ({SCHEMA_SUFFIX}) nor a file of queries ({QUERY_SUFFIX})")
    return path.suffix
