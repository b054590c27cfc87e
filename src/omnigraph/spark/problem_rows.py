"""Violations that a constraint query returned, as rows that name the staged row they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.constraints.compile import Constraint, describe_violation
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.row_constraints import Violation
from omnigraph.storage.lance.row_address import NO_ADDRESS, ROW_ADDRESS, split_address


def problem_rows(catalog: Catalog, rule: Constraint, table: str, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """What each row of a rule's answer says: table, fragment, offset, id, and the problem as JSON."""
    found: list[list[Any]] = []
    for row in rows:
        violation = describe_violation(catalog, rule, {name: plain(value) for name, value in row.items()})
        address = row[ROW_ADDRESS]
        place = (NO_ADDRESS, NO_ADDRESS) if address == NO_ADDRESS else split_address(address)
        facts = {"code": violation.rule, "reason": violation.message, "property": _property(violation)}
        found.append([table, *place, violation.id, json.dumps(facts)])
    return found


def _property(one: Violation) -> str | None:
    return "id" if one.rule == "key_conflict" else one.property


def plain(value: Any) -> Any:
    """Spark has decimals where the graph has large unsigned numbers."""
    from decimal import Decimal

    return int(value) if isinstance(value, Decimal) else value
