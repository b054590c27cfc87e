"""`GraphRuntime`: one graph inside one process, with its open branches, their publishers and writers.

Creates and deletes branches, and holds and releases them for exclusive writing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from omnigraph.commit.birth import birth_record, complete_birth, create_object, probe_for_writing
from omnigraph.commit.fold import Folder
from omnigraph.commit.idempotency import OPS_SCHEMA, OPS_TYPE
from omnigraph.commit.next_record import fork_record
from omnigraph.commit.publish_plan import EpochChange, PublishPlan, Receipt, WriteOptions, WriteTxn
from omnigraph.commit.publisher import Publisher
from omnigraph.commit.writer import Writer
from omnigraph.errors import BranchClosed, Forbidden, InvalidInput, NotFound, Unavailable, Unknown, WriterFenced
from omnigraph.log.branches import MAIN, BranchEntry, BranchExists, Registry, check_branch_name, no_such_branch
from omnigraph.log.commit_record import CommitKind, CommitRecord, Header, Member, Stub, no_such_commit
from omnigraph.log.snapshot import Catalogs
from omnigraph.log.stamp import Stamp, read_stamp
from omnigraph.log.stream import RecordStream, record_key
from omnigraph.schema.arrow import arrow_schema
from omnigraph.storage.backend import Backend


@dataclass(frozen=True)
class Branch:
    """One life of a branch, opened in this process: its registry entry and the objects that write to its stream."""

    entry: BranchEntry
    publisher: Publisher
    folder: Folder
    writer: Writer

    @property
    def name(self) -> str:
        return self.entry.name


class GraphRuntime:
    """What all handles of a process on one graph share, so that their writers queue instead of racing each other."""

    def __init__(self, backend: Backend, stamp: Stamp, *, read_only: bool) -> None:
        self.backend = backend
        self.stamp = stamp
        self.read_only = read_only
        self.catalogs = Catalogs(backend)
        self.registry = Registry(backend.store, backend.clock, backend.config.publish_deadline_s)
        self._branches: dict[str, Branch] = {}
        self._lock = Lock()

    @classmethod
    def open(cls, backend: Backend, *, read_only: bool) -> GraphRuntime:
        """Read the stamp and, for writing, check that the store supports put-if-absent."""
        stamp, data = read_stamp(backend.store)
        if not read_only:
            probe_for_writing(backend, data)
        return cls(backend, stamp, read_only=read_only)

    def records(self, stream: str) -> RecordStream:
        return RecordStream.open(self.backend, stream)

    def branch(self, name: str) -> Branch:
        """The live branch of this name, from memory if this process has opened it before.

        Completes the registry if the branch's stream is closed but its deletion was not registered.
        """
        try:
            entry = self._entry(name)
        except NotFound:
            self._forget(name)
            raise
        with self._lock:
            branch = self._branches.get(entry.stream)
        if branch is None:
            branch = self._open(entry)
        if branch.publisher.head.kind == "close":
            self._end_branch(entry)
            raise no_such_branch(name)
        return branch

    def branch_names(self) -> list[str]:
        return sorted({MAIN, *self.registry.names()})

    def create_branch(self, name: str, source: Branch | CommitRecord, options: WriteOptions) -> Branch:
        """Create a branch that starts at a commit, or at the newest commit of another branch. Two PUTs, no table work.

        Record 0 is written first and the registry entry last, so a crash in between leaves a stream that no name
        leads to. The source commit is read again after record 0 is written: either this call sees that cleanup has
        collected the source, or cleanup sees the new stream.
        """
        check_branch_name(name)
        _refuse_main(name, "created")
        record, base = self._fork(name, source, options)
        self.backend.pauses.reach("branch.create.before-registry")
        entry, source_now = self._register(name, record.stream, base)
        if not isinstance(source_now, CommitRecord):
            self.registry.end_life(entry)
            raise source_now.make_expired_error() if source_now else no_such_commit(base.commit_id)
        return self._remember(entry, record)

    def delete_branch(self, name: str, options: WriteOptions) -> Receipt:
        """Close the stream, which fences every writer in flight, then write the end entry into the registry."""
        _refuse_main(name, "deleted")
        check_branch_name(name)
        branch = self._find_open_branch(name) or self.branch(name)
        try:
            receipt = branch.writer.run(_CloseOperation(self.backend), options)
        except BranchClosed:
            self._end_branch(branch.entry)
            return self.delete_branch(name, options)
        self.backend.pauses.reach("branch.delete.before-registry")
        with suppress(Unavailable, Forbidden, Unknown):
            # The close record has ended the branch for good; the next process that opens it completes the registry.
            self._end_branch(branch.entry)
        return receipt

    def claim(self, branch: Branch, options: WriteOptions) -> str:
        """Become the only writer of the branch, taking over from any other. Returns the holder token to write with."""
        holder = self.backend.ids.token(16)
        branch.writer.run(_EpochOperation(self.backend, holder), options)
        return holder

    def release(self, branch: Branch, holder: str, options: WriteOptions) -> None:
        """Stop being the holder. Does nothing if another writer took over or if the branch is gone."""
        with suppress(WriterFenced, BranchClosed):
            branch.writer.run(_EpochOperation(self.backend, None), options, holder=holder)

    def publisher(self, head: CommitRecord) -> Publisher:
        """The publisher of the stream whose newest known record is `head`: the open branch's, or else a new one."""
        with self._lock:
            branch = self._branches.get(head.stream)
        return branch.publisher if branch else Publisher(self.backend, self.records(head.stream), head)

    def schema_of(self, record: CommitRecord, table: str) -> pa.Schema:
        if table == OPS_TYPE.id:
            return OPS_SCHEMA
        return arrow_schema(self.catalogs.get(record.schema).by_id[table])

    def _entry(self, name: str) -> BranchEntry:
        if name == MAIN:
            return BranchEntry(MAIN, 0, self.stamp.main_stream)
        check_branch_name(name)
        return self.registry.live(name)

    def _open(self, entry: BranchEntry) -> Branch:
        try:
            head = self.records(entry.stream).newest()
        except BranchClosed:
            self._end_branch(entry)
            raise no_such_branch(entry.name) from None
        if head is None and entry.name == MAIN:
            head = birth_record(self.stamp) if self.read_only else complete_birth(self.backend, self.stamp)
        if head is None:
            raise no_such_branch(entry.name)
        return self._remember(entry, head)

    def _remember(self, entry: BranchEntry, head: CommitRecord) -> Branch:
        publisher = Publisher(self.backend, self.records(entry.stream), head)
        folder = Folder(self.backend, publisher, self.schema_of)
        writer = Writer(self.backend, self.catalogs, publisher, folder)
        self._forget(entry.name, before=entry.n)
        with self._lock:
            return self._branches.setdefault(entry.stream, Branch(entry, publisher, folder, writer))

    def _forget(self, name: str, before: int | None = None) -> None:
        """Drop lives of the branch that have ended, perhaps by another process: each holds many records in memory."""
        with self._lock:
            ended = [branch for branch in self._branches.values() if branch.name == name]
            for branch in ended:
                if before is None or branch.entry.n < before:
                    del self._branches[branch.entry.stream]

    def _find_open_branch(self, name: str) -> Branch | None:
        """A life of the branch that this process has opened. Another process may have deleted the branch since."""
        with self._lock:
            return next((branch for branch in self._branches.values() if branch.name == name), None)

    def _fork(
        self, name: str, source: Branch | CommitRecord, options: WriteOptions
    ) -> tuple[CommitRecord, CommitRecord]:
        """Store record 0 of a new stream; returns it with the source commit, whose state it repeats.

        For a branch, the newest record is read while the fork of the newest known record is being written. Usually
        both are the same record, which saves a hop. Otherwise the first stream stays unregistered and a second fork
        is made.
        """
        known_head = source.publisher.head if isinstance(source, Branch) else source
        refreshing = self.backend.start(source.publisher.refresh) if isinstance(source, Branch) else None
        record = self._fork_of(known_head, name, options)
        newest = refreshing.result() if refreshing else known_head
        if newest is known_head:
            return record, known_head
        # The record was the newest at some moment since the call began, which is enough: a busy branch always moves on.
        return self._fork_of(newest, name, options), newest

    def _fork_of(self, base: CommitRecord, name: str, options: WriteOptions) -> CommitRecord:
        if base.kind == "close":
            raise BranchClosed(f"branch {base.header.branch!r} was deleted", advice="Fork from a commit id instead")
        record = fork_record(base, self._fork_header(name, base, options))
        create_object(self.backend, record_key(record.stream, 0), record.as_bytes)
        return record

    def _fork_header(self, name: str, base: CommitRecord, options: WriteOptions) -> Header:
        backend = self.backend
        return Header(
            stream=backend.ids.ulid(),
            seq=0,
            rid=backend.ids.token(16),
            kind="fork",
            parents=(base.ref,),
            gen=base.header.gen + 1,
            schema=base.schema,
            created_at=backend.clock.now(),
            actor=options.actor,
            message=options.message,
            members=(Member(backend.ids.ulid(), options.actor, options.client_key, {}),),
            branch=name,
        )

    def _register(self, name: str, stream: str, source: CommitRecord) -> tuple[BranchEntry, CommitRecord | Stub | None]:
        """Write the registry entry and, in the same hop, read the source commit again."""
        second_look = self.backend.start(lambda: self.records(source.stream).get(source.seq))
        try:
            entry = self.registry.create(name, stream)
        except BranchExists:
            self._end_if_closed(name)
            entry = self.registry.create(name, stream)
        with suppress(Unavailable, Forbidden):
            return entry, second_look.result()
        try:  # The branch exists already, so a failed read is tried a second time before the caller gets an error.
            return entry, self.records(source.stream).get(source.seq)
        except (Unavailable, Forbidden) as error:
            raise Unknown(
                f"branch {name!r} was created, but whether its source is still retained could not be read",
                advice="Open the branch and read it before you rely on it",
                branch=name,
            ) from error

    def _end_if_closed(self, name: str) -> None:
        """Complete the deletion of a branch whose deleter crashed between the close record and the registry."""
        entry = self.registry.find(name)
        if entry is None or not entry.alive:
            return
        try:
            head = self.records(entry.stream).newest()
        except BranchClosed:
            head = None
        else:
            if head is None or head.kind != "close":
                return
        self._end_branch(entry)

    def _end_branch(self, entry: BranchEntry) -> None:
        """Forget the branch and write its end entry into the registry, unless that exists."""
        with self._lock:
            self._branches.pop(entry.stream, None)
        if not self.read_only:
            self.registry.end_life(entry)


class _CloseOperation:
    """Publishes the close record, the last of a stream."""

    kind: CommitKind = "close"

    def __init__(self, backend: Backend) -> None:
        self.op_id = backend.ids.ulid()

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        return PublishPlan(self.kind, self.op_id, txn.record)


class _EpochOperation:
    """Claims the branch for a holder, or releases it with None."""

    kind: CommitKind = "epoch"

    def __init__(self, backend: Backend, holder: str | None) -> None:
        self.op_id = backend.ids.ulid()
        self._change = EpochChange(holder)

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        return PublishPlan(self.kind, self.op_id, txn.record, epoch=self._change)


def _refuse_main(name: str, verb: str) -> None:
    if name.casefold() == MAIN:
        raise InvalidInput(
            f"{MAIN!r} cannot be {verb}", code="reserved_branch", advice="Choose another name", branch=name
        )
