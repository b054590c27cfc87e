"""`omnigraph query` and `mutate`: run texts of the query language with parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import (
    ActorOption,
    Address,
    AtOption,
    BranchOption,
    ClientKeyOption,
    FormatOption,
    GraphOption,
    IfCommitOption,
    JsonOption,
    MessageOption,
    StorageOptions,
    TargetBranchOption,
    address_of,
    open_graph,
    open_view,
    pairs_of,
)
from omnigraph.cli.output import choose_format, emit, emit_facts, emit_rows, note
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.commit.publish_plan import Receipt
    from omnigraph.query.language.syntax import QuerySyntax

STDIN = "-"
ON_COMMAND_LINE = "<query>"
#: Parameters of these types are taken from the command line as they are, also if they look like JSON.
_TEXT_TYPES = ("String", "Date", "DateTime", "Blob")

ExpressionOption = Annotated[
    str | None, typer.Option("--expression", "-e", metavar="TEXT", help="The query itself.", show_default=False)
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", "-f", metavar="FILE", help="File that holds the query; - for stdin.", show_default=False),
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Which query, if the text holds several.")
]
ParamsOption = Annotated[
    str | None,
    typer.Option("--params", metavar="JSON", help="Parameters: a JSON object, or a file that holds one."),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="One parameter; may be repeated, and wins over --params."),
]


def read_source(expression: str | None, file: str | None) -> tuple[str, str]:
    """(text, its name for errors), from the command line, a file or stdin."""
    if expression is not None and file is not None:
        raise typer.BadParameter("-e and --file contradict each other: give the query once")
    if expression is not None:
        return expression, ON_COMMAND_LINE
    if file in (None, STDIN):
        if sys.stdin.isatty():
            raise typer.BadParameter("no query is given: use -e TEXT, or --file FILE, or write it to stdin")
        return sys.stdin.read(), "<stdin>"
    assert file is not None
    return read_text(file), file


def read_params(query: QuerySyntax, params: str | None, param: Sequence[str] | None) -> dict[str, Any]:
    """The values of `--params`, and over them those of `-p`, each read as its declared type asks."""
    values = _object(params) if params is not None else {}
    declared = {parameter.name.text: parameter for parameter in query.params}
    for name, value in pairs_of(param, "--param").items():
        parameter = declared.get(name)
        is_text = parameter is not None and parameter.type.text in _TEXT_TYPES and not parameter.is_list
        values[name] = value if is_text else _json_or_text(value)
    return values


def read_batch(file: str, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One set of parameters per line, each on top of the common ones."""
    text = sys.stdin.read() if file == STDIN else read_text(file)
    name = "<stdin>" if file == STDIN else file
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return [{**common, **_parse_object(line, name, number)} for number, line in lines]


def read_text(file: str) -> str:
    try:
        return Path(file).read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}", code="file_error", advice="Check the path", file=file
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8", code="file_error", advice="Save it as UTF-8", file=file) from error


def _object(params: str) -> dict[str, Any]:
    if params.lstrip().startswith("{"):
        return _parse_object(params, "--params", None)
    return _parse_object(read_text(params), params, None)


def _parse_object(text: str, name: str, line: int | None) -> dict[str, Any]:
    where = name if line is None else f"{name}, line {line}"
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            f"{where} is not JSON: {error}",
            code="bad_params",
            advice='Write parameters as {"name": value}',
            file=name,
            line=line,
        ) from error
    if not isinstance(values, dict):
        raise InvalidInput(
            f"{where} holds no JSON object",
            code="bad_params",
            advice='Write parameters as {"name": value}',
            file=name,
            line=line,
        )
    return values


