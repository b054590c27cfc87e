"""`verify`: walks records, registry, pins, files and rows, and says exactly what is wrong and where.

It only reads. Everything it follows is immutable, so it may run beside writers; what it sees of a stream is what was
listed when it began. A commit that cleanup collects meanwhile is no damage.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.log.commit_record import CommitRecord, parse_commit_id
from omnigraph.upkeep.cleanup.leases import scan_leases
from omnigraph.upkeep.tags import TAGS, Tags
from omnigraph.upkeep.verify.check_log import LogCheck
from omnigraph.upkeep.verify.check_rows import RowCheck
from omnigraph.upkeep.verify.check_tables import TableCheck
from omnigraph.upkeep.verify.findings import COUNTED, Findings, VerifyReport


def verify_graph(site: GraphRuntime, *, deep: bool = False) -> VerifyReport:
    """The whole graph, all branches. `deep` also reads every data file and counts the rows of every commit."""
    findings = Findings()
    log = LogCheck(site, findings)
    log.run()
    # What this process has in memory proves nothing about the store.
    backend = replace(site.backend, tables=site.backend.tables.without_cache())
    try:
        tables = TableCheck(site, backend.tables, findings, log)
        tables.run()
        rows = RowCheck(backend, log.catalogs, findings)
        heads = {record.commit_id for record in log.heads}
        for record in log.records() if deep else log.heads:
            rows.check(record, whole=record.commit_id in heads)
        if deep:
            tables.read_everything()
    finally:
        backend.tables.close()
    _check_names(site, findings, {one.commit_id for one in log.records()})
    return VerifyReport(tuple(findings.problems), {name: findings.checked[name] for name in COUNTED}, deep)


def _check_names(site: GraphRuntime, findings: Findings, known: set[str]) -> None:
    """Tags and leases can be read, and what they protect is there."""
    with findings.noticing("tag_damaged", TAGS):
        for tag in Tags(site).list():
            findings.checked["tags"] += 1
            if tag.commit_id not in known and not _is_there(site, tag.commit_id):
                findings.error("tag_broken", tag.name, f"tag {tag.name!r} names {tag.commit_id}, which is not there")
    with findings.noticing("lease_damaged", "__leases/"):
        findings.checked["leases"] += sum(1 for _ in scan_leases(site))


def _is_there(site: GraphRuntime, commit_id: str) -> bool:
    stream, seq = parse_commit_id(commit_id)
    return isinstance(site.records(stream).get(seq), CommitRecord)
