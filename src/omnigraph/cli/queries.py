"""`omnigraph query`: read a branch or a commit."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.inputs import (
    ExpressionOption,
    FileOption,
    NameOption,
    ParamOption,
    ParamsOption,
    read_params,
    read_source,
)
from omnigraph.cli.options import (
    Address,
    AtOption,
    BranchOption,
    FormatOption,
    GraphOption,
    JsonOption,
    StorageOptions,
    address_of,
    open_view,
)
from omnigraph.cli.output import choose, emit_document, emit_rows, note


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
    from omnigraph.query.language.script import pick_query

    place = address_of(address, graph)
    shown_as = choose(as_json, row_format)
    source, origin = read_source(expression, file)
    values = read_params(pick_query(source, name, origin), params, param)  # text that is wrong costs no request
    view, _ = open_view(place, storage_option, branch, at)
    if explain or profile:
        explanation = view.explain(source, values, name=name, profile=profile)
        if as_json:
            emit_document(explanation.to_json())
        else:
            typer.echo(explanation.render())
        return
    found = view.query(source, values, name=name)
    emit_rows(found.to_json(), found.json_rows, [one.name for one in found.columns], shown_as)
    for warning in found.warnings:
        note(warning)
