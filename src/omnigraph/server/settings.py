"""Settings of a server, from a file, a directory of graphs, or one address."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from omnigraph.errors import InvalidInput
from omnigraph.upkeep.cleanup.retention import parse_age_s

GRAPH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STAMP = "graph.json"
_PLAIN = ("host", "port", "allow_unauthenticated")
_FILES = ("tokens", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """One graph: `name` is its path under `/graphs/`, `queries` a directory of stored queries."""

    name: str
    uri: str
    read_only: bool = False
    queries: Path | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerLimits:
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
class UpkeepSettings:
    """What runs in the background. Cleanup is off unless it has an interval."""

    fold_every_s: float = 5.0
    optimize_every_s: float = 30.0
    recover_every_s: float = 60.0
    cleanup_every_s: float | None = None
    keep: int | None = None
    older_than_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings of one server. Graphs that appear in `directory` later are served as well."""

    graphs: tuple[GraphSettings, ...] = ()
    directory: GraphSettings | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    allow_unauthenticated: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    limits: ServerLimits = ServerLimits()
    upkeep: UpkeepSettings = UpkeepSettings()


T = TypeVar("T", ServerLimits, UpkeepSettings)


def settings_for_address(address: str, read_only: bool = False, queries: Path | None = None) -> GraphSettings:
    """The graph, or the directory of graphs, at an address."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", address.rstrip("/").rpartition("/")[2]).strip("-._")[:64] or "graph"
    return GraphSettings(name, address, read_only, queries)


def is_directory_of_graphs(address: str) -> bool:
    """A local directory that is no graph itself."""
    return "://" not in address and Path(address).is_dir() and not (Path(address) / STAMP).exists()


def graphs_in(directory: GraphSettings) -> tuple[GraphSettings, ...]:
    """The graphs of a directory, named by their folders."""
    folders = sorted(Path(directory.uri).iterdir())
    return tuple(
        replace(directory, name=folder.name, uri=str(folder))
        for folder in folders
        if GRAPH_NAME.fullmatch(folder.name) and (folder / STAMP).is_file()
    )


def read_settings(path: Path) -> ServerSettings:
    """Settings from a TOML, YAML or JSON file. Relative paths are relative to the file."""
    document = _parse(path)
    _refuse_unknown(document, ("graphs", "server", "limits", "upkeep"), path, "")
    server = _section(document, "server", path)
    _refuse_unknown(server, (*_PLAIN, *_FILES, "directory"), path, "server.")
    directory = server.get("directory")
    server_values: dict[str, Any] = {
        **{name: server[name] for name in _PLAIN if name in server},
        **{name: path.parent / str(server[name]) for name in _FILES if server.get(name) is not None},
    }
    return replace(
        ServerSettings(
            graphs=tuple(_parse_graph(name, entry, path) for name, entry in _section(document, "graphs", path).items()),
            directory=settings_for_address(str(path.parent / str(directory))) if directory is not None else None,
            limits=_fill_defaults(ServerLimits(), _section(document, "limits", path), path, "limits."),
            upkeep=_parse_upkeep(_section(document, "upkeep", path), path),
        ),
        **server_values,
    )


def _parse_graph(name: str, value: Any, path: Path) -> GraphSettings:
    if not GRAPH_NAME.fullmatch(name):
        raise _wrong_setting(
            path, f"graphs.{name}", "is no name for a graph", "Use letters, digits, dots, dashes, underscores"
        )
    entry = {"uri": value} if isinstance(value, str) else value
    if not isinstance(entry, dict) or not isinstance(entry.get("uri"), str):
        raise _wrong_setting(path, f"graphs.{name}", "has no uri", "Give the address of the graph")
    _refuse_unknown(
        entry, [field.name for field in fields(GraphSettings) if field.name != "name"], path, f"graphs.{name}."
    )
    uri = entry["uri"]
    return GraphSettings(
        name,
        uri if "://" in uri else str(path.parent / uri),
        bool(entry.get("read_only", False)),
        path.parent / str(entry["queries"]) if entry.get("queries") else None,
        {str(key): str(value) for key, value in dict(entry.get("storage_options", {})).items()},
    )


def _parse_upkeep(section: Mapping[str, Any], path: Path) -> UpkeepSettings:
    ages = {"cleanup_every", "older_than"}
    _refuse_unknown(
        section, ("fold_every_s", "optimize_every_s", "recover_every_s", "keep", *sorted(ages)), path, "upkeep."
    )
    plain = {name: value for name, value in section.items() if name not in ages}
    seconds = {f"{name}_s": parse_age_s(str(section[name])) for name in sorted(ages & section.keys())}
    return _fill_defaults(UpkeepSettings(), {**plain, **seconds}, path, "upkeep.")


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the configuration {path} cannot be read: {error}", code="bad_config") from error
    try:
        if path.suffix == ".toml":
            document: Any = tomllib.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            document = yaml.safe_load(text)
        else:
            document = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{path} cannot be parsed: {error}", code="bad_config") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        raise InvalidInput(f"{path} cannot be parsed: {error}", code="bad_config") from error
    if not isinstance(document, dict):
        raise _wrong_setting(path, "", "is not a table of settings", "See the server's guide for an example")
    return document


def _section(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = document.get(name) or {}
    if not isinstance(section, dict):
        raise _wrong_setting(path, name, "is not a table of settings", "See the server's guide for an example")
    return section


def _fill_defaults(default: T, section: Mapping[str, Any], path: Path, prefix: str) -> T:
    names = [field.name for field in fields(default)]
    _refuse_unknown(section, names, path, prefix)
    for name, value in section.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise _wrong_setting(path, f"{prefix}{name}", f"is {value!r}", "Use a number above 0")
    return replace(default, **section)


def _refuse_unknown(section: Mapping[str, Any], names: Any, path: Path, prefix: str) -> None:
    for name in section:
        if name not in names:
            raise _wrong_setting(path, f"{prefix}{name}", "is not a setting", f"Known are {', '.join(names)}")


def _wrong_setting(path: Path, setting: str, fault: str, advice: str) -> InvalidInput:
    return InvalidInput(f"{path}: {f'{setting} ' if setting else ''}{fault}", code="bad_config", advice=advice)
