"""What verbs of the query language are given: a text, and values for its parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import pairs_of
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.query.language.syntax import Query

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


def read_params(query: Query, params: str | None, param: Sequence[str] | None) -> dict[str, Any]:
    """The values of `--params`, and over them those of `-p`, each read as its declared type asks."""
    found = _object(params) if params is not None else {}
    declared = {one.name.text: one for one in query.params}
    for name, value in pairs_of(param, "--param").items():
        one = declared.get(name)
        is_text = one is not None and one.type.text in _TEXT_TYPES and not one.is_list
        found[name] = value if is_text else _json_or_text(value)
    return found


def read_batch(file: str, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One set of parameters per line, each on top of the common ones."""
    text = sys.stdin.read() if file == STDIN else read_text(file)
    name = "<stdin>" if file == STDIN else file
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return [{**common, **_parsed(line, name, number)} for number, line in lines]


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
        return _parsed(params, "--params", None)
    return _parsed(read_text(params), params, None)


def _parsed(text: str, name: str, line: int | None) -> dict[str, Any]:
    where = name if line is None else f"{name}, line {line}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(
            f"{where} is not JSON: {error}",
            code="bad_params",
            advice='Write parameters as {"name": value}',
            file=name,
            line=line,
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(
            f"{where} holds no JSON object",
            code="bad_params",
            advice='Write parameters as {"name": value}',
            file=name,
            line=line,
        )
    return found


def _json_or_text(value: str) -> Any:
    """A number, a truth value, null, a list; whatever is no JSON stays text, which is refused where it does not fit."""
    try:
        return json.loads(value)
    except ValueError:
        return value
