"""What a server serves and how much it takes on: from a file, a directory of graphs, or one address."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from omnigraph.errors import InvalidInput
from omnigraph.upkeep.cleanup.retention import seconds_of

GRAPH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STAMP = "graph.json"
_PLAIN = ("host", "port", "allow_unauthenticated")
_FILES = ("tokens", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """One graph: `name` is its place under `/graphs/`, `queries` a directory of stored queries."""

    name: str
    uri: str
    read_only: bool = False
    queries: Path | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one server takes on; each bound is refused with its name."""

    request_body_bytes: int = 8 << 20
    body_timeout_s: float = 30.0
    writes_per_actor: int = 16
    requests_in_flight: int = 256
    threads: int = 32
    query_timeout_s: float = 60.0
    query_memory_bytes: int = 1 << 30
    request_timeout_s: float = 120.0
    stop_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What runs in the background. Cleanup is off unless it has an interval."""

    fold_every_s: float = 5.0
    optimize_every_s: float = 30.0
    recover_every_s: float = 60.0
    cleanup_every_s: float | None = None
    keep: int | None = None
    older_than_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything a server is told when it starts. Graphs that appear in `directory` later are served as well."""

    graphs: tuple[GraphSettings, ...] = ()
    directory: GraphSettings | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    allow_unauthenticated: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    limits: Limits = Limits()
    upkeep: Upkeep = Upkeep()


T = TypeVar("T", Limits, Upkeep)


def place_of(place: str, read_only: bool = False, queries: Path | None = None) -> GraphSettings:
    """The graph, or the directory of graphs, at an address."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", place.rstrip("/").rpartition("/")[2]).strip("-._")[:64] or "graph"
    return GraphSettings(name, place, read_only, queries)


def is_directory_of_graphs(place: str) -> bool:
    """A local directory that is no graph itself."""
    return "://" not in place and Path(place).is_dir() and not (Path(place) / STAMP).exists()


def graphs_in(directory: GraphSettings) -> tuple[GraphSettings, ...]:
    """The graphs of a directory, by the names of their folders."""
    found = sorted(Path(directory.uri).iterdir())
    return tuple(
        replace(directory, name=one.name, uri=str(one))
        for one in found
        if GRAPH_NAME.fullmatch(one.name) and (one / STAMP).is_file()
    )


def read_settings(path: Path) -> ServerSettings:
    """Settings from a TOML, YAML or JSON file. Relative paths are relative to the file."""
    document = _parse(path)
    _refuse_unknown(document, ("graphs", "server", "limits", "upkeep"), path, "")
    server = _section(document, "server", path)
    _refuse_unknown(server, (*_PLAIN, *_FILES, "directory"), path, "server.")
    directory = server.get("directory")
    named: dict[str, Any] = {
        **{name: server[name] for name in _PLAIN if name in server},
        **{name: path.parent / str(server[name]) for name in _FILES if server.get(name) is not None},
    }
    return replace(
        ServerSettings(
            graphs=tuple(_graph(name, one, path) for name, one in _section(document, "graphs", path).items()),
            directory=place_of(str(path.parent / str(directory))) if directory is not None else None,
            limits=_filled(Limits(), _section(document, "limits", path), path, "limits."),
            upkeep=_upkeep(_section(document, "upkeep", path), path),
        ),
        **named,
    )


def _graph(name: str, found: Any, path: Path) -> GraphSettings:
    if not GRAPH_NAME.fullmatch(name):
        raise _wrong(path, f"graphs.{name}", "is no name for a graph", "Use letters, digits, dots, dashes, underscores")
    entry = {"uri": found} if isinstance(found, str) else found
    if not isinstance(entry, dict) or not isinstance(entry.get("uri"), str):
        raise _wrong(path, f"graphs.{name}", "has no uri", "Give the address of the graph")
    _refuse_unknown(entry, [one.name for one in fields(GraphSettings) if one.name != "name"], path, f"graphs.{name}.")
    uri = entry["uri"]
    return GraphSettings(
        name,
        uri if "://" in uri else str(path.parent / uri),
        bool(entry.get("read_only", False)),
        path.parent / str(entry["queries"]) if entry.get("queries") else None,
        {str(key): str(value) for key, value in dict(entry.get("storage_options", {})).items()},
    )


def _upkeep(found: Mapping[str, Any], path: Path) -> Upkeep:
    ages = {"cleanup_every", "older_than"}
    _refuse_unknown(
        found, ("fold_every_s", "optimize_every_s", "recover_every_s", "keep", *sorted(ages)), path, "upkeep."
    )
    plain = {name: value for name, value in found.items() if name not in ages}
    seconds = {f"{name}_s": seconds_of(str(found[name])) for name in sorted(ages & found.keys())}
    return _filled(Upkeep(), {**plain, **seconds}, path, "upkeep.")


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the configuration {path} cannot be read: {error}", code="bad_config") from error
    try:
        if path.suffix == ".toml":
            found: Any = tomllib.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            found = yaml.safe_load(text)
        else:
            found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{path} cannot be parsed: {error}", code="bad_config") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise InvalidInput(f"{path} cannot be parsed: {error}", code="bad_config") from error
    if not isinstance(found, dict):
        raise _wrong(path, "", "is not a table of settings", "See the server's guide for an example")
    return found


def _section(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise _wrong(path, name, "is not a table of settings", "See the server's guide for an example")
    return found


def _filled(default: T, found: Mapping[str, Any], path: Path, prefix: str) -> T:
    names = [one.name for one in fields(default)]
    _refuse_unknown(found, names, path, prefix)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise _wrong(path, f"{prefix}{name}", f"is {value!r}", "Use a number above 0")
    return replace(default, **found)


def _refuse_unknown(found: Mapping[str, Any], known: Any, path: Path, prefix: str) -> None:
    for name in found:
        if name not in known:
            raise _wrong(path, f"{prefix}{name}", "is not a setting", f"Known are {', '.join(known)}")


def _wrong(path: Path, where: str, what: str, advice: str) -> InvalidInput:
    return InvalidInput(f"{path}: {f'{where} ' if where else ''}{what}", code="bad_config", advice=advice)
