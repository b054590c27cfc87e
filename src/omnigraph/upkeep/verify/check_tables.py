"""Checks table versions: every pin opens, was built on the pin before it, and all its files exist in full."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.idempotency import OPS_TYPE
from omnigraph.errors import OmnigraphError, Unavailable
from omnigraph.log.commit_record import CommitRecord, Pin
from omnigraph.log.indexes import list_schema_indexes
from omnigraph.storage.lance import IndexSpec, PinnedTable, TableStore
from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.filters import equals_any
from omnigraph.storage.store import ObjectInfo
from omnigraph.upkeep.cleanup.mark import belongs_to_birth
from omnigraph.upkeep.verify.check_log import LogCheck
from omnigraph.upkeep.verify.findings import Findings

_BIRTH = "1"
_NO_PIN = Pin(None, 0, 0, 0, 0)
_BIRTH_MANIFEST = "18446744073709551614.manifest"
_NO_SUCH_TEXT = "no row has this value"
_LINEAR = re.compile(r"/_versions/\d+\.manifest$")


class TableCheck:
    """Checks records that were read before the tables are listed, so all files that they name must be listed."""

    def __init__(self, runtime: GraphRuntime, tables: TableStore, findings: Findings, log: LogCheck) -> None:
        self._runtime = runtime
        self._tables = tables
        self._findings = findings
        self._streams = log.streams
        self._catalogs = log.catalogs
        self._opened: dict[tuple[str, str], PinnedTable] = {}
        self._bad: set[tuple[str, str]] = set()
        self._missing: set[str] = set()
        self._files: dict[str, ObjectInfo] = {}
        self._folders: set[str] = set()

    def run(self) -> None:
        infos = self._runtime.backend.store.list("tables/")
        self._files = {info.key: info for info in infos}
        self._folders = {key[: at + 1] for key in self._files for at, char in enumerate(key) if char == "/"}
        for content in self._streams.values():
            previous: CommitRecord | None = None
            for record in content.records():
                before = previous if previous is not None and previous.seq == record.seq - 1 else None
                self._check_pins(record, before)
                previous = record
        self._check_heads()
        self._check_strays()
        self._note_unnamed()

    def read_everything(self) -> None:
        """Reads every row of every version, each data file once."""
        signatures: set[str] = set()
        for (table, version), pinned in self._opened.items():
            new = [fragment for fragment in pinned.metadata if _fragment_signature(fragment) not in signatures]
            signatures |= {_fragment_signature(fragment) for fragment in new}
            with self._findings.report_damage("data_damaged", f"tables/{table}/ version {version}", table=table):
                for number in (fragment.id for fragment in new):
                    self._read_fragment(pinned, number)

    def _read_fragment(self, pinned: PinnedTable, number: int) -> None:
        where = f"tables/{pinned.table}/ version {pinned.version} fragment {number}"
        with self._findings.report_damage("data_damaged", where, table=pinned.table):
            self._findings.checked["rows_read"] += pinned.read_fragment(number)
            self._findings.checked["fragments"] += 1

    def _check_pins(self, record: CommitRecord, previous: CommitRecord | None) -> None:
        for table, pin in record.pins.items():
            before = previous.pins.get(table, _NO_PIN) if previous else None
            if pin.version is None:
                if before is not None and before.version is not None:
                    self._findings.error("pin_lost", record.commit_id, f"{table} had a version and has none any more")
                continue
            pinned = self._open(record, table, pin.version)
            if pinned is not None and before is not None and before.version != pin.version:
                self._check_built_on(record, pinned, before.version)
        if previous is not None and record.kind != "schema":
            for table in previous.pins.keys() - record.pins.keys():
                self._findings.error("pin_lost", record.commit_id, f"{table} is no longer named")

    def _check_built_on(self, record: CommitRecord, pinned: PinnedTable, before: str | None) -> None:
        """Checks protocol rule H5, by which no change is lost: a pin moves only to a version that was built on it."""
        base: str | None = None
        with self._findings.report_damage("version_unreadable", _manifest_path(pinned), commit_id=record.commit_id):
            base = pinned.base_version() if pinned.version != _BIRTH else before
            expected_base = before if pinned.version == _BIRTH else before or _BIRTH
            if base != expected_base and not self._is_adopted(record, pinned):
                text = f"{record.commit_id} moved {pinned.table} from {before} to a version built on {base}"
                self._findings.error("pin_not_built_on", _manifest_path(pinned), text)

    def _is_adopted(self, record: CommitRecord, pinned: PinnedTable) -> bool:
        """Whether a merge adopted the version from its source; assumed if the source commit was collected."""
        if len(record.header.parents) < 2:
            return False
        source = record.header.parents[1]
        entry = self._runtime.records(source.stream).get(source.seq)
        if not isinstance(entry, CommitRecord):
            return entry is not None
        pin = entry.pins.get(pinned.table)
        return pin is not None and pin.version == pinned.version

    def _open(self, record: CommitRecord, table: str, version: str) -> PinnedTable | None:
        opened_before = self._opened.get((table, version))
        if opened_before is not None or (table, version) in self._bad:
            return opened_before
        self._findings.checked["versions"] += 1
        try:
            opened = self._tables.open(table, version)
            files = opened.files()
        except Unavailable:
            raise
        except OmnigraphError as error:
            self._bad.add((table, version))
            if not self._was_collected(record):
                where = f"tables/{table}/ version {version}"
                self._findings.error("version_unreadable", where, f"{record.commit_id} names it: {error.message}")
            return None
        self._opened[table, version] = opened
        self._check_files(record, opened, files)
        return opened

    def _check_files(self, record: CommitRecord, pinned: PinnedTable, files: Iterable[str]) -> None:
        sizes = {
            f"tables/{pinned.table}/data/{file.path}": file.file_size_bytes
            for fragment in pinned.metadata
            for file in fragment.files
        }
        for key in sorted(files):
            self._findings.checked["files"] += 1
            if key.endswith("/"):
                if "/_indices/" in key and key not in self._folders:
                    self._report_missing(record, pinned, key)
                continue
            info = self._files.get(key)
            if info is None:
                self._report_missing(record, pinned, key)
            elif sizes.get(key) not in (None, info.size_bytes):
                text = f"{record.commit_id} names it with {sizes[key]} bytes, it has {info.size_bytes}"
                self._findings.error("file_truncated", key, text, table=pinned.table)

    def _report_missing(self, record: CommitRecord, pinned: PinnedTable, key: str) -> None:
        if key in self._missing or self._was_collected(record):
            return
        self._missing.add(key)
        if "/_indices/" in key:
            uuid = key.rstrip("/").rsplit("/", 1)[-1]
            name = next((segment.name for segment in pinned.segments() if segment.uuid == uuid), uuid)
            self._index_problem("index_missing", key, pinned, name, f"{record.commit_id} names index {name}")
        else:
            self._findings.error("file_missing", key, f"{record.commit_id} names it", table=pinned.table)

    def _index_problem(self, code: str, where: str, pinned: PinnedTable, name: str, text: str) -> None:
        branches = sorted(
            content.newest.header.branch
            for content in self._streams.values()
            if isinstance(content.newest, CommitRecord)
            and not content.is_closed
            and content.newest.pins.get(pinned.table, _NO_PIN).version == pinned.version
        )
        # Only the newest version of a branch can be replaced by a version with a sound index.
        self._findings.error(code, where, text, repairable=bool(branches), table=pinned.table, index=name)

    def _check_heads(self) -> None:
        """Checks the indexes of the newest versions of all branches."""
        for content in self._streams.values():
            head = content.newest
            if not isinstance(head, CommitRecord) or content.is_closed:
                continue
            for table, pin in head.pins.items():
                pinned = self._opened.get((table, pin.version or ""))
                if pinned is not None and not any(key.startswith(f"tables/{table}/") for key in self._missing):
                    self._check_indexes(head, pinned)

    def _check_indexes(self, head: CommitRecord, pinned: PinnedTable) -> None:
        location = f"{_manifest_path(pinned)} indexes"
        if (location, "") in self._bad:
            return
        self._bad.add((location, ""))
        catalog = self._catalogs.get(head.schema)
        if catalog is None:
            return  # the schema was reported already
        type_def = OPS_TYPE if pinned.table == OPS_TYPE.id else catalog.by_id.get(pinned.table)
        if type_def is None:
            self._findings.error("table_unknown", pinned.table, f"{head.commit_id} names it, its schema does not")
            return
        for spec in list_schema_indexes(type_def, pinned):
            self._findings.checked["indexes"] += 1
            try:
                wrong = list(find_index_disagreements(pinned, [spec]))
            except Unavailable:
                raise
            except OmnigraphError as error:
                wrong = [error.message]
            for text in wrong[:1]:
                self._index_problem(
                    "index_wrong", f"{_manifest_path(pinned)} index {spec.name}", pinned, spec.name, text
                )

    def _check_strays(self) -> None:
        """Reports versions that another program wrote: here, a table has one version in Lance's own numbering."""
        for key in self._files:
            if _LINEAR.search(key) and not key.endswith(_BIRTH_MANIFEST):
                self._findings.error("stray_version", key, "written by something else than this program")

    def _note_unnamed(self) -> None:
        named_files = {key for pinned in self._opened.values() for key in pinned.files()}
        folders = {key for key in named_files if key.endswith("/")}
        unnamed = [
            info
            for key, info in self._files.items()
            if key not in named_files
            and not any(key[: at + 1] in folders for at, char in enumerate(key) if char == "/")
        ]
        loose = [info for info in unnamed if not belongs_to_birth(info.key)]
        if loose:
            size_bytes = sum(info.size_bytes for info in loose)
            text = f"{len(loose)} files, {size_bytes} bytes, are named by no commit; cleanup removes them in time"
            self._findings.note("unnamed_files", "tables/", text)

    def _was_collected(self, record: CommitRecord) -> bool:
        """Whether cleanup has collected the commit since it was read, so that its files may be missing."""
        return not isinstance(self._runtime.records(record.stream).get(record.seq), CommitRecord)


