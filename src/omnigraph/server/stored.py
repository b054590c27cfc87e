"""Stored queries: a directory of `.gq` files, each query served by its name with typed parameters.

A file that changed is read again at the next request: no restart, and no watcher. A file that cannot be parsed takes
only its own queries away, and `problems` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.query.language.check_context import did_you_mean
from omnigraph.query.language.checked import CheckedQuery
from omnigraph.query.language.parse import parse_queries
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.schema.catalog import Catalog, PropType, Scalar

SUFFIX = ".gq"

_JSON_TYPES: Mapping[Scalar, dict[str, Any]] = {
    Scalar.STRING: {"type": "string"},
    Scalar.BOOL: {"type": "boolean"},
    Scalar.I32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    Scalar.I64: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    Scalar.U32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    Scalar.U64: {"type": "integer", "minimum": 0, "maximum": 2**64 - 1},
    Scalar.F32: {"type": "number"},
    Scalar.F64: {"type": "number"},
    Scalar.DATE: {"type": "string", "format": "date"},
    Scalar.DATETIME: {"type": "string", "format": "date-time"},
    Scalar.BLOB: {"type": "string", "contentEncoding": "base64"},
}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One stored query: its name, and the text of the file that it is in."""

    name: str
    source: str
    file: str


class StoredQueries:
    """The queries of one directory as they are now."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._files: dict[str, tuple[tuple[int, int], dict[str, StoredQuery], str | None]] = {}

    def get(self, name: str) -> StoredQuery:
        queries, _ = self.read()
        if name not in queries:
            raise NotFound(
                f"there is no stored query {name!r}",
                code="no_such_query",
                advice=did_you_mean(name, list(queries)) or "GET queries lists them",
                query=name,
            )
        return queries[name]

    def read(self) -> tuple[dict[str, StoredQuery], list[dict[str, str]]]:
        """All queries by name, and what is wrong with files. Only files that changed are read."""
        by_name: dict[str, StoredQuery] = {}
        problems: list[dict[str, str]] = []
        with self._lock:
            self._refresh()
            for file, (_, queries, problem) in sorted(self._files.items()):
                problems += [{"file": file, "error": problem}] if problem else []
                for name, query in queries.items():
                    if name in by_name:
                        problems.append({"file": file, "error": f"query `{name}` is in {by_name[name].file} already"})
                    else:
                        by_name[name] = query
        return by_name, problems

    def _refresh(self) -> None:
        folder = self._folder
        paths = sorted(folder.glob(f"*{SUFFIX}")) if folder is not None else []
        file_states = {path.name: (status.st_mtime_ns, status.st_size) for path in paths if (status := path.stat())}
        self._files = {name: file for name, file in self._files.items() if file_states.get(name) == file[0]}
        for path in paths:
            if path.name not in self._files:
                self._files[path.name] = (file_states[path.name], *_read_queries(path))


def _read_queries(path: Path) -> tuple[dict[str, StoredQuery], str | None]:
    try:
        source = path.read_bytes().decode("utf-8")
        names = [query.name.text for query in parse_queries(source, path.name)]
    except (OSError, UnicodeDecodeError, OmnigraphError) as error:
        return {}, str(error)
    return {name: StoredQuery(name, source, path.name) for name in names}, None


def describe_query(query: StoredQuery, catalog: Catalog) -> dict[str, Any]:
    """The query with its parameters and columns; with the error instead if it does not fit the schema."""
    try:
        checked = get_checked_query(query.source, query.name, catalog)
    except InvalidInput as error:
        return {"name": query.name, "file": query.file, "error": error.to_json()}
    return {
        "name": query.name,
        "file": query.file,
        "kind": "mutation" if checked.is_mutation else "query",
        "parameters": parameters_schema(checked),
        "columns": [{"name": column.name, "type": column.type_text} for column in checked.columns],
    }


def is_mutation(query: StoredQuery, catalog: Catalog) -> bool:
    return get_checked_query(query.source, query.name, catalog).is_mutation


def parameters_schema(checked: CheckedQuery) -> dict[str, Any]:
    """JSON schema of the object that the query takes as its parameters."""
    return {
        "type": "object",
        "properties": {param.name: _nullable(_json_type(param.type), param.nullable) for param in checked.params},
        "required": [param.name for param in checked.params if not param.nullable],
        "additionalProperties": False,
    }


def _json_type(prop_type: PropType) -> dict[str, Any]:
    if prop_type.vector_size is not None:
        return {
            "type": "array",
            "items": {"type": "number"},
            "minItems": prop_type.vector_size,
            "maxItems": prop_type.vector_size,
        }
    if prop_type.enum_values:
        return {"type": "string", "enum": list(prop_type.enum_values)}
    plain = dict(_JSON_TYPES[prop_type.scalar])
    return {"type": "array", "items": plain} if prop_type.is_list else plain


def _nullable(schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]} if nullable else schema