def _json_or_text(value: str) -> Any:
    """A number, a truth value, null, a list; whatever is no JSON stays text, which is refused where it does not fit."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def query(
    address: Address = None,
    graph: GraphOption = None,
    expression: ExpressionOption = None,
    file: FileOption = None,
    name: NameOption = None,
    params: ParamsOption = None,
    param: ParamOption = None,
    branch: BranchOption = None,
    at: AtOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Run it and show how, instead of its rows.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="The same, with the time that it took.")] = False,
    as_json: JsonOption = False,
    row_format: FormatOption = None,
    storage_option: StorageOptions = None,
) -> None:
    """Run a reading query and print its rows.

    The query comes from -e, from --file, or from stdin.
    """
    from omnigraph.query.language.parse import pick_query

    graph_address = address_of(address, graph)
    chosen = choose_format(as_json, row_format)
    source, origin = read_source(expression, file)
    values = read_params(pick_query(source, name, origin), params, param)  # text that is wrong costs no request
    view, _ = open_view(graph_address, storage_option, branch, at)
    if explain or profile:
        explanation = view.explain(source, values, name=name, profile=profile)
        emit(explanation.to_json(), as_json=as_json, show=lambda _: typer.echo(explanation.render()))
        return
    result = view.query(source, values, name=name)
    emit_rows(result.to_json(), result.json_rows, [column.name for column in result.columns], chosen)
    for warning in result.warnings:
        note(warning)


class OnConflict(StrEnum):
    """What to do when another commit changed what the mutation read."""

    RETRY = "retry"
    FAIL = "fail"


BatchOption = Annotated[
    str | None,
    typer.Option("--batch", metavar="FILE", help="Run it once per line of parameters (JSON objects); - for stdin."),
]

OnConflictOption = Annotated[
    OnConflict,
    typer.Option(
        "--on-conflict", metavar="WHAT", help="retry (default) on the newer state, or fail.", show_default=False
    ),
]


def mutate(
    address: Address = None,
    graph: GraphOption = None,
    expression: ExpressionOption = None,
    file: FileOption = None,
    name: NameOption = None,
    params: ParamsOption = None,
    param: ParamOption = None,
    batch: BatchOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="An insert of an id that exists is a conflict.")] = False,
    branch: TargetBranchOption = None,
    if_commit: IfCommitOption = None,
    on_conflict: OnConflictOption = OnConflict.RETRY,
    client_key: ClientKeyOption = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Insert, update and delete, in one commit or not at all.

    The query comes from -e, from --file, or from stdin. Without a match
    nothing is committed, which is no error.
    """
    from omnigraph.query.language.parse import pick_query

    graph_address = address_of(address, graph)
    if batch == STDIN and expression is None and file in (None, STDIN):
        raise typer.BadParameter("the query and the batch cannot both come from stdin")
    source, origin = read_source(expression, file)
    query = pick_query(source, name, origin)  # text that is wrong costs no request
    values = read_params(query, params, param)
    parameter_sets = [values] if batch is None else read_batch(batch, values)
    opened = open_graph(graph_address, storage_option, branch, read_only=False)
    receipt = opened.mutate_many(
        source,
        parameter_sets,
        name=name,
        strict=strict,
        actor=actor,
        message=message,
        client_key=client_key,
        if_commit=if_commit,
        on_conflict="fail" if on_conflict is OnConflict.FAIL else "retry",
    )
    document = {
        "branch": opened.branch_name,
        "commit_id": receipt.commit_id,
        "counts": dict(receipt.counts),
        "replayed": receipt.replayed,
        "attempts": receipt.attempts,
        "waited_s": receipt.waited_s,
    }
    emit(document, as_json=as_json, show=lambda _: _show_receipt(receipt))
    neglected_tables = opened.needs_upkeep()
    if neglected_tables and not as_json:
        note(f"{', '.join(neglected_tables)}: many small fragments; `omnigraph optimize` makes reads cheaper again.")


def _show_receipt(receipt: Receipt) -> None:
    if receipt.waited_s:
        note(f"The write waited {receipt.waited_s:.1f} s: there are many small fragments. Run `omnigraph optimize`.")
    commit = receipt.commit_id or "none, nothing matched"
    emit_facts({"commit_id": f"{commit} (done before)" if receipt.replayed else commit, **receipt.counts})
