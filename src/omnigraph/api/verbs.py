"""Verbs of a graph about many rows and about its files.

`BulkVerbs`: load, export, and types as Spark frames. `UpkeepVerbs`: fold, optimize, cleanup, recover, verify, repair.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Literal, NoReturn

from omnigraph.api.handle import Handle, not_built
from omnigraph.api.recovery import make_recovery
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import InvalidInput
from omnigraph.intents.recovery import RecoveryResult
from omnigraph.load.inputs import LoadSources, PathLike, Paths
from omnigraph.load.options import LoadEngine, LoadMode, LoadOptions, OnDuplicate, OnError
from omnigraph.load.report import LoadReport
from omnigraph.load.run import LoadJob, find_inputs, run_load
from omnigraph.query.language.statements import Condition
from omnigraph.schema.catalog import EntityKind
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy, parse_age_s
from omnigraph.upkeep.intent_report import IntentReport, report_intents
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport, types_needing_optimize
from omnigraph.upkeep.tags import Tags
from omnigraph.upkeep.verify.findings import VerifyReport
from omnigraph.upkeep.verify.verify import RepairReport, repair, verify_graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.load.export.export import ExportEngine, ExportReport
    from omnigraph.load.export.formats import ExportFormat


class BulkVerbs(Handle):
    """Loads, exports and Spark frames of the branch."""

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

    def load(
        self,
        paths: Paths | Mapping[str, Paths] | LoadSources,
        *,
        mode: LoadMode = "merge",
        on_error: OnError = "fail",
        rejects: PathLike | None = None,
        on_duplicate: OnDuplicate = "last",
        engine: LoadEngine = "auto",
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
        self._require_writable()
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
                self._runtime,
                self._branch,
                self._holder,
                find_inputs(LoadSources.of(paths), self._runtime.catalogs, self._branch.publisher, options),
                options,
                WriteOptions(actor, message, client_key, if_commit, on_conflict),
                progress,
                spark,
                spark_conf or {},
                master,
            )
        )

    def load_frames(
        self,
        nodes: Mapping[str, DataFrame] | None = None,
        edges: Mapping[str, DataFrame] | None = None,
        *,
        mode: LoadMode = "merge",
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
        from omnigraph.load.spark.load import FrameLoad, load_frames

        self._require_writable()
        rejects_path = os.fspath(rejects) if rejects is not None else None
        options = LoadOptions(
            mode, on_error, rejects_path, on_duplicate, "spark", storage_options=storage_options or {}
        )
        frames: dict[tuple[EntityKind, str], DataFrame] = {
            **{("node", name): frame for name, frame in (nodes or {}).items()},
            **{("edge", name): frame for name, frame in (edges or {}).items()},
        }
        write = WriteOptions(actor, message, client_key, if_commit, on_conflict)
        return load_frames(FrameLoad(self._runtime, self._branch, self._holder, frames, options, write, progress))

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

    def stream(self, *_args: object, **_options: object) -> NoReturn:
        """Streaming ingest, which this version does not have."""
        raise not_built("streaming ingest", "Load every micro-batch with g.load_frames inside foreachBatch")

    @property
    def analytics(self) -> NoReturn:
        """Graph algorithms, which this version does not have."""
        raise not_built("graph analytics", "Read the edges with g.spark or g.table(…).to_arrow()")


class UpkeepVerbs(Handle):
    """Folding, optimize, cleanup, recovery, verify, repair and tags."""

    def fold(self) -> str | None:
        """Fold the overlay of the newest commit into tables. Returns the id of the new commit, or None."""
        self._require_writable()
        self._branch.publisher.refresh()
        fold_record = self._branch.folder.fold(self._holder)
        return fold_record.commit_id if fold_record else None

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

        Compaction and the building of indexes run in this process, or with `engine="spark"` in tasks of a Spark
        session.
        """
        if not dry_run:
            self._require_writable()
        executor = None
        if engine == "spark" and not dry_run:
            from omnigraph.upkeep.optimize_on_spark import SparkRewriteExecutor

            executor = SparkRewriteExecutor(self._runtime.backend.tables.location, spark)
        optimizer = Optimizer(
            self._runtime, self._branch, self._holder, types=types, progress=progress, executor=executor
        )
        return optimizer.preview() if dry_run else optimizer.run()

    def needs_upkeep(self) -> list[str]:
        """Types with so many small fragments that optimize should run, by the newest known commit: costs no request."""
        head = self._branch.publisher.head
        return types_needing_optimize(head, self._runtime.catalogs.get(head.schema), self._runtime.backend.config)

    def optimize_if_needed(self) -> OptimizeReport | None:
        """Optimize the types that need it, if any does: what a long-lived process calls now and then."""
        types = self.needs_upkeep()
        return self.optimize(types) if types else None

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
        retention = policy or Policy(keep, parse_age_s(older_than) if older_than is not None else None)
        if confirm:
            self._require_writable()
        holders = {self._branch.entry.stream: self._holder} if self._holder else {}
        job = Cleanup(self._runtime, retention, holders)
        return job.run() if confirm else job.preview()

    def recover(self, now: str | None = None) -> list[RecoveryResult]:
        """End the bulk operations whose process is gone, on all branches; `now` names one that need not be waited for.

        What was staged in full is published, the rest is given up; nothing is deleted. Opening for writing does the
        same.
        """
        self._require_writable()
        holders = {self._branch.entry.stream: self._holder} if self._holder else {}
        return make_recovery(self._runtime, holders).run(now=now)

    def recover_list(self) -> list[IntentReport]:
        """Every bulk operation that has an intent, and the files that remain of those that were given up."""
        return report_intents(self._runtime)

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Check the whole graph, all branches: records, registry, tables, files, rows. `deep` reads every file."""
        return verify_graph(self._runtime, deep=deep)

    def repair(self) -> RepairReport:
        """Rebuild derived objects that are damaged: indexes, end entries of branches. Rows are never guessed."""
        self._require_writable()
        return repair(self._runtime, self._holder)

    @property
    def tags(self) -> Tags:
        """Names for commits, which cleanup never collects."""
        return Tags(self._runtime)
