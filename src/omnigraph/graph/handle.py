"""The graph as users hold it: each verb a few lines over the engine below."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn

from omnigraph.errors import BranchClosed, InvalidInput, Unsupported
from omnigraph.graph.branches import Branches
from omnigraph.graph.recovering import recovery
from omnigraph.graph.schema import Schema
from omnigraph.history.diff import Change, diff
from omnigraph.history.diff_pages import PAGE_LIMIT, DiffCursor, DiffPage, page_of
from omnigraph.history.feed import Feed, FeedLimits, Page
from omnigraph.lang.query.script import MutationScript, pick_query
from omnigraph.lang.schema.model import Catalog, EntityKind
from omnigraph.lang.statements import Condition, Overwrite, Statement
from omnigraph.load.inputs import Given, PathLike, Paths
from omnigraph.load.options import Engine, LoadOptions, Mode, OnDuplicate, OnError
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from omnigraph.log.record import CommitRecord, parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.transactions import GraphTransaction
from omnigraph.upkeep.cleanup import Cleanup
from omnigraph.upkeep.cleanup_report import CleanupReport
from omnigraph.upkeep.findings import VerifyReport
from omnigraph.upkeep.intents import IntentReport, report_intents
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport
from omnigraph.upkeep.repair import RepairReport, repair
from omnigraph.upkeep.retention import Policy, seconds_of
from omnigraph.upkeep.tags import Tags
from omnigraph.upkeep.verify import verify_graph
from omnigraph.views import CommitInfo, GraphView, Table
from omnigraph.write.mutate import Mutation, Script
from omnigraph.write.plan import Receipt, WriteOptions
from omnigraph.write.pressure import tables_in_need
from omnigraph.write.recovery import Recovered
from omnigraph.write.site import Branch, Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.engine.limits import QueryLimits
    from omnigraph.engine.result import Result
    from omnigraph.load.export import ExportEngine, ExportReport
    from omnigraph.load.formats import ExportFormat

Freshness = Literal["latest"] | float


class Graph:
    """A handle on one branch. May be used from several threads, and always sees its own commits."""

    def __init__(
        self, site: Site, branch: Branch, *, freshness: Freshness = "latest", holder: str | None = None
    ) -> None:
        self._site = site
        self._branch = branch
        self._freshness = freshness
        self._holder = holder
        self._asked_at = float("-inf")
        self.branch = Branches(self)

    @property
    def uri(self) -> str:
        return self._site.backend.store.root

    @property
    def graph_id(self) -> str:
        return self._site.stamp.graph_id

    @property
    def branch_name(self) -> str:
        return self._branch.name

    @property
    def schema(self) -> Schema:
        return Schema(self)

    def view(self, *, fresh: bool | None = None) -> GraphView:
        """The branch as it is now, pinned. `fresh` overrides the handle's freshness for this call."""
        record = self._head(fresh)
        if record.kind == "close":
            raise BranchClosed(
                f"branch {self.branch_name!r} was deleted",
                advice="Open the branch again by its name if it was re-created",
                branch=self.branch_name,
            )
        return self._view_of(record)

    def at(self, commit_id: str) -> GraphView:
        """The graph at a commit of any branch."""
        stream, seq = parse_commit_id(commit_id)
        # Names as this handle knows them: an old commit must be readable even if the newest record is not.
        names = self._site.catalogs.get(self._branch.publisher.head.schema)
        return self._view_of(self._site.records(stream).record(seq), names)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        return {"branch": self.branch_name, **self.view().snapshot(indexes=indexes)}

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        return self.view().commits(limit, actor=actor, kind=kind, branch=branch)

    def table(self, name: str) -> Table:
        return self.view().table(name)

    def spark(
        self,
        name: str,
        spark: SparkSession | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | str | None = None,
    ) -> DataFrame:
        """A type as a Spark frame, pinned to the branch as it is now."""
        return self.view().spark(name, spark, columns=columns, where=where)

    def spark_views(self, spark: SparkSession | None = None) -> dict[str, str]:
        """Temporary views of all types for Spark SQL, all of one commit: view name → table key."""
        return self.view().spark_views(spark)

    def export(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        format: ExportFormat = "ndjson",
        *,
        types: Sequence[str] | None = None,
        branch: str | None = None,
        at: str | None = None,
        engine: ExportEngine = "auto",
        partitioned: bool | None = None,
        overwrite: bool = False,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> ExportReport:
        """Write this branch as it is now, another branch, or a commit: see `GraphView.export`."""
        if branch is not None and at is not None:
            raise InvalidInput("branch and at contradict each other", advice="Leave out one of the two")
        view = self.at(at) if at is not None else self._view_named(branch)
        return view.export(
            path,
            format,
            types=types,
            engine=engine,
            partitioned=partitioned,
            overwrite=overwrite,
            spark=spark,
            progress=progress,
            storage_options=storage_options,
        )

    def _view_named(self, branch: str | None) -> GraphView:
        if branch is None or branch == self.branch_name:
            return self.view()
        return self._on(self._site.branch(branch)).view()

    def query(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: QueryLimits | None = None,
        engine: Literal["local", "spark"] = "local",
    ) -> Result:
        """Run a reading query on the branch as it is now; the result names the commit it was read from."""
        if engine != "local":
            raise _not_built("queries on Spark", "Run the query in-process, or read tables with g.spark")
        return self.view().query(source, params, name=name, limits=limits)

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity, on the branch as it is now."""
        return self.view().blob(type_name, row_id, name)

    def apply(
        self,
        statements: Sequence[Statement],
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run statements as one atomic commit. An overwrite is never repeated by itself after a conflict."""
        if any(isinstance(one, Overwrite) for one in statements):
            on_conflict = "fail"
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(lambda _: statements, options)

    def mutate(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run a mutation of the query language as one atomic commit. `name` picks one of several in the text."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._script(source, [params or {}], name, strict=strict), options)

    def mutate_many(
        self,
        source: str,
        params: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        strict: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
    ) -> Receipt:
        """Run one mutation for every set of parameters, all in one commit."""
        options = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return self._run(self._script(source, params, name, strict=strict), options)

    def transaction(
        self,
        *,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
    ) -> GraphTransaction:
        """Several mutations in one commit, each seeing the ones before; for use in a `with` block."""
        self._for_writing()
        options = WriteOptions(actor, message, client_key, if_commit, "fail")
        return GraphTransaction(self._site.backend, self._branch.writer, options, self._holder)

    def load(
        self,
        paths: Paths | Mapping[str, Paths] | Given,
        *,
        mode: Mode = "merge",
        on_error: OnError = "fail",
        rejects: PathLike | None = None,
        on_duplicate: OnDuplicate = "last",
        engine: Engine = "auto",
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
        progress: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
    ) -> LoadReport:
        """Load records as one commit: mixed NDJSON from paths, or files of one type each as `{"Person": path}`.

        Paths may be directories, globs and object-store addresses, which `storage_options` help to reach. `rejects`
        is a directory for records that are not loaded. Small inputs run in this process, others on Spark, which
        `spark`, `master` and `spark_conf` choose.
        """
        self._for_writing()
        options = LoadOptions(
            mode,
            on_error,
            os.fspath(rejects) if rejects is not None else None,
            on_duplicate,
            engine,
            storage_options=storage_options or {},
        )
        return run_load(
            LoadJob(
                self._site,
                self._branch,
                self._holder,
                find_inputs(Given.of(paths), self._site.catalogs, self._branch.publisher, options),
                options,
                WriteOptions(actor, message, client_key, if_commit, on_conflict),
                progress,
                spark,
                spark_conf or {},
                master,
            )
        )

    def stream(self, *_args: object, **_options: object) -> NoReturn:
        """Streaming ingest, which this version does not have."""
        raise _not_built("streaming ingest", "Load every micro-batch with g.load_frames inside foreachBatch")

    @property
    def analytics(self) -> NoReturn:
        """Graph algorithms, which this version does not have."""
        raise _not_built("graph analytics", "Read the edges with g.spark or g.table(…).to_arrow()")

    def load_frames(
        self,
        nodes: Mapping[str, DataFrame] | None = None,
        edges: Mapping[str, DataFrame] | None = None,
        *,
        mode: Mode = "merge",
        on_error: OnError = "fail",
        rejects: PathLike | None = None,
        on_duplicate: OnDuplicate = "last",
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        on_conflict: Literal["retry", "fail"] = "retry",
        progress: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> LoadReport:
        """Load Spark frames as one commit: by type, rows with the properties, for edges also `from` and `to`."""
        from omnigraph.spark.load import FrameLoad, run_frames

        self._for_writing()
        place = os.fspath(rejects) if rejects is not None else None
        options = LoadOptions(mode, on_error, place, on_duplicate, "spark", storage_options=storage_options or {})
        frames: dict[tuple[EntityKind, str], DataFrame] = {
            **{("node", name): frame for name, frame in (nodes or {}).items()},
            **{("edge", name): frame for name, frame in (edges or {}).items()},
        }
        write = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return run_frames(FrameLoad(self._site, self._branch, self._holder, frames, options, write, progress))

    def fold(self) -> str | None:
        """Move what rides in the newest record into tables. The commit that did it, or None."""
        self._for_writing()
        self._branch.publisher.refresh()
        done = self._branch.folder.fold(self._holder)
        return done.commit_id if done else None

    def diff(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Iterator[Change]:
        """What changed from `old` to `new`: commits or branches; by default up to this branch as it is now."""
        before, after = self._state(old), self._state(new)
        return diff(before, after, kinds=kinds, types=types, ops=ops)

    def diff_page(
        self,
        old: str,
        new: str | None = None,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """The same in pages. `cursor`, of the page before, names the commits: branches may have moved since."""
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        before, after = self._state(old), self._state(new)
        return page_of(before, after, diff(before, after, kinds=kinds, types=types, ops=ops), limit)

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
        limit: int | None = PAGE_LIMIT,
        cursor: str | None = None,
    ) -> DiffPage:
        """What one commit changed against its first parent, in pages."""
        if cursor is not None:
            return self._page_after(DiffCursor.decode(cursor), kinds, types, ops, limit)
        parents = self.at(commit_id).state.record.header.parents
        if not parents:
            return DiffPage(None, commit_id, (), None)
        return self.diff_page(parents[0].commit_id, commit_id, kinds=kinds, types=types, ops=ops, limit=limit)

    def changes(self, since: str | None = None, *, limits: FeedLimits | None = None) -> Page:
        """Commits of this branch after the cursor `since`, each with its changes, and the cursor to go on from."""
        site = self._site
        return Feed(site.backend, site.catalogs, self._branch.publisher.records, limits or FeedLimits()).page(since)

    def refresh(self) -> str:
        """Look for newer commits now. The newest commit's id."""
        return self.view(fresh=True).commit_id

    def on_branch(self, name: str) -> Graph:
        """A handle on another branch of the same graph."""
        return self._on(self._site.branch(name))

    def optimize(
        self,
        types: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[str], None] | None = None,
        engine: Literal["local", "spark"] = "local",
        spark: SparkSession | None = None,
    ) -> OptimizeReport:
        """Fold, compact and index this branch, or only some types of it; one commit, none if there is nothing to do.

        Compaction runs in this process, or with `engine="spark"` in tasks of a Spark session.
        """
        if not dry_run:
            self._for_writing()
        elsewhere = None
        if engine == "spark" and not dry_run:
            from omnigraph.spark.compact import rewriter

            elsewhere = rewriter(self._site.backend.tables.place, spark)
        optimizer = Optimizer(
            self._site, self._branch, self._holder, types=types, progress=progress, elsewhere=elsewhere
        )
        return optimizer.preview() if dry_run else optimizer.run()

    def needs_upkeep(self) -> list[str]:
        """Types with so many small fragments that optimize should run. The newest known record tells, at no cost."""
        record = self._branch.publisher.head
        names = {one.id: one.name for one in self._site.catalogs.get(record.schema).types}
        return [names[table] for table in tables_in_need(record, self._site.backend.config) if table in names]

    def optimize_if_needed(self) -> OptimizeReport | None:
        """Optimize the types that need it, if any does: what a long-lived process calls now and then."""
        needy = self.needs_upkeep()
        return self.optimize(needy) if needy else None

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | None = None,
        confirm: bool = False,
        policy: Policy | None = None,
    ) -> CleanupReport:
        """Collect commits beyond the newest `keep` and older than `older_than` ("7d"), and files that no commit names.

        Only a preview unless `confirm`. All branches; tags, starts of branches and merge bases stay. `policy` has
        the finer settings, and then decides alone.
        """
        wanted = policy or Policy(keep, seconds_of(older_than) if older_than is not None else None)
        if confirm:
            self._for_writing()
        holders = {self._branch.entry.stream: self._holder} if self._holder else {}
        run = Cleanup(self._site, wanted, holders)
        return run.run() if confirm else run.preview()

    def recover(self, now: str | None = None) -> list[Recovered]:
        """End the bulk operations whose process is gone, on all branches; `now` names one that need not be waited for.

        What was staged in full is published, the rest is given up; nothing is deleted. Opening for writing does the
        same.
        """
        self._for_writing()
        holders = {self._branch.entry.stream: self._holder} if self._holder else {}
        return recovery(self._site, holders).run(now=now)

    def recover_list(self) -> list[IntentReport]:
        """Every bulk operation that left word of itself, and what is left of those that were given up."""
        return report_intents(self._site)

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Check the whole graph, all branches: records, registry, tables, files, rows. `deep` reads every file."""
        return verify_graph(self._site, deep=deep)

    def repair(self) -> RepairReport:
        """Make anew what is derived and damaged: indexes, registry tombstones. Data is never guessed."""
        self._for_writing()
        return repair(self._site, self._holder)

    @property
    def tags(self) -> Tags:
        """Names for commits, which cleanup never collects."""
        return Tags(self._site)

    def close(self) -> None:
        """Give up an exclusive claim, if this handle has one."""
        if self._holder is not None:
            self._site.release(self._branch, self._holder, WriteOptions())
            self._holder = None

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _on(self, branch: Branch) -> Graph:
        return Graph(self._site, branch, freshness=self._freshness)

    def _state(self, name: str | None) -> Snapshot:
        """A commit, or the newest commit of a branch."""
        if name is None:
            return self.view().state
        found = self.branch._resolve(name)
        record = found if isinstance(found, CommitRecord) else found.publisher.refresh()
        return self._view_of(record).state

    def _page_after(
        self, place: DiffCursor, kinds: Collection[str], types: Collection[str], ops: Collection[str], limit: int | None
    ) -> DiffPage:
        before, after = self.at(place.old).state, self.at(place.new).state
        last = (place.type_id, place.row_id)
        return page_of(before, after, diff(before, after, kinds=kinds, types=types, ops=ops, after=last), limit)

    def _script(
        self, source: str, params: Sequence[Mapping[str, Any]], name: str | None, *, strict: bool
    ) -> MutationScript:
        return MutationScript(pick_query(source, name), params, self._site.backend.clock.now(), strict)

    def _run(self, script: Script, options: WriteOptions) -> Receipt:
        self._for_writing()
        return self._branch.writer.run(Mutation(self._site.backend, script), options, self._holder)

    def _head(self, fresh: bool | None) -> CommitRecord:
        clock, publisher = self._site.backend.clock, self._branch.publisher
        if fresh is None:
            fresh = self._freshness == "latest" or clock.monotonic() - self._asked_at >= float(self._freshness)
        if not fresh:
            return publisher.head
        self._asked_at = clock.monotonic()
        return publisher.refresh()

    def _view_of(self, record: CommitRecord, names: Catalog | None = None) -> GraphView:
        catalog = self._site.catalogs.get(record.schema)
        return GraphView(self._site, Snapshot(self._site.backend, record, catalog), names)

    def _for_writing(self) -> None:
        if self._site.read_only:
            raise Unsupported(
                "this graph was opened read-only", code="read_only", advice="Open it without read_only=True"
            )


def _not_built(what: str, advice: str) -> Unsupported:
    return Unsupported(f"{what}: not built yet in this version", code="not_built", advice=advice)
