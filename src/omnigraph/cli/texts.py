"""`omnigraph lint` and `fmt`: the texts users write."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.failure import ExitCode
from omnigraph.cli.options import (
    GRAPH_VARIABLE,
    BranchOption,
    JsonOption,
    StorageOptions,
    address_of,
    open_graph,
)
from omnigraph.cli.output import emit_document, note
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.diagnostics import Diagnostic

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
    given = list(dict.fromkeys([*([schema] if schema else []), *(files or [])]))
    if not given:
        raise typer.BadParameter("nothing to check: name .pg or .gq files, or --schema FILE")
    queries = [path for path in given if _suffix(path) == QUERY_SUFFIX and path != schema]
    schemas = [path for path in given if path not in queries]
    checked = {path: _lint_schema(path) for path in schemas}
    reports = [one for one, _ in checked.values()]
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
    texts = {path: _read(path) for path in files}
    layouts = {path: _formatted(text, path, suffixes[path]) for path, text in texts.items()}
    changed = [path for path in layouts if layouts[path] != texts[path]]
    if not check:
        for path in changed:
            _replace(path, layouts[path])
    if as_json:
        emit_document({"files": [{"file": str(path), "changed": path in changed} for path in layouts]})
    else:
        for path in changed:
            typer.echo(f"{'would change' if check else 'changed'} {path}")
        note(f"{len(changed)} of {len(layouts)} files {'would change' if check else 'changed'}")
    if check and changed:
        raise typer.Exit(ExitCode.VALIDATION)


# --- lint ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Report:
    """Findings of one file. `found` says in JSON what the text declares."""

    file: str
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    found: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": not self.errors,
            **self.found,
            "errors": [one.to_json() for one in self.errors],
            "warnings": [one.to_json() for one in self.warnings],
        }


def _lint_schema(path: Path) -> tuple[_Report, Catalog | None]:
    from omnigraph.clock import SystemIds
    from omnigraph.schema.compile import compile_schema
    from omnigraph.schema.problems import SchemaError

    ids = SystemIds()
    try:
        catalog = compile_schema(_read(path), file=str(path), mint=lambda: ids.token(8))
    except SchemaError as error:
        return _Report(str(path), error.diagnostics, (), {"types": []}), None
    return _Report(str(path), (), (), {"types": [one.table_key for one in catalog.types]}), catalog


def _lint_queries(path: Path, catalog: Catalog) -> _Report:
    from omnigraph.query.language.lint import lint as lint_queries

    report = lint_queries(_read(path), catalog, str(path))
    return _Report(report.file, report.errors, report.warnings, {"queries": [one.to_json() for one in report.queries]})


def _catalog_of_graph(graph: str | None, branch: str | None, storage_option: list[str] | None) -> Catalog:
    if not (graph or os.environ.get(GRAPH_VARIABLE)):
        raise typer.BadParameter("queries are checked against a schema: give --schema FILE or --graph GRAPH")
    return open_graph(address_of(None, graph), storage_option, branch).schema.catalog


def _emit_reports(reports: list[_Report], unchecked: list[Path], as_json: bool) -> None:
    from omnigraph.schema.diagnostics import render

    failed = any(one.errors for one in reports)
    if as_json:
        skipped = [str(path) for path in unchecked]
        emit_document({"ok": not failed, "files": [one.to_json() for one in reports], "unchecked": skipped})
    else:
        for report in reports:
            for one in report.errors:
                typer.echo(f"error: {render(one)}")
            for one in report.warnings:
                typer.echo(f"warning: {render(one)}")
        for path in unchecked:
            note(f"{path} was not checked: the schema has errors")
        errors, warnings = (sum(len(getattr(one, kind)) for one in reports) for kind in ("errors", "warnings"))
        note(f"{len(reports)} files checked: {errors} errors, {warnings} warnings")
    if failed:
        raise typer.Exit(ExitCode.VALIDATION)


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


def _formatted(text: str, path: Path, suffix: str) -> str:
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


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error.strerror}", code="file_error", advice="Check the path", file=str(path)
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8", code="file_error", advice="Save it as UTF-8") from error
