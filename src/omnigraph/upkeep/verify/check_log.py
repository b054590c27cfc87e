"""Checks commit records and the branch registry: none may be missing, damaged or out of its chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import quote

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption
from omnigraph.log.branches import BranchEntry, decode_entry
from omnigraph.log.commit_record import NON_LOGICAL, CommitRecord, Header, decode_record
from omnigraph.log.snapshot import Catalogs
from omnigraph.log.stream import StreamEntry, record_key, seq_of_key
from omnigraph.schema.catalog import Catalog
from omnigraph.upkeep.cleanup.retention import UNUSED_KINDS
from omnigraph.upkeep.verify.findings import Findings

_KEYS_PER_REQUEST = 64
_BRANCHES = "__branches/"


@dataclass
class StreamContent:
    """The records and stubs of a stream that can be read."""

    stream: str
    entries: dict[int, StreamEntry] = field(default_factory=dict)
    newest_seq: int = -1

    @property
    def newest(self) -> StreamEntry | None:
        return self.entries.get(self.newest_seq)

    @property
    def is_closed(self) -> bool:
        return self.newest is not None and self.newest.header.kind == "close"

    def records(self) -> Iterator[CommitRecord]:
        return (entry for _, entry in sorted(self.entries.items()) if isinstance(entry, CommitRecord))


class LogCheck:
    """Reads every record once. The other checks use the records that it has read."""

    def __init__(self, runtime: GraphRuntime, findings: Findings) -> None:
        self._runtime = runtime
        self._findings = findings
        self.streams: dict[str, StreamContent] = {}
        self.catalogs: dict[str, Catalog] = {}

    @property
    def heads(self) -> list[CommitRecord]:
        """The newest record of every stream that is not closed."""
        newest = (content.newest for content in self.streams.values() if not content.is_closed)
        return [entry for entry in newest if isinstance(entry, CommitRecord)]

    def records(self) -> Iterator[CommitRecord]:
        for content in self.streams.values():
            yield from content.records()

    def run(self) -> None:
        store = self._runtime.backend.store
        keys = [info.key for info in store.list("__manifest/")]
        for stream, group in groupby(keys, key=lambda key: key.split("/")[1]):
            self.streams[stream] = self._read_stream(stream, list(group))
        for content in self.streams.values():
            self._check_chain(content)
        self._check_schemas()
        self._check_registry()

    def _read_stream(self, stream: str, keys: list[str]) -> StreamContent:
        content = StreamContent(stream)
        seqs: dict[int, str] = {}
        for key in keys:
            with self._findings.report_damage("stray_object", key):
                seqs[seq_of_key(key)] = key
        content.newest_seq = max(seqs, default=-1)
        for seq in range(content.newest_seq + 1):
            if seq not in seqs:
                key = record_key(stream, seq)
                self._findings.error("record_missing", key, f"commit {stream}.{seq} is missing, newer ones exist")
        all_seqs = sorted(seqs)
        for at in range(0, len(all_seqs), _KEYS_PER_REQUEST):
            part = all_seqs[at : at + _KEYS_PER_REQUEST]
            contents = self._runtime.backend.store.get_many([seqs[seq] for seq in part])
            for seq, data in zip(part, contents, strict=True):
                self._decode(content, seq, seqs[seq], data)
        return content

    def _decode(self, content: StreamContent, seq: int, key: str, data: bytes | None) -> None:
        self._findings.checked["records"] += 1
        if data is None:
            self._findings.error("record_missing", key, f"commit {content.stream}.{seq} is listed and cannot be read")
            return
        with self._findings.report_damage("record_damaged", key):
            entry = decode_record(data, key)
            if (entry.header.stream, entry.seq) != (content.stream, seq):
                raise Corruption(f"{key} holds the record {entry.commit_id}")
            content.entries[seq] = entry

    def _check_chain(self, content: StreamContent) -> None:
        previous: StreamEntry | None = None
        for seq in range(content.newest_seq + 1):
            entry = content.entries.get(seq)
            if entry is not None and previous is not None:
                for text in _describe_chain_breaks(previous, entry):
                    self._findings.error("chain_broken", record_key(content.stream, seq), text)
            if entry is not None:
                self._check_links(content, entry)
            previous = entry

    def _check_links(self, content: StreamContent, entry: StreamEntry) -> None:
        """Checks parents in other streams, and the headers of earlier records in the trail."""
        where = record_key(content.stream, entry.seq)
        for parent in entry.header.parents:
            parent_content = self.streams.get(parent.stream)
            parent_entry = parent_content.entries.get(parent.seq) if parent_content else None
            if parent_content is None or parent.seq > parent_content.newest_seq:
                text = f"{entry.commit_id} comes from {parent.commit_id}, which is not there"
                self._findings.error("parent_missing", where, text)
            elif parent_entry is not None and parent_entry.rid != parent.rid:
                text = f"{entry.commit_id} comes from another {parent.commit_id} than the one that is there"
                self._findings.error("parent_wrong", where, text)
        for header in entry.trail if isinstance(entry, CommitRecord) else ():
            earlier = content.entries.get(header.seq)
            if earlier is not None and _headers_differ(earlier.header, header):
                text = f"{entry.commit_id} repeats a header of {header.commit_id} that is not its own"
                self._findings.error("trail_wrong", where, text)

    def _check_schemas(self) -> None:
        fresh = Catalogs(self._runtime.backend)  # without the cache: what this process has in memory proves nothing
        for schema in sorted({record.schema for record in self.records()}):
            self._findings.checked["schemas"] += 1
            with self._findings.report_damage("schema_damaged", f"schemas/{schema}.json"):
                self.catalogs[schema] = fresh.get(schema)

    def _check_registry(self) -> None:
        keys = [info.key for info in self._runtime.backend.store.list(_BRANCHES)]
        registered = {self._runtime.stamp.main_stream}
        for folder, group in groupby(keys, key=lambda key: key.rsplit("/", 1)[0]):
            entries = self._read_registry_entries(folder, sorted(group))
            registered |= {entry.stream for entry in entries}
            if entries:
                self._check_newest(entries[-1], folder)
        for stream, content in self.streams.items():
            if stream not in registered:
                self._check_unregistered(content)

    def _read_registry_entries(self, folder: str, keys: list[str]) -> list[BranchEntry]:
        entries: list[BranchEntry] = []
        for number, key in enumerate(keys):
            expected = f"{folder}/{number:08d}.json"
            if key != expected:
                self._findings.error("registry_entry_missing", expected, f"{expected} is missing, newer ones exist")
                return entries
            self._findings.checked["registry_entries"] += 1
            with self._findings.report_damage("registry_damaged", key):
                entry = decode_entry(self._runtime.backend.store.get(key), folder)
                if entry.n != number or f"{_BRANCHES}{quote(entry.name.casefold(), safe='')}" != folder:
                    raise Corruption(f"{key} holds entry {entry.n} of branch {entry.name!r}")
                if entries and not entry.alive and entry.stream != entries[-1].stream:
                    raise Corruption(f"{key} is the tombstone of another stream than the entry before it")
                entries.append(entry)
        return entries

    def _check_newest(self, entry: BranchEntry, folder: str) -> None:
        content = self.streams.get(entry.stream)
        if content is None and entry.alive:
            text = f"branch {entry.name!r} is registered, and its stream {entry.stream} has no record"
            self._findings.error("stream_missing", f"{folder}/{entry.n:08d}.json", text)
        elif entry.alive and content is not None and content.is_closed:
            text = f"branch {entry.name!r} was deleted, and the registry does not say so"
            self._findings.error(
                "tombstone_missing", f"{folder}/{entry.n + 1:08d}.json", text, repairable=True, entry=entry
            )

    def _check_unregistered(self, content: StreamContent) -> None:
        kinds = {entry.header.kind for entry in content.entries.values()}
        name = next((entry.header.branch for entry in content.entries.values()), "?")
        where = f"__manifest/{content.stream}/"
        if kinds <= UNUSED_KINDS and content.is_closed:
            return  # cleanup has closed it
        if kinds <= UNUSED_KINDS:
            text = f"stream {content.stream} was made for branch {name!r} and never registered; cleanup closes it"
            self._findings.note("stream_unregistered", where, text)
        else:
            text = f"stream {content.stream} of branch {name!r} was written to, and no registry entry names it"
            self._findings.error("registry_entry_missing", where, text)


def _describe_chain_breaks(previous: StreamEntry, entry: StreamEntry) -> Iterator[str]:
    header = entry.header
    if header.parents[:1] != (previous.header.ref,):
        yield f"{entry.commit_id} does not follow {previous.commit_id}"
    if header.gen <= previous.header.gen:
        yield f"{entry.commit_id} has generation {header.gen} after {previous.header.gen}"
    if header.created_at < previous.header.created_at:
        yield f"{entry.commit_id} is older than the commit before it"
    if previous.header.kind == "close":
        yield f"{entry.commit_id} comes after the end of its branch"
    if not (isinstance(entry, CommitRecord) and isinstance(previous, CommitRecord)):
        return
    if entry.content_seq != (previous.content_seq if header.kind in NON_LOGICAL else entry.seq):
        yield f"{entry.commit_id} says that {entry.content_seq} was the last change"
    if header.kind != "epoch" and entry.epoch != previous.epoch:
        yield f"{entry.commit_id} changes the writer's epoch and is no claim"


def _headers_differ(first: Header, second: Header) -> bool:
    return (first.rid, first.kind, first.parents, first.gen) != (second.rid, second.kind, second.parents, second.gen)
