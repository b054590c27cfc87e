"""Profiles of the configuration file, and `omnigraph config show`.

A profile is a named set of defaults. The command line wins over the environment, and the environment over the profile:
a profile works as if its entries had been put into the environment before the command began.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import typer

from omnigraph.cli.options import ACTOR_VARIABLE, GRAPH_VARIABLE, FormatOption, JsonOption
from omnigraph.cli.output import RowFormat, choose_format, emit_facts, emit_rows
from omnigraph.config import Config
from omnigraph.errors import InvalidInput

FILE_VARIABLE = "OMNIGRAPH_CONFIG"
PROFILE_VARIABLE = "OMNIGRAPH_PROFILE"
_OPTION = "--profile"
_ENTRIES = ("graph", "actor", "settings", "environment")


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile of the file, as environment variables."""

    name: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def config_file(environment: Mapping[str, str]) -> Path:
    """Where the file is looked for, whether or not it is there."""
    file = environment.get(FILE_VARIABLE)
    if file:
        return Path(file)
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "omnigraph" / "config.yaml"


_CURRENT: ContextVar[Profile] = ContextVar("profile")


def current_profile() -> Profile:
    """The profile that the running command was given."""
    return _CURRENT.get(Profile())


@contextmanager
def apply_profile(arguments: Sequence[str]) -> Iterator[None]:
    """Set, for the duration of the block, the environment variables of the chosen profile that are not set already."""
    profile = choose_profile(arguments, os.environ)
    missing = {name: value for name, value in profile.variables.items() if name not in os.environ}
    os.environ.update(missing)
    token = _CURRENT.set(profile)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        for name in missing:
            os.environ.pop(name, None)


def choose_profile(arguments: Sequence[str], environment: Mapping[str, str]) -> Profile:
    """The profile that the command line names, else the environment, else the file itself."""
    requested_name = _profile_option(arguments) or environment.get(PROFILE_VARIABLE)
    path = config_file(environment)
    document = _read(path, must_exist=bool(environment.get(FILE_VARIABLE)))
    if document is None:
        if requested_name:
            raise _bad_config(
                f"profile {requested_name!r} is asked for, and there is no {path}", "Write the file, see its docs"
            )
        return Profile()
    profiles = _mapping(document.get("profiles", {}), path, "profiles")
    unknown = sorted(set(document) - {"profile", "profiles"})
    if unknown:
        raise _bad_config(f"{path}: there is no entry {unknown[0]!r}", "Known are profile and profiles")
    name = requested_name or document.get("profile")
    if name is None:
        return Profile()
    if name not in profiles:
        raise _bad_config(f"{path}: there is no profile {name!r}", f"It has {', '.join(sorted(profiles)) or 'none'}")
    return Profile(name, _variables(_mapping(profiles[name], path, f"profiles.{name}"), path, f"profiles.{name}"))


def _profile_option(arguments: Sequence[str]) -> str | None:
    """The raw words are asked, since the profile must be known before any of them is understood."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for position, word in enumerate(words):
        if word == _OPTION and position + 1 < len(words):
            return words[position + 1]
        if word.startswith(f"{_OPTION}="):
            return word.removeprefix(f"{_OPTION}=")
    return None


def _read(path: Path, *, must_exist: bool) -> Mapping[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if must_exist:
            raise _bad_config(f"{path} is not there", f"Correct {FILE_VARIABLE} or unset it") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_config(f"{path} cannot be read: {error}", "Correct the file or remove it") from error
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _bad_config(f"{path} is not YAML: {error}", "Correct the file or remove it") from error
    return {} if document is None else _mapping(document, path, "the file")


def _variables(entries: Mapping[str, Any], path: Path, where: str) -> dict[str, str]:
    unknown = sorted(set(entries) - set(_ENTRIES))
    if unknown:
        raise _bad_config(f"{path}: {where} has no entry {unknown[0]!r}", f"Known are {', '.join(_ENTRIES)}")
    variables: dict[str, str] = {}
    for name in ("graph", "actor"):
        if name in entries:
            variables[f"OMNIGRAPH_{name.upper()}"] = str(entries[name])
    setting_names = {setting.name for setting in fields(Config)}
    for name, value in _mapping(entries.get("settings", {}), path, f"{where}.settings").items():
        if name not in setting_names:
            raise _bad_config(f"{path}: there is no setting {name!r}", f"Known are {', '.join(sorted(setting_names))}")
        variables[f"OMNIGRAPH_{name.upper()}"] = _text(value)
    for name, value in _mapping(entries.get("environment", {}), path, f"{where}.environment").items():
        variables[str(name)] = _text(value)
    return variables


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _mapping(value: object, path: Path, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _bad_config(f"{path}: {where} must hold names and values", "See `omnigraph config show --help`")
    return value


def _bad_config(message: str, advice: str) -> InvalidInput:
    return InvalidInput(message, code="bad_config", advice=advice)


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
    chosen = choose_format(as_json, row_format)
    profile = current_profile()
    path = config_file(os.environ)
    rows = [_row("graph", os.environ.get(GRAPH_VARIABLE), None, GRAPH_VARIABLE, profile.variables)]
    rows.append(_row("actor", os.environ.get(ACTOR_VARIABLE), None, ACTOR_VARIABLE, profile.variables))
    effective, defaults = Config.from_environment(), Config()
    for setting in fields(Config):
        variable = f"OMNIGRAPH_{setting.name.upper()}"
        value, default = getattr(effective, setting.name), getattr(defaults, setting.name)
        rows.append(_row(setting.name, value, default, variable, profile.variables))
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
