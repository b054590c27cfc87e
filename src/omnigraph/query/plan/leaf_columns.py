"""Names of tables and columns in a statement: the protocol between the SQL of a plan and the engine that runs it.

The SQL never contains a name of a user, only these positional names. The table of a leaf holds

    Scan     key of the node, its properties, its searches
    Edges    key of the edge, keys [and ids] of both ends, its properties, its searches
    Pairs    keys [and ids] of both ends
    Reach    keys [and ids] of both ends
    Degrees  key [and id] of the node, the number of its pairs

A key identifies an entity within one query, in any coding; an id is the one that users see. A table may hold more
rows than its leaf selects, because the statement repeats every condition.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EntityColumns:
    """Columns that identify one entity of a leaf's row."""

    key: str
    id: str


#: The node of a `Scan` or `Degrees`, the edge of an `Edges`.
ENTITY = EntityColumns("k", "ki")
#: The ends of a hop.
LEFT_END = EntityColumns("l", "li")
RIGHT_END = EntityColumns("r", "ri")
#: The number of pairs of a node in a `Degrees`.
DEGREE = "w"


def leaf_table(position: int) -> str:
    """Table of the leaf at this position in `Statement.leaves`."""
    return f"t{position}"


def property_column(position: int) -> str:
    """Column of the property at this position in the leaf's `columns`."""
    return f"c{position}"


def search_column(position: int) -> str:
    """Column of the search at this position in the leaf's `searches`."""
    return f"x{position}"


def result_columns(position: int, parts: int) -> tuple[str, ...]:
    """SQL columns that make up the result column at this position: one, or one per part of a whole entity."""
    return (f"r{position}",) if parts == 1 else tuple(f"r{position}_{part}" for part in range(parts))


def parameter_name(position: int) -> str:
    """Placeholder of the value at this position among the parameters of a statement."""
    return f"p{position}"
