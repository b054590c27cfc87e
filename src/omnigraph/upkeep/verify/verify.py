"""`verify_graph` checks records, registry, pins, files and rows, and reports what is wrong and where. `repair` mends.

`verify_graph` only reads. The objects that it follows are immutable, so it may run beside writers; of each stream it
checks the records that were listed when it began. A commit that cleanup collects meanwhile is no damage. `repair`
rebuilds only what can be derived: indexes and registry tombstones.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import CommitRecord, parse_commit_id
from omnigraph.upkeep.cleanup.leases import scan_leases
from omnigraph.upkeep.optimize import Optimizer
from omnigraph.upkeep.tags import TAGS, Tags
from omnigraph.upkeep.verify.check_log import LogCheck
from omnigraph.upkeep.verify.check_rows import RowCheck
from omnigraph.upkeep.verify.check_tables import TableCheck
from omnigraph.upkeep.verify.findings import COUNTED, Finding, Findings, VerifyReport


def verify_graph(runtime: GraphRuntime, *, deep: bool = False) -> VerifyReport:
    """Verifies all branches. `deep` also reads every data file and counts the rows of every commit."""
    findings = Findings()
    log = LogCheck(runtime, findings)
    log.run()
    # Tables are opened without the cache: what this process has in memory proves nothing about the store.
    backend = replace(runtime.backend, tables=runtime.backend.tables.without_cache())
    try:
        tables = TableCheck(runtime, backend.tables, findings, log)
        tables.run()
        rows = RowCheck(backend, log.catalogs, findings)
        heads = {record.commit_id for record in log.heads}
        for record in log.records() if deep else log.heads:
            rows.check(record, check_ends=record.commit_id in heads)
        if deep:
            tables.read_everything()
    finally:
        backend.tables.close()
    _check_tags_and_leases(runtime, findings, {commit_record.commit_id for commit_record in log.records()})
    return VerifyReport(tuple(findings.problems), {name: findings.checked[name] for name in COUNTED}, deep)


@dataclass(frozen=True)
class RepairReport:
    """`before` and `after` are the reports of `verify`; what `after` still lists needs a backup, or a person."""

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
            "problems": [finding.to_json() for finding in self.after.problems],
        }


def repair(runtime: GraphRuntime, holder: str | None = None) -> RepairReport:
    """Writes missing registry tombstones and rebuilds broken indexes, then verifies again. Never guesses data."""
    before = verify_graph(runtime)
    actions = [_write_tombstone(runtime, error) for error in before.errors if error.code == "tombstone_missing"]
    broken_indexes = [error for error in before.errors if error.repairable and "index" in error.details]
    actions += _rebuild_indexes(runtime, broken_indexes, holder)
    return RepairReport(before, verify_graph(runtime) if actions else before, tuple(actions))


def _write_tombstone(runtime: GraphRuntime, finding: Finding) -> str:
    runtime.registry.tombstone(finding.details["entry"])
    return f"wrote {finding.where}"


def _rebuild_indexes(runtime: GraphRuntime, findings: list[Finding], holder: str | None) -> list[str]:
    """Rebuilds indexes on every branch whose newest commit has the table; older commits keep their indexes."""
    broken: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        broken[finding.details["table"]].add(finding.details["index"])
    if not broken:
        return []
    actions = []
    for name in sorted({MAIN, *runtime.branch_names()}):
        report = Optimizer(runtime, runtime.branch(name), holder, rebuild=broken).run()
        actions += [
            f"rebuilt indexes of {table.table_key} on {name}" for table in report.tables if table.outcome == "done"
        ]
    return actions


def _check_tags_and_leases(runtime: GraphRuntime, findings: Findings, known_ids: set[str]) -> None:
    """Checks that tags and leases can be read, and that the commits of tags exist."""
    with findings.report_damage("tag_damaged", TAGS):
        for tag in Tags(runtime).list():
            findings.checked["tags"] += 1
            if tag.commit_id not in known_ids and not _commit_exists(runtime, tag.commit_id):
                findings.error("tag_broken", tag.name, f"tag {tag.name!r} names {tag.commit_id}, which is not there")
    with findings.report_damage("lease_damaged", "__leases/"):
        findings.checked["leases"] += sum(1 for _ in scan_leases(runtime))


def _commit_exists(runtime: GraphRuntime, commit_id: str) -> bool:
    stream, seq = parse_commit_id(commit_id)
    return isinstance(runtime.records(stream).get(seq), CommitRecord)
