"""The operator's configuration file: profiles, which are named sets of defaults.

What the command line says wins over the environment, and the environment over the profile. A profile therefore works
as if its entries had been put into the environment before the command began.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

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
    named = environment.get(FILE_VARIABLE)
    if named:
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "omnigraph" / "config.yaml"


_CURRENT: ContextVar[Profile] = ContextVar("profile")


def current_profile() -> Profile:
    """The profile that the running command was given."""
    return _CURRENT.get(Profile())


@contextmanager
def applied(arguments: Sequence[str]) -> Iterator[None]:
    """Inside, the chosen profile stands in for every environment variable that is not set."""
    profile = chosen_profile(arguments, os.environ)
    missing = {name: value for name, value in profile.variables.items() if name not in os.environ}
    os.environ.update(missing)
    token = _CURRENT.set(profile)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        for name in missing:
            os.environ.pop(name, None)


def chosen_profile(arguments: Sequence[str], environment: Mapping[str, str]) -> Profile:
    """The profile that the words of the command line, the environment or the file itself name."""
    wanted = _named_on(arguments) or environment.get(PROFILE_VARIABLE)
    path = config_file(environment)
    document = _read(path, must_exist=bool(environment.get(FILE_VARIABLE)))
    if document is None:
        if wanted:
            raise _refused(f"profile {wanted!r} is asked for, and there is no {path}", "Write the file, see its docs")
        return Profile()
    profiles = _mapping(document.get("profiles", {}), path, "profiles")
    unknown = sorted(set(document) - {"profile", "profiles"})
    if unknown:
        raise _refused(f"{path}: there is no entry {unknown[0]!r}", "Known are profile and profiles")
    name = wanted or document.get("profile")
    if name is None:
        return Profile()
    if name not in profiles:
        raise _refused(f"{path}: there is no profile {name!r}", f"It has {', '.join(sorted(profiles)) or 'none'}")
    return Profile(name, _variables(_mapping(profiles[name], path, f"profiles.{name}"), path, f"profiles.{name}"))


def _named_on(arguments: Sequence[str]) -> str | None:
    """The raw words are asked, since the profile must be known before any of them is understood."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for place, word in enumerate(words):
        if word == _OPTION and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{_OPTION}="):
            return word.removeprefix(f"{_OPTION}=")
    return None


def _read(path: Path, *, must_exist: bool) -> Mapping[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if must_exist:
            raise _refused(f"{path} is not there", f"Correct {FILE_VARIABLE} or unset it") from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(f"{path} cannot be read: {error}", "Correct the file or remove it") from error
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _refused(f"{path} is not YAML: {error}", "Correct the file or remove it") from error
    return {} if document is None else _mapping(document, path, "the file")


def _variables(entries: Mapping[str, Any], path: Path, where: str) -> dict[str, str]:
    unknown = sorted(set(entries) - set(_ENTRIES))
    if unknown:
        raise _refused(f"{path}: {where} has no entry {unknown[0]!r}", f"Known are {', '.join(_ENTRIES)}")
    found: dict[str, str] = {}
    for name in ("graph", "actor"):
        if name in entries:
            found[f"OMNIGRAPH_{name.upper()}"] = str(entries[name])
    known = {one.name for one in fields(Config)}
    for name, value in _mapping(entries.get("settings", {}), path, f"{where}.settings").items():
        if name not in known:
            raise _refused(f"{path}: there is no setting {name!r}", f"Known are {', '.join(sorted(known))}")
        found[f"OMNIGRAPH_{name.upper()}"] = _text(value)
    for name, value in _mapping(entries.get("environment", {}), path, f"{where}.environment").items():
        found[str(name)] = _text(value)
    return found


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _mapping(value: object, path: Path, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(f"{path}: {where} must hold names and values", "See `omnigraph config show --help`")
    return value


def _refused(message: str, advice: str) -> InvalidInput:
    return InvalidInput(message, code="bad_config", advice=advice)
