"""Statements and conditions as Python callers write them: the public module `omnigraph.statements`.

Statements name types and properties as users do; `check_statements` resolves them against the schema of the snapshot
they run on, since a schema change may land between two attempts. In conditions and in `values`, `id` and, for edges,
`from`/`to` (or `src`/`dst`) may be used like properties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

CompareOp = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "in"]


@dataclass(frozen=True, slots=True)
class Compare:
    """`property op value`. Null never matches."""

    name: str
    op: CompareOp
    value: Any


@dataclass(frozen=True, slots=True)
class NullTest:
    """`property is null`, or `is not null` when negated."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds."""

    parts: tuple[Condition, ...]


Condition = Compare | NullTest | And | Or


@dataclass(frozen=True, slots=True)
class InsertNode:
    """Upsert by key, or a new row if the type has none. `strict` makes an existing id a key conflict.

    A type without a key gets a fresh id, unless `values` holds `id`: then that row is inserted or updated.
    """

    type: str
    values: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class InsertEdge:
    """A new edge between two node ids; `values` may hold `id` to upsert that edge."""

    type: str
    source: str
    target: str
    values: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Set properties of every row that matches."""

    type: str
    values: Mapping[str, Any]
    where: Condition


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove every row that matches; a node takes its edges along."""

    type: str
    where: Condition


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace all rows of a type by these; edges give `from` and `to`. No cascade: what others need must stay."""

    type: str
    rows: Sequence[Mapping[str, Any]] = ()


Statement = InsertNode | InsertEdge | Update | Delete | Overwrite
