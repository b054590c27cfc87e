"""Surveys a graph for cleanup: its streams, and what protects commits and files in them.

Tags, leases, fork points and merge bases protect commits; intents and archived bodies protect files. The survey only
reads. If it cannot read something it raises an error, since cleanup must not guess what a root protects.
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
from omnigraph.upkeep.cleanup.retention import UNUSED_KINDS
from omnigraph.upkeep.cleanup.trash import SweepProgress
from omnigraph.upkeep.tags import Tags

ARCHIVE = "__archive/"
_BRANCHES = "__branches/"
_KEYS_PER_REQUEST = 64

EntryCache = dict[tuple[str, int], StreamEntry]


@dataclass
class StreamState:
    """One stream as listed. `entries` has the records and stubs that had to be read, by seq."""

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
        return all(entry.header.kind in UNUSED_KINDS for entry in self.entries.values())

    @property
    def is_unowned(self) -> bool:
        """Whether the stream belongs to no branch, in a way that is no damage."""
        return self.registration == "buried" or (self.registration == "none" and self.is_unused)

    def records(self) -> Iterator[CommitRecord]:
        return (entry for _, entry in sorted(self.entries.items()) if isinstance(entry, CommitRecord))

    def sweep_progress(self) -> SweepProgress:
        """Summarizes which records are full, so that the next run need not read the stubs."""
        full_seqs = {commit_record.seq for commit_record in self.records()}
        below = self.newest_seq + 1
        while below - 1 in full_seqs:
            below -= 1
        return SweepProgress(below, tuple(sorted(seq for seq in full_seqs if seq < below)))


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """A bulk operation that has not ended. All files that it wrote are younger than `opened_at`."""

    id: str
    opened_at: datetime


@dataclass
class Survey:
    """What a survey found. `protected` maps the ids of protected commits to what protects them."""

    streams: dict[str, StreamState]
    protected: dict[str, str]
    ended_leases: list[ObjectInfo]
    intents: list[OpenIntent]
    archived: dict[str, ObjectInfo]  # by commit id
    ended_intents: list[ObjectInfo] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)  # should be protected, and was collected long ago
    stillborn: set[str] = field(default_factory=set)
    """Streams whose source commit was collected before the fork completed: undone, or its process died (H33)."""

    def heads(self) -> list[CommitRecord]:
        """Returns the newest record of every open stream."""
        newest = (state.newest for state in self.streams.values() if not state.is_closed)
        return [entry for entry in newest if isinstance(entry, CommitRecord)]

    def record_cache(self) -> EntryCache:
        """Returns the full records, which a second survey need not read. Stubs are left out: they may be restored."""
        return {(stream, record.seq): record for stream, state in self.streams.items() for record in state.records()}


def take_survey(
    runtime: GraphRuntime, progress: Mapping[str, SweepProgress], record_cache: EntryCache, store_now: datetime
) -> Survey:
    """Surveys the whole graph. `progress` and `record_cache` only save requests."""
    registrations = _read_registrations(runtime)
    archived = _list_archived(runtime)
    streams = {
        stream: _read_stream(
            runtime, stream, infos, registrations.get(stream, "none"), progress.get(stream), record_cache
        )
        for stream, infos in _list_streams(runtime)
    }
    _read_archived(runtime, streams, archived)
    protected = {tag.commit_id: f"tag {tag.name}" for tag in Tags(runtime).scan()}
    ended_leases: list[ObjectInfo] = []
    for lease, info in scan_leases(runtime):
        if holds(lease, info, store_now):
            protected.setdefault(lease.commit_id, _describe_lease(lease))
        else:
            ended_leases.append(info)
    # An intent without an ending counts as open even if its process is dead: its files are few and can wait.
    open_intents: list[OpenIntent] = []
    ended_intents: list[ObjectInfo] = []
    for intent in list_intents(runtime.backend.store):
        if intent.has_opening and not intent.has_ended:
            open_intents.append(OpenIntent(intent.op_id, intent.opening_time))
        else:
            ended_intents += intent.objects.values()
    survey = Survey(streams, protected, ended_leases, open_intents, archived, ended_intents)
    for stream, state in streams.items():
        for parent in state.entries[0].header.parents:
            if state.is_unused and _is_expired_for_good(runtime, survey, parent.commit_id):
                survey.stillborn.add(stream)
            elif not state.is_closed:
                protected.setdefault(parent.commit_id, f"start of branch {state.branch}")
    for commit_id, why in _find_merge_bases(runtime, streams, survey.heads()):
        protected.setdefault(commit_id, why)
    _read_protected(runtime, survey)
    return survey


def archive_key(stream: str, seq: int) -> str:
    return f"{ARCHIVE}{stream}/{seq:016d}.rec"


def read_archived_body(runtime: GraphRuntime, info: ObjectInfo) -> CommitRecord:
    commit_record = decode_record(runtime.backend.store.get(info.key), info.key)
    if not isinstance(commit_record, CommitRecord):
        raise Corruption(f"{info.key} holds no commit", advice="Run `omnigraph verify`", key=info.key)
    return commit_record


def _list_streams(runtime: GraphRuntime) -> Iterator[tuple[str, dict[int, ObjectInfo]]]:
    record_infos = runtime.backend.store.list("__manifest/")
    for stream, group in groupby(record_infos, key=lambda info: info.key.split("/")[1]):
        infos = {seq_of_key(info.key): info for info in group}
        if sorted(infos) != list(range(len(infos))):
            missing = next(seq for seq in range(len(infos)) if seq not in infos)
            key = record_key(stream, missing)
            raise Corruption(f"{key} is missing, newer records exist", advice="Run `omnigraph verify`", key=key)
        yield stream, infos


def _read_stream(
    runtime: GraphRuntime,
    stream: str,
    infos: dict[int, ObjectInfo],
    registration: str,
    progress: SweepProgress | None,
    record_cache: EntryCache,
) -> StreamState:
    """Reads the first entry and all entries that an earlier cleanup did not replace by stubs."""
    below, full_seqs = (progress.stubs_below, progress.full_seqs) if progress else (0, ())
    seqs_to_read = sorted(
        {0, max(infos), *(seq for seq in full_seqs if seq in infos), *(seq for seq in infos if seq >= below)}
    )
    entries = {seq: record_cache[stream, seq] for seq in seqs_to_read if (stream, seq) in record_cache}
    entries |= _read_entries(runtime, stream, [seq for seq in seqs_to_read if seq not in entries])
    # A listing may miss records that were acknowledged just before.
    for later in runtime.records(stream).after_many(max(infos)):
        entries[later.seq] = later
        infos[later.seq] = runtime.backend.store.head(record_key(stream, later.seq))
    return StreamState(stream, infos, entries, registration)


def _read_entries(runtime: GraphRuntime, stream: str, seqs: list[int]) -> dict[int, StreamEntry]:
    entries: dict[int, StreamEntry] = {}
    for at in range(0, len(seqs), _KEYS_PER_REQUEST):
        part = seqs[at : at + _KEYS_PER_REQUEST]
        for seq, entry in zip(part, runtime.records(stream).get_many(part), strict=True):
            if entry is None:
                key = record_key(stream, seq)
                raise Corruption(f"{key} is listed and missing", advice="Run `omnigraph verify`", key=key)
            entries[seq] = entry
    return entries


def _read_registrations(runtime: GraphRuntime) -> dict[str, str]:
    """Returns every stream that the registry names, as `live` or `buried`."""
    keys = [info.key for info in runtime.backend.store.list(_BRANCHES)]
    registrations: dict[str, str] = {}
    for key, data in zip(keys, runtime.backend.store.get_many(keys), strict=True):
        entry = decode_entry(data or b"", key)
        if entry.alive:
            registrations.setdefault(entry.stream, "live")
        else:
            registrations[entry.stream] = "buried"
    registrations[runtime.stamp.main_stream] = "live"
    return registrations


def _list_archived(runtime: GraphRuntime) -> dict[str, ObjectInfo]:
    archived = {}
    for info in runtime.backend.store.list(ARCHIVE):
        _, stream, name = info.key.split("/")
        archived[f"{stream}.{int(name.removesuffix('.rec'))}"] = info
    return archived


def _read_archived(runtime: GraphRuntime, streams: Mapping[str, StreamState], archived: Iterable[str]) -> None:
    """Reads the entries of archived commits: a cleanup that died may have restored one without noting it."""
    seqs_by_stream: dict[str, list[int]] = {}
    for stream, seq in map(parse_commit_id, archived):
        if stream in streams and seq in streams[stream].infos and seq not in streams[stream].entries:
            seqs_by_stream.setdefault(stream, []).append(seq)
    for stream, seqs in seqs_by_stream.items():
        streams[stream].entries |= _read_entries(runtime, stream, seqs)


def _find_merge_bases(
    runtime: GraphRuntime, streams: Mapping[str, StreamState], heads: Iterable[CommitRecord]
) -> Iterator[tuple[str, str]]:
    """Yields the commits from which the next merge of any two branches would start, and why they are protected."""
    records = RecordCache(runtime.records, (entry for state in streams.values() for entry in state.entries.values()))
    for first_head, second_head in combinations(heads, 2):
        try:
            for base in _iterate_merge_bases(records, [first_head], second_head):
                yield base.commit_id, f"merge base of {first_head.header.branch} and {second_head.header.branch}"
        except SnapshotExpired:
            continue  # an earlier cleanup collected the merge base of these two branches


def _iterate_merge_bases(
    records: RecordCache, ours: Sequence[CommitRecord], theirs: CommitRecord
) -> Iterator[CommitRecord]:
    """Yields merge bases; if there are several, also the bases with which `history.base` merges them into one."""
    bases = merge_bases(records, ours, theirs)
    yield from bases
    for number in range(1, len(bases)):
        yield from _iterate_merge_bases(records, bases[:number], bases[number])


def _read_protected(runtime: GraphRuntime, survey: Survey) -> None:
    """Reads every protected commit, also those that the sweep progress calls stubs, and notes the lost ones."""
    for commit_id in list(survey.protected):
        if _is_expired_for_good(runtime, survey, commit_id):
            survey.lost[commit_id] = survey.protected.pop(commit_id)


def _is_expired_for_good(runtime: GraphRuntime, survey: Survey, commit_id: str) -> bool:
    """Whether a commit is a stub and its body is no longer in the archive."""
    stream, seq = parse_commit_id(commit_id)
    state = survey.streams.get(stream)
    if state is None or seq not in state.infos:
        raise no_such_commit(commit_id)
    if not isinstance(state.entries.get(seq), CommitRecord):
        state.entries |= _read_entries(runtime, stream, [seq])
    return isinstance(state.entries[seq], Stub) and commit_id not in survey.archived


def _describe_lease(lease: Lease) -> str:
    return f"lease {lease.key.rsplit('/', 1)[-1].removesuffix('.json')}"
