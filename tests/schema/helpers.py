"""Deterministic identities, and catalogs without what is empty, for tests that people read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema

UPDATE = os.environ.get("OMNIGRAPH_GOLDEN") == "update"


def counter(start: int = 1) -> Callable[[], str]:
    """Tokens 00000001, 00000002, …"""
    numbers = itertools.count(start)
    return lambda: f"{next(numbers):08}"


def compile_text(source: str, previous: Catalog | None = None, start: int = 1) -> Catalog:
    return compile_schema(source, previous=previous, mint=counter(start))


def compact(catalog: Catalog) -> dict[str, Any]:
    """The compiled form, without the source and without empty values; types in the words of the language."""
    document = catalog.to_json()
    del document["source"]
    for raw, type_def in zip(document["types"], catalog.types, strict=True):
        for raw_property, prop in zip(raw["properties"], type_def.properties, strict=True):
            raw_property["type"] = f"{prop.type}?" if raw_property.pop("nullable") else str(prop.type)
        if not type_def.cardinality.is_bounded:
            del raw["cardinality"]
    cleaned = _without_empty(document)
    assert isinstance(cleaned, dict)
    return cleaned


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(item) for name, item in value.items() if item not in (None, [], ())}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def agrees(path: Path, text: str) -> bool:
    """Compare with a golden file, or write it when OMNIGRAPH_GOLDEN=update."""
    if UPDATE:
        path.write_text(text, encoding="utf-8", newline="\n")
    return path.exists() and path.read_text(encoding="utf-8") == text
