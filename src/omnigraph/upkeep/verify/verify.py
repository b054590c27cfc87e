"""`verify_graph` checks records, registry, pins, files and rows, and reports what is wrong and where. `repair` mends.

`verify_graph` only reads. The objects that it follows are immutable, so it may run beside writers; of each stream it
checks the records that were listed when it began. A commit that cleanup collects meanwhile is no damage. `repair`
rebuilds only what can be derived: indexes and end entries of branches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import OPS_SCHEMA, OPS_TYPE
from omnigraph.errors import OmnigraphError, Unavailable
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import CommitRecord, parse_commit_id
from omnigraph.log.overlay import DEL, RID, OverlayTable
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.table_view import TableView
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.storage.backend import Backend
from omnigraph.upkeep.cleanup.leases import scan_leases
from omnigraph.upkeep.optimize import Optimizer
from omnigraph.upkeep.tags import TAGS, Tags
from omnigraph.upkeep.verify.check_log import LogCheck
from omnigraph.upkeep.verify.check_tables import TableCheck
from omnigraph.upkeep.verify.findings import COUNTED, Finding, Findings, VerifyReport

_MAX_EXAMPLES = 5


class RowCheck:
    """Checks whole commits. A table state that several commits share is checked once."""

    def __init__(self, backend: Backend, catalogs: Mapping[str, Catalog], findings: Findings) -> None:
        self._backend = backend
        self._catalogs = catalogs
        self._findings = findings
        self._counted: dict[tuple[str, str | None, bytes], int] = {}

    def check(self, record: CommitRecord, *, check_ends: bool) -> None:
        """Checks row counts and overlays of a commit, and with `check_ends` the ends of its edges."""
        catalog = self._catalogs.get(record.schema)
        if catalog is None:
            return  # the schema was reported already
        snapshot = Snapshot(self._backend, record, catalog)
        self._findings.checked["commits"] += 1
        for table in sorted(record.overlay.keys() | record.pins.keys()):
            type_def = OPS_TYPE if table == OPS_TYPE.id else snapshot.catalog.by_id.get(table)
            if type_def is None:
                self._findings.error("table_unknown", table, f"{record.commit_id} holds it, its schema does not")
                continue
            self._check_table(snapshot, type_def)
        for type_def in snapshot.catalog.types if check_ends else ():
            if type_def.kind == "edge":
                self._check_ends(snapshot, type_def)

    def _check_table(self, snapshot: Snapshot, type_def: TypeDef) -> None:
        record = snapshot.record
        pin = record.pins.get(type_def.id)
        where = f"{record.commit_id} {type_def.table_key}"
        overlay = record.overlay.get(type_def.id)
        if pin is None:
            self._findings.error("pin_missing", where, "the commit holds rows of a table that it does not name")
            return
        if overlay is not None and not self._check_overlay(overlay, type_def, where):
            return
        state = (type_def.id, pin.version, overlay.as_bytes if overlay else b"")
        if state not in self._counted:
            row_count = self._count(snapshot, type_def, where)
            if row_count is None:
                return
            self._counted[state] = row_count
        if self._counted[state] != pin.rows:
            text = f"the commit says {pin.rows} rows, there are {self._counted[state]}"
            self._findings.error("rows_wrong", where, text)

    def _check_overlay(self, overlay: OverlayTable, type_def: TypeDef, where: str) -> bool:
        table = overlay.table
        schema = arrow_schema(type_def)
        wrong = [
            field.name
            for field in table.schema
            if field.name not in (RID, DEL)
            and (field.name not in schema.names or schema.field(field.name).type != field.type)
        ]
        repeated = _find_repeated(table["id"])
        if wrong:
            self._findings.error("overlay_wrong", where, f"the overlay's columns {wrong} do not fit the schema")
        if repeated:
            self._findings.error("overlay_wrong", where, f"the overlay holds {repeated} twice")
        if table[RID].null_count or table[DEL].null_count:
            self._findings.error("overlay_wrong", where, "the overlay has entries without their origin")
        return not wrong and not repeated

    def _count(self, snapshot: Snapshot, type_def: TypeDef, where: str) -> int | None:
        ids = self._column(snapshot, type_def, "id", where)
        if ids is None:
            return None
        self._findings.checked["rows"] += len(ids)
        repeated = _find_repeated(ids)
        if repeated:
            self._findings.error("id_twice", where, f"the table holds {repeated} twice")
        return len(ids)

    def _check_ends(self, snapshot: Snapshot, type_def: TypeDef) -> None:
        where = f"{snapshot.commit_id} {type_def.table_key}"
        for column, end in (("src", type_def.source), ("dst", type_def.target)):
            node = snapshot.catalog.by_id.get(end or "")
            if node is None:
                self._findings.error("schema_damaged", where, f"its {column} has no type")
                continue
            ends, alive = self._column(snapshot, type_def, column, where), self._column(snapshot, node, "id", where)
            if ends is None or alive is None:
                continue
            lost = ends.filter(pc.invert(pc.is_in(ends, alive.combine_chunks()))).unique().to_pylist()
            if lost:
                examples = ", ".join(map(repr, lost[:_MAX_EXAMPLES]))
                text = f"edges point to {len(lost)} rows of {node.table_key} that are not there: {examples}"
                self._findings.error("edge_end_missing", where, text)

    def _column(self, snapshot: Snapshot, type_def: TypeDef, column: str, where: str) -> pa.ChunkedArray | None:
        try:
            return _open_view(snapshot, type_def).scan([column])[column]
        except Unavailable:
            raise
        except OmnigraphError as error:
            self._findings.error("rows_unreadable", where, error.message)
            return None


def _open_view(snapshot: Snapshot, type_def: TypeDef) -> TableView:
    return snapshot.view_of(type_def.id, OPS_SCHEMA) if type_def.id == OPS_TYPE.id else snapshot.view(type_def)


def _find_repeated(ids: pa.ChunkedArray) -> list[str]:
    if len(ids.unique()) == len(ids):
        return []
    return [row_id for row_id, count in Counter(ids.to_pylist()).most_common(_MAX_EXAMPLES) if count > 1]


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
    """Writes missing end entries of branches and rebuilds broken indexes, then verifies again. Never guesses data."""
    before = verify_graph(runtime)
    actions = [_write_end_entry(runtime, error) for error in before.errors if error.code == "tombstone_missing"]
    broken_indexes = [error for error in before.errors if error.repairable and "index" in error.details]
    actions += _rebuild_indexes(runtime, broken_indexes, holder)
    return RepairReport(before, verify_graph(runtime) if actions else before, tuple(actions))


def _write_end_entry(runtime: GraphRuntime, finding: Finding) -> str:
    runtime.registry.end_life(finding.details["entry"])
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
