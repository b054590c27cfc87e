"""`omnigraph config show`: every setting with its value and where that comes from."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import typer

from omnigraph.cli.options import ACTOR_VARIABLE, GRAPH_VARIABLE, FormatOption, JsonOption
from omnigraph.cli.output import RowFormat, choose, emit_facts, emit_rows
from omnigraph.cli.settings import config_file, current_profile
from omnigraph.config import Config

app = typer.Typer(no_args_is_help=True, help="Show what this program is configured to do.", rich_markup_mode=None)
_COLUMNS = ("setting", "value", "source", "variable")


@app.callback()
def group() -> None:
    """Show what this program is configured to do."""


@app.command("show")
def show(row_format: FormatOption = None, as_json: JsonOption = False) -> None:
    """Show every setting, its value, and where the value comes from.

    A setting is taken from its environment variable, else from the profile
    that --profile, OMNIGRAPH_PROFILE or the file itself names, else it has
    its default. The file is OMNIGRAPH_CONFIG, else
    ~/.config/omnigraph/config.yaml:

    \b
    profile: dev
    profiles:
      dev:
        graph: s3://bucket/people
        actor: ada
        settings: {mutation_max_rows: 50000}
        environment: {AWS_REGION: eu-central-1}
    """
    chosen = choose(as_json, row_format)
    profile = current_profile()
    path = config_file(os.environ)
    rows = [_row("graph", os.environ.get(GRAPH_VARIABLE), None, GRAPH_VARIABLE, profile.variables)]
    rows.append(_row("actor", os.environ.get(ACTOR_VARIABLE), None, ACTOR_VARIABLE, profile.variables))
    effective, defaults = Config.from_environment(), Config()
    for one in fields(Config):
        variable = f"OMNIGRAPH_{one.name.upper()}"
        value, default = getattr(effective, one.name), getattr(defaults, one.name)
        rows.append(_row(one.name, value, default, variable, profile.variables))
    facts = {"file": str(path), "file_exists": path.exists(), "profile": profile.name}
    if chosen is RowFormat.TABLE:
        emit_facts(facts)
        typer.echo()
    emit_rows({**facts, "settings": rows}, rows, _COLUMNS, chosen)


def _row(name: str, value: object, default: object, variable: str, from_profile: Any) -> dict[str, Any]:
    if variable not in os.environ:
        source = "default"
    elif os.environ[variable] == from_profile.get(variable):
        source = "profile"
    else:
        source = "environment"
    return {"setting": name, "value": default if value is None else value, "source": source, "variable": variable}
