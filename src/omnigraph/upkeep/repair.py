"""`repair`: makes anew what is derived, and never guesses about data."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.log.branches import MAIN
from omnigraph.upkeep.optimize import Optimizer
from omnigraph.upkeep.verify.findings import Problem, VerifyReport
from omnigraph.upkeep.verify.verify import verify_graph


@dataclass(frozen=True)
class RepairReport:
    """`before` and `after` are what `verify` found; what is left needs a backup, or a person."""

    before: VerifyReport
    after: VerifyReport
    done: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return self.after.ok

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "repaired": list(self.done),
            "problems": [one.to_json() for one in self.after.problems],
        }


def repair(site: GraphRuntime, holder: str | None = None) -> RepairReport:
    """Complete registry tombstones and rebuild indexes; then look again."""
    before = verify_graph(site)
    done = [_bury(site, one) for one in before.errors if one.code == "tombstone_missing"]
    done += _rebuild(site, [one for one in before.errors if one.repairable and "index" in one.details], holder)
    return RepairReport(before, verify_graph(site) if done else before, tuple(done))


def _bury(site: GraphRuntime, problem: Problem) -> str:
    site.registry.tombstone(problem.details["entry"])
    return f"wrote {problem.where}"


def _rebuild(site: GraphRuntime, problems: list[Problem], holder: str | None) -> list[str]:
    """Indexes are rebuilt on every branch whose newest commit has the table; older commits keep theirs."""
    broken: dict[str, set[str]] = defaultdict(set)
    for one in problems:
        broken[one.details["table"]].add(one.details["index"])
    if not broken:
        return []
    done = []
    for name in sorted({MAIN, *site.branch_names()}):
        report = Optimizer(site, site.branch(name), holder, rebuild=broken).run()
        done += [f"rebuilt indexes of {one.table_key} on {name}" for one in report.tables if one.outcome == "done"]
    return done
