"""`cleanup`: the only code that deletes.

1. A `gc` record in every open stream: whoever rebases over it may not name what it staged before (H35).
2. Commits outside the retention policy: body to `__archive/`, a stub under the name (H23).
3. Roots are listed again, and what became rooted meanwhile gets its body back (H33).
4. Every file that a rooted commit names is marked.
5. Unmarked files, older by a margin than the moment before streams were first listed, are condemned: they go on a
   list (H37). What was staged later, also on a stream that was forked later, is younger.
6. What is on a list for longer than the horizon, and still unmarked and untouched, is deleted.

Times are the store's own. While a body is in the archive its files are marked, so it can always be put back; archived
bodies go first. A stream that cannot be fenced, because another writer holds it, may still name anything: then
nothing is condemned in that run. One root that cannot be read, and nothing at all happens.
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
from omnigraph.upkeep.cleanup.report import CleanupReport, ExpiredCommits, by_table
from omnigraph.upkeep.cleanup.retention import Commit, Policy, expired
from omnigraph.upkeep.cleanup.survey import StreamState, Survey, archive_key, archived_body, take_survey
from omnigraph.upkeep.cleanup.trash import TrashList, latest_progress, read_trash

CLEANUP_ACTOR = "omnigraph:cleanup"
LOCK = "__locks/cleanup"
_CLOCK = "__locks/clock-"
_FENCE_TRIES = 8

A = TypeVar("A")
Lists = list[tuple[TrashList, ObjectInfo]]


class Cleanup:
    """One run. `holders` are the claims of the caller, by stream: it may fence what it holds itself."""

    def __init__(self, site: GraphRuntime, policy: Policy, holders: Mapping[str, str] | None = None) -> None:
        self._site = site
        self._policy = policy
        self._holders = dict(holders or {})
        self._id = site.backend.ids.ulid()
        self._catalogs = site.catalogs
        self._tables = site.backend.tables.without_cache()
        self._is_locked = False

    @property
    def _backend(self) -> Backend:
        return self._site.backend

    def preview(self) -> CleanupReport:
        """What would go. Nothing is written."""
        try:
            return self._refusing(lambda: self._look(self._backend.clock.now())[0])
        finally:
            self._tables.close()

    def run(self) -> CleanupReport:
        """Do it. Of several collectors one works; the others are told so."""
        store_now = self._lock()
        self._is_locked = True
        try:
            report, survey = self._refusing(lambda: self._look(store_now))
            if not report.has_work:
                return replace(report, confirmed=True)
            return self._refusing(lambda: self._act(report, survey, store_now))
        finally:
            self._tables.close()
            self._unlock()

    def _look(self, store_now: datetime) -> tuple[CleanupReport, Survey]:
        lists = read_trash(self._backend.store)
        survey = take_survey(self._site, latest_progress(lists), {}, store_now)
        going = self._expired(survey, store_now)
        later = self._marks(survey, going, archived=())
        listed = self._sweepable()
        cutoff = self._cutoff(survey, store_now)
        condemned = _on_lists(lists)
        loose = [one for one in listed if one.key not in later and one.modified_at < cutoff]
        there = {one.key: one for one in (*listed, *survey.leases_over, *survey.intents_over)}
        due = [one for one in self._due(lists, store_now, later) if there.get(one.key) == one]
        # What must stay is opened in full before anything is changed: a root that cannot be read refuses here.
        self._marks(survey, {}, archived=survey.archived.values())
        report = CleanupReport(
            confirmed=False,
            id=self._id,
            expired=tuple(_summary(survey.streams[stream], seqs) for stream, seqs in going.items() if seqs),
            closes=tuple(state.branch for state in self._orphans(survey, store_now)),
            condemns=by_table(one for one in loose if condemned.get(one.key) != one),
            deletes=by_table(due),
            waiting=by_table(one for one in loose if condemned.get(one.key) == one and one not in due),
            archived=len(self._archives_due(survey, store_now)),
            leases=sum(1 for one in survey.leases_over if condemned.get(one.key) != one),
            intents=sum(1 for one in survey.intents_over if condemned.get(one.key) != one),
            protected=dict(survey.named),
            lost=dict(survey.lost),
        )
        return report, survey

    def _act(self, report: CleanupReport, survey: Survey, store_now: datetime) -> CleanupReport:
        pauses = self._backend.pauses
        for state in self._orphans(survey, store_now):
            self._publish(state.newest, "close")
        unfenced = self._fence(survey)
        pauses.reach("cleanup.fenced")
        known = survey.known()
        for stream, seqs in self._expired(survey, store_now).items():
            for seq in seqs if stream not in unfenced else ():
                self._collect(stream, seq, keep_body=stream not in survey.stillborn)
                known.pop((stream, seq))
        pauses.reach("cleanup.stubbed")
        lists = read_trash(self._backend.store)
        again = take_survey(self._site, latest_progress(lists), known, store_now)
        self._restore(again)
        pauses.reach("cleanup.listed")
        due_archives = self._archives_due(again, store_now)
        kept_archives = [info for commit_id, info in again.archived.items() if commit_id not in due_archives]
        marks = self._marks(again, {}, archived=kept_archives)
        pauses.reach("cleanup.marked")
        failures: dict[str, str] = {}
        deleted = self._sweep(lists, due_archives.values(), marks, store_now, failures)
        cutoff = self._cutoff(again, store_now) if not unfenced else None
        written = self._condemn(again, marks, lists, cutoff)
        self._drop_lists(lists, written, failures)
        return replace(
            report,
            confirmed=True,
            condemns=by_table(written.files) if written else {},
            deletes=by_table(deleted),
            unfenced=tuple(sorted(unfenced.values())),
            failures=failures,
        )

    def _expired(self, survey: Survey, store_now: datetime) -> dict[str, list[int]]:
        """Seqs to collect, by stream; commits that have a name stay."""
        now = self._backend.clock.now()
        found: dict[str, list[int]] = {}
        for stream, state in survey.streams.items():
            commits = [
                Commit(one.seq, one.kind, one.header.created_at, state.infos[one.seq].modified_at)
                for one in state.records()
            ]
            gone = expired(
                commits,
                state.newest_seq,
                closed=state.is_closed,
                unused=state.is_unused,
                policy=self._policy,
                now=now,
                store_now=store_now,
            )
            found[stream] = [seq for seq in gone if f"{stream}.{seq}" not in survey.named]
        return found

    def _orphans(self, survey: Survey, store_now: datetime) -> list[StreamState]:
        """Open streams that no branch stands on: made by a creation that crashed, or was undone.

        One that was written to and that the registry does not know at all is damage, and stays.
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
        """A `gc` record in every open stream. The answer is which streams, with their branch, another writer holds."""
        honours = sorted(one.id for one in survey.intents)
        heads = survey.heads()
        done = self._backend.in_parallel(lambda head: self._publish(head, "gc", honours), heads)
        return {head.stream: head.header.branch for head, passed in zip(heads, done, strict=True) if not passed}

    def _publish(self, head: CommitRecord | Stub, kind: CommitKind, honours: Iterable[str] = ()) -> bool:
        """Put a record on a stream, unless it has ended meanwhile. False if another writer holds it."""
        assert isinstance(head, CommitRecord)
        publisher = self._site.publisher(head)
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

    def _collect(self, stream: str, seq: int, *, keep_body: bool) -> None:
        """Body to the archive, then the stub over it; the name is never free."""
        store = self._backend.store
        key = record_key(stream, seq)
        entry = self._site.records(stream).get(seq)
        if isinstance(entry, CommitRecord):
            if keep_body:
                store.put(archive_key(stream, seq), entry.as_bytes)
            self._backend.pauses.reach("cleanup.archived")
            store.put(key, Stub(entry.header, entry.crossing_seq).encode())

    def _restore(self, survey: Survey) -> None:
        """Put back the bodies of commits that have a name now."""
        for commit_id in survey.named:
            stream, seq = parse_commit_id(commit_id)
            state = survey.streams[stream]
            if isinstance(state.entries[seq], Stub):
                body = archived_body(self._site, survey.archived[commit_id])
                self._backend.store.put(record_key(stream, seq), body.as_bytes)
                state.entries[seq] = body

    def _marks(self, survey: Survey, going: Mapping[str, list[int]], archived: Iterable[ObjectInfo]) -> Marks:
        marks = Marks(self._backend, self._tables, self._catalogs)
        for stream, state in survey.streams.items():
            if stream in survey.stillborn:
                continue  # it names what its source named, and that is gone
            gone = set(going.get(stream, ()))
            marks.add(record for record in state.records() if record.seq not in gone)
        marks.add(archived_body(self._site, info) for info in archived)
        return marks

    def _archives_due(self, survey: Survey, store_now: datetime) -> dict[str, ObjectInfo]:
        """Bodies that nobody asked back for longer than the horizon."""
        horizon = store_now - timedelta(seconds=self._policy.horizon_s)
        return {
            commit_id: info
            for commit_id, info in survey.archived.items()
            if commit_id not in survey.named and info.modified_at <= horizon
        }

    def _cutoff(self, survey: Survey, begun_at: datetime) -> datetime:
        """Only files older than this are condemned: those of an intent are younger than its beginning."""
        return min([begun_at, *(one.opened_at for one in survey.intents)]) - timedelta(seconds=self._policy.margin_s)

    def _sweepable(self) -> list[ObjectInfo]:
        """Files that may be condemned at all: of tables, and what killed processes left that has no name.

        Schemas are not among them: a writer that finds one there, however old, relies on it without touching it. A
        put that is paused for longer than the horizon finds its temporary file gone, and is simply made again.
        """
        store = self._backend.store
        clocks = [one for one in store.list("__locks/") if one.key.startswith(_CLOCK)]
        return [*store.list("tables/"), *clocks, *leftovers(store)]

    def _due(self, lists: Lists, store_now: datetime, marks: Marks) -> list[ObjectInfo]:
        horizon = store_now - timedelta(seconds=self._policy.horizon_s)
        return [
            one for trash, info in lists if info.modified_at <= horizon for one in trash.files if one.key not in marks
        ]

    def _sweep(
        self,
        lists: Lists,
        archives: Iterable[ObjectInfo],
        marks: Marks,
        store_now: datetime,
        failures: dict[str, str],
    ) -> list[ObjectInfo]:
        """Delete what is due. One failure does not stop the others, except that files wait for their archive."""
        deleted = [one for one in archives if self._delete(one, failures)]
        if failures:
            return deleted
        present = {one.key: one for one in self._sweepable()}
        present |= {one.key: one for one in self._listed_ended()}
        # An object that was written again since is another one, under the same name.
        due = [one for one in self._due(lists, store_now, marks) if present.get(one.key) == one]
        intents = [one for one in due if one.key.startswith(RECOVERY)]
        deleted += [one for one in due if not one.key.startswith(RECOVERY) and self._delete(one, failures)]
        return deleted + self._sweep_intents(intents, failures)

    def _sweep_intents(self, due: Iterable[ObjectInfo], failures: dict[str, str]) -> list[ObjectInfo]:
        """The first object of an intent goes first: without it, what is left is no intent, whatever it says.

        If its end went first, a crash here would leave an operation that seems to wait for its recovery.
        """
        deleted: list[ObjectInfo] = []
        for _, objects in groupby(sorted(due, key=lambda one: one.key), key=lambda one: one.key.rsplit("/", 1)[0]):
            for one in objects:
                if not self._delete(one, failures):
                    break
                deleted.append(one)
        return deleted

    def _listed_ended(self) -> list[ObjectInfo]:
        """Leases and intents; those on a list of the condemned have ended."""
        store = self._backend.store
        return [*store.list("__leases/"), *store.list(RECOVERY)]

    def _delete(self, one: ObjectInfo, failures: dict[str, str]) -> bool:
        self._backend.pauses.reach("cleanup.delete")
        store = self._backend.store
        try:
            if is_temporary(one.key):
                drop_leftover(store, one.key)
            else:
                store.delete(one.key)
        except OmnigraphError as error:
            failures[one.key] = error.message
            return False
        return True

    def _condemn(self, survey: Survey, marks: Marks, lists: Lists, cutoff: datetime | None) -> TrashList | None:
        """Write the list of what is unmarked and older than `cutoff`. None if there is nothing new to tell."""
        progress = {stream: state.progress() for stream, state in survey.streams.items()}
        files: list[ObjectInfo] = []
        if cutoff is not None:
            known = _on_lists(lists)
            loose = [one for one in self._sweepable() if one.key not in marks and one.modified_at < cutoff]
            over = (*survey.leases_over, *survey.intents_over)
            files = [one for one in (*loose, *over) if known.get(one.key) != one]
        if not files and dict(latest_progress(lists)) == progress:
            return None
        made = TrashList(self._id, tuple(files), progress)
        create_object(self._backend, made.key, made.encode())
        return made

    def _drop_lists(self, lists: Lists, written: TrashList | None, failures: dict[str, str]) -> None:
        """Forget lists of which nothing is left; the newest stays, it knows how far every stream was collected."""
        left = {one.key: one for one in (*self._sweepable(), *self._listed_ended())}
        for trash, info in lists if written else lists[:-1]:
            if not any(left.get(one.key) == one for one in trash.files):
                self._delete(info, failures)

    def _lock(self) -> datetime:
        """Become the one collector; the answer is the store's time. A lock that was left behind is taken over.

        Two collectors at once would do no harm, only work: each deletes only what was condemned long before.
        """
        store, name = self._backend.store, self._id.encode()
        for _ in range(2):
            if create_object(self._backend, LOCK, name) == name:
                return store.head(LOCK).modified_at
            try:
                held = store.head(LOCK)
            except ObjectMissing:
                continue
            if self._store_now() - held.modified_at < timedelta(seconds=self._policy.lock_stale_s):
                raise Unavailable(
                    "another cleanup is running",
                    code="cleanup_running",
                    advice="Wait for it; a lock that was left behind ends by itself",
                    since=held.modified_at.isoformat(),
                )
            store.delete(LOCK)
        raise Unavailable("another cleanup has just begun", code="cleanup_running", advice="Wait for it")

    def _unlock(self) -> None:
        try:
            if self._backend.store.get(LOCK) == self._id.encode():
                self._backend.store.delete(LOCK)
        except OmnigraphError:
            return  # it ends by itself

    def _others_collect(self) -> bool:
        """Whether the lock is, or was a moment ago, in other hands. One that was left behind tells nothing."""
        store = self._backend.store
        try:
            if store.get(LOCK) == self._id.encode():
                return False
            age = self._backend.clock.now() - store.head(LOCK).modified_at
        except ObjectMissing:
            return self._is_locked
        return self._is_locked or age < timedelta(seconds=self._policy.lock_stale_s)

    def _store_now(self) -> datetime:
        """The store's clock, as it stamps an object that is written now."""
        key = f"{_CLOCK}{self._id}"
        self._backend.store.put(key, b"")
        stamp = self._backend.store.head(key).modified_at
        self._backend.store.delete(key)
        return stamp

    def _refusing(self, work: Callable[[], A]) -> A:
        """A root that cannot be read ends it: what it protects is unknown."""
        try:
            return work()
        except (Corruption, NotFound, Unsupported) as error:
            if isinstance(error, NotFound) and self._others_collect():
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


def _on_lists(lists: Lists) -> dict[str, ObjectInfo]:
    return {one.key: one for trash, _ in lists for one in trash.files}


def _summary(state: StreamState, seqs: list[int]) -> ExpiredCommits:
    return ExpiredCommits(
        state.branch, state.stream, len(seqs), f"{state.stream}.{min(seqs)}", f"{state.stream}.{max(seqs)}"
    )
