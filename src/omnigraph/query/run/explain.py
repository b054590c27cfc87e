"""The report of `explain`: plan, SQL, how each table was read, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.query.plan.nodes import Degrees, Leaf, Plan, Scan
from omnigraph.query.plan.show import show_hop, show_plan


@dataclass(frozen=True, slots=True)
class StepReport:
    """One table of the statement: what it contains, how its rows were read, and how many they are."""

    table: str
    reads: str
    access: str
    rows: int


@dataclass(frozen=True)
class Explanation:
    """How one query ran. `requests` counts those of the table store during this run; only `profile` adds seconds."""

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
        """Returns the report as text for people."""
        lines = [self.plan.rstrip("\n"), "", f"keys: {self.keys}"]
        lines += [f"{step.table}: {step.reads}: {step.access}, {step.rows} rows" for step in self.steps]
        lines += [f"result: {self.rows} rows", f"requests: {self.requests}, {self.read_bytes} bytes read"]
        if self.seconds is not None:
            lines += [f"{name}: {value * 1000:.1f} ms" for name, value in self.seconds.items()]
        return "\n".join([*lines, "", self.sql]) + "\n"

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"table": step.table, "reads": step.reads, "access": step.access, "rows": step.rows} for step in self.steps
        ]
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
    """Returns what a table of the statement contains."""
    match leaf:
        case Scan():
            return f"${leaf.var}: {leaf.type.name}"
        case Degrees():
            return f"number of {leaf.edge} at ${leaf.var}"
    return show_hop(leaf)


def annotate_plan(plan: Plan, steps: dict[Leaf, StepReport]) -> str:
    return show_plan(plan, {leaf: f"{step.table}: {step.access}, {step.rows} rows" for leaf, step in steps.items()})
