"""`Cleanup` collects old commits and the files that no commit names. No other module deletes objects of a graph.

1. Fence: it publishes a `gc` record on every open stream. A plan that rebases over such a record may not name what it
   staged before (H35).
2. Expire: it moves the bodies of commits outside the retention policy to `__archive/` and leaves stubs (H23).
3. Survey again: it lists all roots once more, and restores the bodies of commits that became protected meanwhile (H33).
4. Mark: it marks every file that a remaining commit names.
5. Delete: it deletes files that have been on a trash list for longer than the horizon and are still unmarked and
   unchanged.
6. Condemn: it writes a trash list of unmarked files that are older, by a margin, than the time before the first
   survey (H37). Files that are staged later, even on a stream that is forked later, are younger than that.

All times are read from the store's clock. The files of an archived body stay marked, so the body can be restored at
any time; archived bodies are deleted before their files. A stream that another writer holds cannot be fenced, and its
writer may still name any file: then this run condemns nothing. If one root cannot be read, cleanup does nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import TypeVar

from omnigraph.commit.birth import create_object
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.commit.publish_plan import PublishPlan, WriteOptions
from omnigraph.commit.publisher import PlanFailed, PlanPublished
from omnigraph.errors import (
    BranchClosed,
    Contention,
    Corruption,
    NotFound,
    OmnigraphError,
    Unavailable,
    Unsupported,
    WriterFenced,
)
from omnigraph.intents.objects import RECOVERY
from omnigraph.log.commit_record import CommitKind, CommitRecord, Stub, parse_commit_id
from omnigraph.log.stream import record_key
from omnigraph.storage.backend import Backend
from omnigraph.storage.keys import is_temporary
from omnigraph.storage.local import drop_leftover, leftovers
from omnigraph.storage.store import ObjectInfo, ObjectMissing
from omnigraph.upkeep.cleanup.mark import Marks
from omnigraph.upkeep.cleanup.report import CleanupReport, ExpiredCommits, total_by_area
from omnigraph.upkeep.cleanup.retention import CommitAge, Policy, find_expired_commits
from omnigraph.upkeep.cleanup.survey import StreamState, Survey, archive_key, read_archived_body, take_survey
from omnigraph.upkeep.cleanup.trash import TrashList, latest_progress, read_trash

CLEANUP_ACTOR = "omnigraph:cleanup"
LOCK = "__locks/cleanup"
_CLOCK = "__locks/clock-"
_FENCE_TRIES = 8

Result = TypeVar("Result")
TrashLists = list[tuple[TrashList, ObjectInfo]]


class Cleanup:
    """One run of cleanup. `holders` are the caller's holder tokens by stream: it may fence streams that it holds."""

    def __init__(self, runtime: GraphRuntime, policy: Policy, holders: Mapping[str, str] | None = None) -> None:
        self._runtime = runtime
        self._policy = policy
        self._holders = dict(holders or {})
        self._id = runtime.backend.ids.ulid()
        self._catalogs = runtime.catalogs
        self._tables = runtime.backend.tables.without_cache()
        self._is_locked = False

    @property
    def _backend(self) -> Backend:
        return self._runtime.backend

    def preview(self) -> CleanupReport:
        """Reports what a run would do. Writes nothing."""
        try:
            return self._refuse_if_unreadable(lambda: self._survey(self._backend.clock.now())[0])
        finally:
            self._tables.close()

    def run(self) -> CleanupReport:
        """Runs cleanup. Raises `Unavailable` if another cleanup is running."""
        store_now = self._lock()
        self._is_locked = True
        try:
            report, survey = self._refuse_if_unreadable(lambda: self._survey(store_now))
            if not report.has_work:
                return replace(report, confirmed=True)
            return self._refuse_if_unreadable(lambda: self._collect_garbage(report, survey, store_now))
        finally:
            self._tables.close()
            self._unlock()

    def _survey(self, store_now: datetime) -> tuple[CleanupReport, Survey]:
        """Surveys the graph and reports what a run would do, as far as it is known before commits expire."""
        lists = read_trash(self._backend.store)
        survey = take_survey(self._runtime, latest_progress(lists), {}, store_now)
        expired_seqs = self._find_expired(survey, store_now)
        marks_after_expiry = self._mark(survey, expired_seqs, archived=())
        candidates = self._list_sweepable()
        cutoff = self._condemn_before(survey, store_now)
        condemned = _index_condemned(lists)
        unnamed = [info for info in candidates if info.key not in marks_after_expiry and info.modified_at < cutoff]
        present = {info.key: info for info in (*candidates, *survey.ended_leases, *survey.ended_intents)}
        due = [info for info in self._find_due(lists, store_now, marks_after_expiry) if present.get(info.key) == info]
        # Marking opens everything that must stay: if anything that protects files cannot be read, cleanup stops here.
        self._mark(survey, {}, archived=survey.archived.values())
        report = CleanupReport(
            confirmed=False,
            id=self._id,
            expired=tuple(
                _summarize_expired(survey.streams[stream], seqs) for stream, seqs in expired_seqs.items() if seqs
            ),
            closes=tuple(state.branch for state in self._find_orphans(survey, store_now)),
            condemns=total_by_area(info for info in unnamed if condemned.get(info.key) != info),
            deletes=total_by_area(due),
            waiting=total_by_area(info for info in unnamed if condemned.get(info.key) == info and info not in due),
            archived=len(self._find_due_archives(survey, store_now)),
            leases=sum(1 for info in survey.ended_leases if condemned.get(info.key) != info),
            intents=sum(1 for info in survey.ended_intents if condemned.get(info.key) != info),
            protected=dict(survey.protected),
            lost=dict(survey.lost),
        )
        return report, survey

    def _collect_garbage(self, report: CleanupReport, survey: Survey, store_now: datetime) -> CleanupReport:
        """Does the six steps and completes the report."""
        pauses = self._backend.pauses
        for state in self._find_orphans(survey, store_now):
            self._publish(state.newest, "close")
        unfenced = self._fence(survey)
        pauses.reach("cleanup.fenced")
        record_cache = survey.record_cache()
        for stream, seqs in self._find_expired(survey, store_now).items():
            for seq in seqs if stream not in unfenced else ():
                self._replace_by_stub(stream, seq, keep_body=stream not in survey.stillborn)
                record_cache.pop((stream, seq))
        pauses.reach("cleanup.stubbed")
        lists = read_trash(self._backend.store)
        new_survey = take_survey(self._runtime, latest_progress(lists), record_cache, store_now)
        self._restore_protected(new_survey)
        pauses.reach("cleanup.listed")
        due_archives = self._find_due_archives(new_survey, store_now)
        kept_archives = [info for commit_id, info in new_survey.archived.items() if commit_id not in due_archives]
        marks = self._mark(new_survey, {}, archived=kept_archives)
        pauses.reach("cleanup.marked")
        failures: dict[str, str] = {}
        deleted = self._delete_due(lists, due_archives.values(), marks, store_now, failures)
        cutoff = self._condemn_before(new_survey, store_now) if not unfenced else None
        new_list = self._condemn(new_survey, marks, lists, cutoff)
        self._drop_lists(lists, new_list, failures)
        return replace(
            report,
            confirmed=True,
            condemns=total_by_area(new_list.files) if new_list else {},
            deletes=total_by_area(deleted),
            unfenced=tuple(sorted(unfenced.values())),
            failures=failures,
        )

    def _find_expired(self, survey: Survey, store_now: datetime) -> dict[str, list[int]]:
        """Returns the seqs that retention lets go, by stream, without the protected commits."""
        now = self._backend.clock.now()
        expired_seqs: dict[str, list[int]] = {}
        for stream, state in survey.streams.items():
            commits = [
                CommitAge(record.seq, record.kind, record.header.created_at, state.infos[record.seq].modified_at)
                for record in state.records()
            ]
            seqs = find_expired_commits(
                commits,
                state.newest_seq,
                closed=state.is_closed,
                unused=state.is_unused,
                policy=self._policy,
                now=now,
                store_now=store_now,
            )
            expired_seqs[stream] = [seq for seq in seqs if f"{stream}.{seq}" not in survey.protected]
        return expired_seqs

    def _find_orphans(self, survey: Survey, store_now: datetime) -> list[StreamState]:
        """Returns open streams that belong to no branch, because the creation of the branch crashed or was undone.

        A stream with commits that the registry does not know is damage, and stays.
        """
        horizon = store_now - timedelta(seconds=self._policy.horizon_s)
        return [
            state
            for stream, state in survey.streams.items()
            if not state.is_closed
            and (
                stream in survey.stillborn
                or (state.is_unowned and state.infos[state.newest_seq].modified_at <= horizon)
            )
        ]

    def _fence(self, survey: Survey) -> dict[str, str]:
        """Publishes a `gc` record on every open stream. Returns the streams that another writer holds, with branch."""
        honours = sorted(intent.id for intent in survey.intents)
        heads = survey.heads()
        fence_results = self._backend.in_parallel(lambda head: self._publish(head, "gc", honours), heads)
        unfenced = [head for head, is_fenced in zip(heads, fence_results, strict=True) if not is_fenced]
        return {head.stream: head.header.branch for head in unfenced}

    def _publish(self, head: CommitRecord | Stub, kind: CommitKind, honours: Iterable[str] = ()) -> bool:
        """Publishes a record on a stream, unless the stream is closed. Returns False if another writer holds it."""
        assert isinstance(head, CommitRecord)
        publisher = self._runtime.publisher(head)
        op_id = self._backend.ids.ulid()
        for _ in range(_FENCE_TRIES):
            plan = PublishPlan(
                kind,
                op_id,
                publisher.refresh(),
                gc={"id": self._id, "honours": list(honours)} if kind == "gc" else None,
                options=WriteOptions(actor=CLEANUP_ACTOR),
                holder=self._holders.get(head.stream),
            )
            outcome = publisher.publish(plan, self._backend.clock.monotonic() + self._backend.config.publish_deadline_s)
            if isinstance(outcome, PlanPublished):
                return True
            if isinstance(outcome, PlanFailed):
                if isinstance(outcome.error, (WriterFenced, BranchClosed)):
                    return isinstance(outcome.error, BranchClosed)
                raise outcome.error
        raise Contention(f"stream {head.stream} did not let cleanup through", advice="Run cleanup again later")

    def _replace_by_stub(self, stream: str, seq: int, *, keep_body: bool) -> None:
        """Copies a commit's body to the archive, then overwrites the record with a stub, so its key is never free."""
        store = self._backend.store
        key = record_key(stream, seq)
        entry = self._runtime.records(stream).get(seq)
        if isinstance(entry, CommitRecord):
            if keep_body:
                store.put(archive_key(stream, seq), entry.as_bytes)
            self._backend.pauses.reach("cleanup.archived")
            store.put(key, Stub(entry.header, entry.crossing_seq).encode())

    def _restore_protected(self, survey: Survey) -> None:
        """Restores the bodies of commits that became protected after they had been replaced by stubs."""
        for commit_id in survey.protected:
            stream, seq = parse_commit_id(commit_id)
            state = survey.streams[stream]
            if isinstance(state.entries[seq], Stub):
                body = read_archived_body(self._runtime, survey.archived[commit_id])
                self._backend.store.put(record_key(stream, seq), body.as_bytes)
                state.entries[seq] = body

    def _mark(self, survey: Survey, expired: Mapping[str, list[int]], archived: Iterable[ObjectInfo]) -> Marks:
        """Marks the files of all commits but the expired ones, and of archived bodies."""
        marks = Marks(self._backend, self._tables, self._catalogs)
        for stream, state in survey.streams.items():
            if stream in survey.stillborn:
                continue  # it names the files of its source commit, which was collected
            expired_seqs = set(expired.get(stream, ()))
            marks.add(record for record in state.records() if record.seq not in expired_seqs)
        marks.add(read_archived_body(self._runtime, info) for info in archived)
        return marks

    def _find_due_archives(self, survey: Survey, store_now: datetime) -> dict[str, ObjectInfo]:
        """Returns archived bodies, by commit id, that are unprotected and older than the horizon."""
        horizon = store_now - timedelta(seconds=self._policy.horizon_s)
        return {
            commit_id: info
            for commit_id, info in survey.archived.items()
            if commit_id not in survey.protected and info.modified_at <= horizon
        }

    def _condemn_before(self, survey: Survey, begun_at: datetime) -> datetime:
        """Returns the time before which files are condemned. Files of an open intent are younger than its opening."""
        starts = [begun_at, *(intent.opened_at for intent in survey.intents)]
        return min(starts) - timedelta(seconds=self._policy.margin_s)

    def _list_sweepable(self) -> list[ObjectInfo]:
        """Lists the files that may be condemned: files of tables, and temporary files of killed processes.

        Schemas are not among them: a writer that finds an existing schema, however old, relies on it without writing
        it again. A put that is paused for longer than the horizon finds its temporary file gone, and is repeated.
        """
        store = self._backend.store
        clocks = [info for info in store.list("__locks/") if info.key.startswith(_CLOCK)]
        return [*store.list("tables/"), *clocks, *leftovers(store)]

    def _find_due(self, lists: TrashLists, store_now: datetime, marks: Marks) -> list[ObjectInfo]:
        """Returns unmarked files that have been on a trash list for longer than the horizon."""
        horizon = store_now - timedelta(seconds=self._policy.horizon_s)
        return [
            file
            for trash, info in lists
            if info.modified_at <= horizon
            for file in trash.files
            if file.key not in marks
        ]

    def _delete_due(
        self,
        lists: TrashLists,
        archives: Iterable[ObjectInfo],
        marks: Marks,
        store_now: datetime,
        failures: dict[str, str],
    ) -> list[ObjectInfo]:
        """Deletes what is due. A failure does not stop it, but no file goes before all due archived bodies are gone."""
        deleted = [info for info in archives if self._delete(info, failures)]
        if failures:
            return deleted
        present = {info.key: info for info in self._list_sweepable()}
        present |= {info.key: info for info in self._list_leases_and_intents()}
        # An object that was written again since it was condemned is a different object with the same key.
        due = [info for info in self._find_due(lists, store_now, marks) if present.get(info.key) == info]
        intents = [info for info in due if info.key.startswith(RECOVERY)]
        deleted += [info for info in due if not info.key.startswith(RECOVERY) and self._delete(info, failures)]
        return deleted + self._delete_intents(intents, failures)

    def _delete_intents(self, due: Iterable[ObjectInfo], failures: dict[str, str]) -> list[ObjectInfo]:
        """Deletes the objects of each intent, its opening first: without an opening, the rest is not an intent.

        If the ending went first, a crash here would leave an operation that seems to wait for its recovery.
        """
        deleted: list[ObjectInfo] = []
        for _, objects in groupby(sorted(due, key=lambda info: info.key), key=lambda info: info.key.rsplit("/", 1)[0]):
            for info in objects:
                if not self._delete(info, failures):
                    break
                deleted.append(info)
        return deleted

    def _list_leases_and_intents(self) -> list[ObjectInfo]:
        """Lists all leases and intents. Only ended ones are ever on a trash list."""
        store = self._backend.store
        return [*store.list("__leases/"), *store.list(RECOVERY)]

    def _delete(self, info: ObjectInfo, failures: dict[str, str]) -> bool:
        self._backend.pauses.reach("cleanup.delete")
        store = self._backend.store
        try:
            if is_temporary(info.key):
                drop_leftover(store, info.key)
            else:
                store.delete(info.key)
        except OmnigraphError as error:
            failures[info.key] = error.message
            return False
        return True

    def _condemn(self, survey: Survey, marks: Marks, lists: TrashLists, cutoff: datetime | None) -> TrashList | None:
        """Writes the trash list of unmarked files older than `cutoff`. Returns None if it would say nothing new."""
        progress = {stream: state.sweep_progress() for stream, state in survey.streams.items()}
        files: list[ObjectInfo] = []
        if cutoff is not None:
            condemned = _index_condemned(lists)
            unnamed = [info for info in self._list_sweepable() if info.key not in marks and info.modified_at < cutoff]
            ended = (*survey.ended_leases, *survey.ended_intents)
            files = [info for info in (*unnamed, *ended) if condemned.get(info.key) != info]
        if not files and dict(latest_progress(lists)) == progress:
            return None
        trash_list = TrashList(self._id, tuple(files), progress)
        create_object(self._backend, trash_list.key, trash_list.encode())
        return trash_list

    def _drop_lists(self, lists: TrashLists, new_list: TrashList | None, failures: dict[str, str]) -> None:
        """Deletes trash lists whose files are all gone. The newest list stays: it has the sweep progress of streams."""
        present = {file.key: file for file in (*self._list_sweepable(), *self._list_leases_and_intents())}
        for trash, info in lists if new_list else lists[:-1]:
            if not any(present.get(file.key) == file for file in trash.files):
                self._delete(info, failures)

    def _lock(self) -> datetime:
        """Takes the cleanup lock and returns the store's time. A lock of a dead process is taken over after a while.

        The lock only saves work: two cleanups at once do no harm, since each deletes only what was condemned long ago.
        """
        store, name = self._backend.store, self._id.encode()
        for _ in range(2):
            if create_object(self._backend, LOCK, name) == name:
                return store.head(LOCK).modified_at
            try:
                lock_info = store.head(LOCK)
            except ObjectMissing:
                continue
            if self._read_store_clock() - lock_info.modified_at < timedelta(seconds=self._policy.lock_stale_s):
                raise Unavailable(
                    "another cleanup is running",
                    code="cleanup_running",
                    advice="Wait for it; a lock that was left behind ends by itself",
                    since=lock_info.modified_at.isoformat(),
                )
            store.delete(LOCK)
        raise Unavailable("another cleanup has just begun", code="cleanup_running", advice="Wait for it")

    def _unlock(self) -> None:
        try:
            if self._backend.store.get(LOCK) == self._id.encode():
                self._backend.store.delete(LOCK)
        except OmnigraphError:
            return  # the next cleanup takes over a stale lock

    def _is_other_cleanup_running(self) -> bool:
        """Whether another cleanup has the lock. A stale lock counts only if it was taken from this cleanup."""
        store = self._backend.store
        try:
            if store.get(LOCK) == self._id.encode():
                return False
            age = self._backend.clock.now() - store.head(LOCK).modified_at
        except ObjectMissing:
            return self._is_locked
        return self._is_locked or age < timedelta(seconds=self._policy.lock_stale_s)

    def _read_store_clock(self) -> datetime:
        """Returns the store's time, which is the modification time of an object that is written now."""
        key = f"{_CLOCK}{self._id}"
        self._backend.store.put(key, b"")
        store_now = self._backend.store.head(key).modified_at
        self._backend.store.delete(key)
        return store_now

    def _refuse_if_unreadable(self, work: Callable[[], Result]) -> Result:
        """Runs `work`, and refuses if a root cannot be read, since it is then unknown what the root protects."""
        try:
            return work()
        except (Corruption, NotFound, Unsupported) as error:
            if isinstance(error, NotFound) and self._is_other_cleanup_running():
                raise Unavailable(
                    "another cleanup is running and took away what this one was looking at; nothing was deleted here",
                    code="cleanup_running",
                    advice="Wait for it",
                ) from error
            raise Corruption(
                f"cleanup refuses, nothing was deleted: {error.message}",
                code="cleanup_refused",
                advice="Run `omnigraph verify`, and repair or restore what it names",
                **error.details,
            ) from error


def _index_condemned(lists: TrashLists) -> dict[str, ObjectInfo]:
    return {file.key: file for trash, _ in lists for file in trash.files}


def _summarize_expired(state: StreamState, seqs: list[int]) -> ExpiredCommits:
    return ExpiredCommits(
        state.branch, state.stream, len(seqs), f"{state.stream}.{min(seqs)}", f"{state.stream}.{max(seqs)}"
    )
