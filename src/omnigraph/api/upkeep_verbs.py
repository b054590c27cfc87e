"""`UpkeepVerbs`: the verbs of a graph that keep it fast, small and sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from omnigraph.api.handle import Handle
from omnigraph.api.recovery import make_recovery
from omnigraph.intents.recovery import RecoveryResult
from omnigraph.upkeep.cleanup.cleanup import Cleanup
from omnigraph.upkeep.cleanup.report import CleanupReport
from omnigraph.upkeep.cleanup.retention import Policy, parse_age_s
from omnigraph.upkeep.intent_report import IntentReport, report_intents
from omnigraph.upkeep.optimize import Optimizer, OptimizeReport, types_needing_optimize
from omnigraph.upkeep.tags import Tags
from omnigraph.upkeep.verify.findings import VerifyReport
from omnigraph.upkeep.verify.verify import RepairReport, repair, verify_graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
            from omnigraph.upkeep.compact_on_spark import SparkWorkers

            executor = SparkWorkers(self._runtime.backend.tables.location, spark)
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
        """Rebuild derived objects that are damaged: indexes, registry tombstones. Rows are never guessed."""
        self._require_writable()
        return repair(self._runtime, self._holder)

    @property
    def tags(self) -> Tags:
        """Names for commits, which cleanup never collects."""
        return Tags(self._runtime)