def find_index_disagreements(pinned: PinnedTable, specs: Sequence[IndexSpec], sample: int = 6) -> Iterator[str]:
    """Values for which a sorted index of this version finds other rows than a scan does.

    The values come from the first and the last rows of the table, together with one that no row has.
    """
    built = {info.name for info in pinned.indices()}
    for spec in specs:
        if spec.kind != "BTREE" or spec.name not in built:
            continue
        for value in _sample_values(pinned, spec.column, sample):
            with_index, without = (_find_ids(pinned, spec.column, value, indexed) for indexed in (True, False))
            if with_index != without:
                yield (
                    f"index {spec.name} finds {len(with_index)} rows where {spec.column} is {value!r}, "
                    f"the table has {len(without)}"
                )


def _sample_values(pinned: PinnedTable, column: str, count: int) -> list[Any]:
    """Distinct values of single rows at both ends of the table."""
    if not pinned.rows:
        return []
    positions = sorted({*range(min(count // 2, pinned.rows)), *range(max(0, pinned.rows - count // 2), pinned.rows)})
    with lance_call(f"read table {pinned.table}"):
        sampled = pinned.lance().take(positions, columns=[column])[column]
    # A float that is not a number does not equal itself, so no lookup can find it.
    values = [value for value in dict.fromkeys(sampled.to_pylist()) if value is not None and value == value]
    return [*values, _NO_SUCH_TEXT] if pa.types.is_string(sampled.type) else values


def _find_ids(pinned: PinnedTable, column: str, value: object, indexed: bool) -> list[str]:
    where = equals_any(pinned.schema.field(column), [value])
    with lance_call(f"look {column} of table {pinned.table} up"):
        scanner = pinned.lance().scanner(columns=["id"], filter=where, use_scalar_index=indexed)
        return sorted(scanner.to_table()["id"].to_pylist())


def _manifest_path(pinned: PinnedTable) -> str:
    return f"tables/{pinned.table}/{pinned.manifest_file}"


def _fragment_signature(fragment: object) -> str:
    files = getattr(fragment, "files", ())
    removed = getattr(fragment, "deletion_file", None)
    return f"{[str(file.path) for file in files]} {removed!r}"
