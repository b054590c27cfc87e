"""Violations that a constraint query returned, as rows that name the staged row they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.constraints.compile import Rule, violation_of
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.row_constraints import Violation
from omnigraph.spark.table_frames import ADDRESS, FRAGMENT_SHIFT, NOWHERE, OFFSET_MASK


def problem_rows(catalog: Catalog, rule: Rule, table: str, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """What each row of a rule's answer says: table, fragment, offset, id, and the problem as JSON."""
    found: list[list[Any]] = []
    for row in rows:
        violation = violation_of(catalog, rule, {name: plain(value) for name, value in row.items()})
        address = row[ADDRESS]
        place = [NOWHERE, NOWHERE] if address == NOWHERE else [address >> FRAGMENT_SHIFT, address & OFFSET_MASK]
        facts = {"code": violation.rule, "reason": violation.message, "property": _property(violation)}
        found.append([table, *place, violation.id, json.dumps(facts)])
    return found


def _property(one: Violation) -> str | None:
    return "id" if one.rule == "key_conflict" else one.property


def plain(value: Any) -> Any:
    """Spark has decimals where the graph has large unsigned numbers."""
    from decimal import Decimal

    return int(value) if isinstance(value, Decimal) else value
