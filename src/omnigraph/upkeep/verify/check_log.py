"""Records and registry: nothing is missing, damaged or out of its chain."""

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
from omnigraph.upkeep.verify.findings import Findings

_AT_ONCE = 64
_BRANCHES = "__branches/"
#: What a branch has before anybody wrote to it; such a stream may never have been registered at all.
_UNUSED = frozenset({"fork", "gc", "close"})


@dataclass
class StreamContent:
    """What a stream holds, as far as it can be read."""

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
        return (one for _, one in sorted(self.entries.items()) if isinstance(one, CommitRecord))


class LogCheck:
    """Reads every record once; the other checks work on what it has read."""

    def __init__(self, site: GraphRuntime, findings: Findings) -> None:
        self._site = site
        self._findings = findings
        self.streams: dict[str, StreamContent] = {}
        self.catalogs: dict[str, Catalog] = {}

    @property
    def heads(self) -> list[CommitRecord]:
        """The newest record of every stream that is not closed."""
        found = (one.newest for one in self.streams.values() if not one.is_closed)
        return [one for one in found if isinstance(one, CommitRecord)]

    def records(self) -> Iterator[CommitRecord]:
        for one in self.streams.values():
            yield from one.records()

    def run(self) -> None:
        store = self._site.backend.store
        keys = [one.key for one in store.list("__manifest/")]
        for stream, group in groupby(keys, key=lambda key: key.split("/")[1]):
            self.streams[stream] = self._read(stream, list(group))
        for content in self.streams.values():
            self._check_chain(content)
        self._check_schemas()
        self._check_registry()

    def _read(self, stream: str, keys: list[str]) -> StreamContent:
        content = StreamContent(stream)
        seqs: dict[int, str] = {}
        for key in keys:
            with self._findings.noticing("stray_object", key):
                seqs[seq_of_key(key)] = key
        content.newest_seq = max(seqs, default=-1)
        for seq in range(content.newest_seq + 1):
            if seq not in seqs:
                key = record_key(stream, seq)
                self._findings.error("record_missing", key, f"commit {stream}.{seq} is missing, newer ones exist")
        wanted = sorted(seqs)
        for at in range(0, len(wanted), _AT_ONCE):
            part = wanted[at : at + _AT_ONCE]
            found = self._site.backend.store.get_many([seqs[seq] for seq in part])
            for seq, data in zip(part, found, strict=True):
                self._decode(content, seq, seqs[seq], data)
        return content

    def _decode(self, content: StreamContent, seq: int, key: str, data: bytes | None) -> None:
        self._findings.checked["records"] += 1
        if data is None:
            self._findings.error("record_missing", key, f"commit {content.stream}.{seq} is listed and cannot be read")
            return
        with self._findings.noticing("record_damaged", key):
            entry = decode_record(data, key)
            if (entry.header.stream, entry.seq) != (content.stream, seq):
                raise Corruption(f"{key} holds the record {entry.commit_id}")
            content.entries[seq] = entry

    def _check_chain(self, content: StreamContent) -> None:
        previous: StreamEntry | None = None
        for seq in range(content.newest_seq + 1):
            entry = content.entries.get(seq)
            if entry is not None and previous is not None:
                for text in _chain_problems(previous, entry):
                    self._findings.error("chain_broken", record_key(content.stream, seq), text)
            if entry is not None:
                self._check_links(content, entry)
            previous = entry

    def _check_links(self, content: StreamContent, entry: StreamEntry) -> None:
        """Parents in other streams, and the headers that the record repeats."""
        where = record_key(content.stream, entry.seq)
        for parent in entry.header.parents:
            known = self.streams.get(parent.stream)
            there = known.entries.get(parent.seq) if known else None
            if known is None or parent.seq > known.newest_seq:
                text = f"{entry.commit_id} comes from {parent.commit_id}, which is not there"
                self._findings.error("parent_missing", where, text)
            elif there is not None and there.rid != parent.rid:
                text = f"{entry.commit_id} comes from another {parent.commit_id} than the one that is there"
                self._findings.error("parent_wrong", where, text)
        for header in entry.trail if isinstance(entry, CommitRecord) else ():
            there = content.entries.get(header.seq)
            if there is not None and _differ(there.header, header):
                text = f"{entry.commit_id} repeats a header of {header.commit_id} that is not its own"
                self._findings.error("trail_wrong", where, text)

    def _check_schemas(self) -> None:
        fresh = Catalogs(self._site.backend)  # what this process has in memory proves nothing
        for schema in sorted({record.schema for record in self.records()}):
            self._findings.checked["schemas"] += 1
            with self._findings.noticing("schema_damaged", f"schemas/{schema}.json"):
                self.catalogs[schema] = fresh.get(schema)

    def _check_registry(self) -> None:
        listed = [one.key for one in self._site.backend.store.list(_BRANCHES)]
        registered = {self._site.stamp.main_stream}
        for folder, group in groupby(listed, key=lambda key: key.rsplit("/", 1)[0]):
            entries = self._entries(folder, sorted(group))
            registered |= {entry.stream for entry in entries}
            if entries:
                self._check_newest(entries[-1], folder)
        for stream, content in self.streams.items():
            if stream not in registered:
                self._check_unregistered(content)

    def _entries(self, folder: str, keys: list[str]) -> list[BranchEntry]:
        found: list[BranchEntry] = []
        for number, key in enumerate(keys):
            expected = f"{folder}/{number:08d}.json"
            if key != expected:
                self._findings.error("registry_entry_missing", expected, f"{expected} is missing, newer ones exist")
                return found
            self._findings.checked["registry_entries"] += 1
            with self._findings.noticing("registry_damaged", key):
                entry = decode_entry(self._site.backend.store.get(key), folder)
                if entry.n != number or f"{_BRANCHES}{quote(entry.name.casefold(), safe='')}" != folder:
                    raise Corruption(f"{key} holds entry {entry.n} of branch {entry.name!r}")
                if found and not entry.alive and entry.stream != found[-1].stream:
                    raise Corruption(f"{key} is the tombstone of another stream than the entry before it")
                found.append(entry)
        return found

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
        kinds = {one.header.kind for one in content.entries.values()}
        name = next((one.header.branch for one in content.entries.values()), "?")
        where = f"__manifest/{content.stream}/"
        if kinds <= _UNUSED and content.is_closed:
            return  # cleanup has seen it
        if kinds <= _UNUSED:
            text = f"stream {content.stream} was made for branch {name!r} and never registered; cleanup closes it"
            self._findings.note("stream_unregistered", where, text)
        else:
            text = f"stream {content.stream} of branch {name!r} was written to, and no registry entry names it"
            self._findings.error("registry_entry_missing", where, text)


def _chain_problems(previous: StreamEntry, entry: StreamEntry) -> Iterator[str]:
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


def _differ(one: Header, other: Header) -> bool:
    return (one.rid, one.kind, one.parents, one.gen) != (other.rid, other.kind, other.parents, other.gen)
