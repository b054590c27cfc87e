"""What a query did: its plan, its SQL, how each table was read, what that cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.query.plan.nodes import Degrees, Leaf, Plan, Scan
from omnigraph.query.plan.show import show_hop, show_plan


@dataclass(frozen=True, slots=True)
class StepReport:
    """One table of the statement: what it stands for, how it was filled, and with how many rows."""

    table: str
    reads: str
    access: str
    rows: int


@dataclass(frozen=True)
class Explanation:
    """`requests` are those of the table store during this run. Seconds are filled by `profile` only."""

    plan: str
    sql: str
    spark_sql: str
    keys: str
    steps: tuple[StepReport, ...]
    rows: int
    requests: int
    read_bytes: int
    commit_id: str
    seconds: dict[str, float] | None = None

    def render(self) -> str:
        """For people."""
        lines = [self.plan.rstrip("\n"), "", f"keys: {self.keys}"]
        lines += [f"{one.table}: {one.reads}: {one.access}, {one.rows} rows" for one in self.steps]
        lines += [f"result: {self.rows} rows", f"requests: {self.requests}, {self.read_bytes} bytes read"]
        if self.seconds is not None:
            lines += [f"{name}: {value * 1000:.1f} ms" for name, value in self.seconds.items()]
        return "\n".join([*lines, "", self.sql]) + "\n"

    def to_json(self) -> dict[str, Any]:
        steps = [{"table": one.table, "reads": one.reads, "access": one.access, "rows": one.rows} for one in self.steps]
        return {
            "commit_id": self.commit_id,
            "plan": self.plan,
            "sql": self.sql,
            "keys": self.keys,
            "steps": steps,
            "rows": self.rows,
            "requests": self.requests,
            "read_bytes": self.read_bytes,
            **({"seconds": self.seconds} if self.seconds is not None else {}),
        }


def describe_leaf(leaf: Leaf) -> str:
    """What a table of the statement stands for."""
    match leaf:
        case Scan():
            return f"${leaf.var}: {leaf.type.name}"
        case Degrees():
            return f"number of {leaf.edge} at ${leaf.var}"
    return show_hop(leaf)


def annotate_plan(plan: Plan, steps: dict[Leaf, StepReport]) -> str:
    return show_plan(plan, {leaf: f"{one.table}: {one.access}, {one.rows} rows" for leaf, one in steps.items()})
