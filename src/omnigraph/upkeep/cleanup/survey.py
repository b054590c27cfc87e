"""What is there and what protects it: streams, tags, leases, fork points, merge bases, intents, archived bodies.

Everything here only reads. One thing that cannot be read ends it with an error: cleanup must not guess what a root
protects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import combinations, groupby

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, SnapshotExpired
from omnigraph.intents.states import list_intents
from omnigraph.log.branches import decode_entry
from omnigraph.log.commit_record import CommitRecord, Stub, decode_record, no_such_commit, parse_commit_id
from omnigraph.log.lineage import RecordCache, merge_bases
from omnigraph.log.stream import StreamEntry, record_key, seq_of_key
from omnigraph.storage.store import ObjectInfo
from omnigraph.upkeep.cleanup.leases import Lease, holds, scan_leases
from omnigraph.upkeep.cleanup.retention import UNUSED
from omnigraph.upkeep.cleanup.trash import Progress
from omnigraph.upkeep.tags import Tags

ARCHIVE = "__archive/"
_BRANCHES = "__branches/"
_AT_ONCE = 64

Known = dict[tuple[str, int], StreamEntry]


@dataclass
class StreamState:
    """One stream as it was listed; `entries` are those that had to be read, collected ones among them."""

    stream: str
    infos: dict[int, ObjectInfo]
    entries: dict[int, StreamEntry]
    registration: str  # "live", "buried" or "none"

    @property
    def newest_seq(self) -> int:
        return max(self.infos)

    @property
    def newest(self) -> StreamEntry:
        return self.entries[self.newest_seq]

    @property
    def branch(self) -> str:
        return self.newest.header.branch

    @property
    def is_closed(self) -> bool:
        return self.newest.header.kind == "close"

    @property
    def is_unused(self) -> bool:
        return all(one.header.kind in UNUSED for one in self.entries.values())

    @property
    def is_unowned(self) -> bool:
        """No branch stands on it, and that is no damage."""
        return self.registration == "buried" or (self.registration == "none" and self.is_unused)

    def records(self) -> Iterator[CommitRecord]:
        return (one for _, one in sorted(self.entries.items()) if isinstance(one, CommitRecord))

    def progress(self) -> Progress:
        """Everything that was read in full, as the next run wants to know it."""
        whole = {one.seq for one in self.records()}
        below = self.newest_seq + 1
        while below - 1 in whole:
            below -= 1
        return Progress(below, tuple(sorted(seq for seq in whole if seq < below)))


@dataclass(frozen=True, slots=True)
class Intent:
    """A bulk operation that has not ended; nothing that it wrote is older than its beginning."""

    id: str
    opened_at: datetime


@dataclass
class Survey:
    """`named` maps protected commits, by id, to why they are protected."""

    streams: dict[str, StreamState]
    named: dict[str, str]
    leases_over: list[ObjectInfo]
    intents: list[Intent]
    archived: dict[str, ObjectInfo]  # by commit id
    intents_over: list[ObjectInfo] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # named, and collected long ago
    stillborn: set[str] = field(default_factory=set)
    """Streams whose source was collected before they began: their creation was undone, or died before that (H33)."""

    def heads(self) -> list[CommitRecord]:
        """The newest record of every stream on which somebody might still write."""
        found = (one.newest for one in self.streams.values() if not one.is_closed)
        return [one for one in found if isinstance(one, CommitRecord)]

    def known(self) -> Known:
        """Records in full, which never change; a stub may be replaced by its body again."""
        return {(stream, record.seq): record for stream, state in self.streams.items() for record in state.records()}


def take_survey(site: GraphRuntime, progress: Mapping[str, Progress], known: Known, store_now: datetime) -> Survey:
    """Read what must be known. `progress` and `known` only save requests."""
    registrations = _registrations(site)
    archived = _archived(site)
    streams = {
        stream: _stream(site, stream, infos, registrations.get(stream, "none"), progress.get(stream), known)
        for stream, infos in _listed_streams(site)
    }
    _read_archived(site, streams, archived)
    named = {tag.commit_id: f"tag {tag.name}" for tag in Tags(site).scan()}
    over: list[ObjectInfo] = []
    for lease, info in scan_leases(site):
        if holds(lease, info, store_now):
            named.setdefault(lease.commit_id, _lease_name(lease))
        else:
            over.append(info)
    intents = list_intents(site.backend.store)
    # Which of those without an end are still alive is not asked: their files are few and can wait.
    pending = [Intent(one.op_id, one.opening_time) for one in intents if one.has_opening and not one.has_ended]
    ended = [info for one in intents if one.has_ended or not one.has_opening for info in one.objects.values()]
    survey = Survey(streams, named, over, pending, archived, ended)
    for stream, state in streams.items():
        for parent in state.entries[0].header.parents:
            if state.is_unused and _is_gone(site, survey, parent.commit_id):
                survey.stillborn.add(stream)
            elif not state.is_closed:
                named.setdefault(parent.commit_id, f"start of branch {state.branch}")
    for commit_id, why in _bases(site, streams, survey.heads()):
        named.setdefault(commit_id, why)
    _read_named(site, survey)
    return survey


def archive_key(stream: str, seq: int) -> str:
    return f"{ARCHIVE}{stream}/{seq:016d}.rec"


def archived_body(site: GraphRuntime, info: ObjectInfo) -> CommitRecord:
    found = decode_record(site.backend.store.get(info.key), info.key)
    if not isinstance(found, CommitRecord):
        raise Corruption(f"{info.key} holds no commit", advice="Run `omnigraph verify`", key=info.key)
    return found


def _listed_streams(site: GraphRuntime) -> Iterator[tuple[str, dict[int, ObjectInfo]]]:
    listed = site.backend.store.list("__manifest/")
    for stream, group in groupby(listed, key=lambda one: one.key.split("/")[1]):
        infos = {seq_of_key(one.key): one for one in group}
        if sorted(infos) != list(range(len(infos))):
            missing = next(seq for seq in range(len(infos)) if seq not in infos)
            key = record_key(stream, missing)
            raise Corruption(f"{key} is missing, newer records exist", advice="Run `omnigraph verify`", key=key)
        yield stream, infos


def _stream(
    site: GraphRuntime,
    stream: str,
    infos: dict[int, ObjectInfo],
    registration: str,
    progress: Progress | None,
    known: Known,
) -> StreamState:
    """All records that were not collected before, and the first one."""
    below, kept = (progress.below, progress.kept) if progress else (0, ())
    wanted = sorted({0, max(infos), *(seq for seq in kept if seq in infos), *(seq for seq in infos if seq >= below)})
    entries = {seq: known[stream, seq] for seq in wanted if (stream, seq) in known}
    entries |= _read(site, stream, [seq for seq in wanted if seq not in entries])
    # A listing may lag behind what was acknowledged.
    for later in site.records(stream).after_many(max(infos)):
        entries[later.seq] = later
        infos[later.seq] = site.backend.store.head(record_key(stream, later.seq))
    return StreamState(stream, infos, entries, registration)


def _read(site: GraphRuntime, stream: str, seqs: list[int]) -> dict[int, StreamEntry]:
    found: dict[int, StreamEntry] = {}
    for at in range(0, len(seqs), _AT_ONCE):
        part = seqs[at : at + _AT_ONCE]
        for seq, entry in zip(part, site.records(stream).get_many(part), strict=True):
            if entry is None:
                key = record_key(stream, seq)
                raise Corruption(f"{key} is listed and missing", advice="Run `omnigraph verify`", key=key)
            found[seq] = entry
    return found


def _registrations(site: GraphRuntime) -> dict[str, str]:
    """Every stream that the registry names, `live` or `buried`."""
    keys = [one.key for one in site.backend.store.list(_BRANCHES)]
    found: dict[str, str] = {}
    for key, data in zip(keys, site.backend.store.get_many(keys), strict=True):
        entry = decode_entry(data or b"", key)
        if entry.alive:
            found.setdefault(entry.stream, "live")
        else:
            found[entry.stream] = "buried"
    found[site.stamp.main_stream] = "live"
    return found


def _archived(site: GraphRuntime) -> dict[str, ObjectInfo]:
    found = {}
    for one in site.backend.store.list(ARCHIVE):
        _, stream, name = one.key.split("/")
        found[f"{stream}.{int(name.removesuffix('.rec'))}"] = one
    return found


def _read_archived(site: GraphRuntime, streams: Mapping[str, StreamState], archived: Iterable[str]) -> None:
    """What stands under the names of archived commits now: a run that died may have brought one back untold."""
    wanted: dict[str, list[int]] = {}
    for stream, seq in map(parse_commit_id, archived):
        if stream in streams and seq in streams[stream].infos and seq not in streams[stream].entries:
            wanted.setdefault(stream, []).append(seq)
    for stream, seqs in wanted.items():
        streams[stream].entries |= _read(site, stream, seqs)


def _bases(
    site: GraphRuntime, streams: Mapping[str, StreamState], heads: Iterable[CommitRecord]
) -> Iterator[tuple[str, str]]:
    """What the next merge of any two branches would start from."""
    records = RecordCache(site.records, (entry for state in streams.values() for entry in state.entries.values()))
    for one, other in combinations(heads, 2):
        try:
            for base in _all_bases(records, [one], other):
                yield base.commit_id, f"merge base of {one.header.branch} and {other.header.branch}"
        except SnapshotExpired:
            continue  # these two were given up when it was collected


def _all_bases(records: RecordCache, ours: Sequence[CommitRecord], theirs: CommitRecord) -> Iterator[CommitRecord]:
    """Merge bases; where there are several, also those on which they are made one, as `history.base` does it."""
    bases = merge_bases(records, ours, theirs)
    yield from bases
    for number in range(1, len(bases)):
        yield from _all_bases(records, bases[:number], bases[number])


def _read_named(site: GraphRuntime, survey: Survey) -> None:
    """Make sure that every protected commit was read, whatever an earlier run believed to be a stub."""
    for commit_id in list(survey.named):
        if _is_gone(site, survey, commit_id):
            survey.lost[commit_id] = survey.named.pop(commit_id)


def _is_gone(site: GraphRuntime, survey: Survey, commit_id: str) -> bool:
    """Whether a commit is a stub for good, its body no longer in the archive."""
    stream, seq = parse_commit_id(commit_id)
    state = survey.streams.get(stream)
    if state is None or seq not in state.infos:
        raise no_such_commit(commit_id)
    if not isinstance(state.entries.get(seq), CommitRecord):
        state.entries |= _read(site, stream, [seq])
    return isinstance(state.entries[seq], Stub) and commit_id not in survey.archived


def _lease_name(lease: Lease) -> str:
    return f"lease {lease.key.rsplit('/', 1)[-1].removesuffix('.json')}"
