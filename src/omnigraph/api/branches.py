"""`g.branch`: create, list, merge and delete branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.errors import InvalidInput, PreconditionFailed
from omnigraph.history.decide_row import MergeOptions, Resolution
from omnigraph.history.merge import MergeEngine, MergeEngineSettings, preview_merge, run_merge
from omnigraph.history.report import MergeReport
from omnigraph.log.commit_record import CommitRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.api.graph import Graph


class Branches:
    """`g.branch`: create, list, merge and delete branches."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def create(
        self, name: str, source: str | None = None, *, actor: str | None = None, message: str | None = None
    ) -> Graph:
        """A branch at `source` (a branch or commit id; by default this handle's branch), and a handle on it."""
        graph = self._graph
        graph._require_writable()
        branch = graph._runtime.create_branch(name, graph._resolve(source), WriteOptions(actor, message))
        return graph._with_branch(branch)

    def list(self) -> list[str]:
        return self._graph._runtime.branch_names()

    def delete(self, name: str, *, actor: str | None = None, message: str | None = None) -> None:
        """Delete the branch. Its commits stay readable by id; branches made from it live on."""
        self._graph._require_writable()
        self._graph._runtime.delete_branch(name, WriteOptions(actor, message))

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        cell_level: bool = False,
        resolve: Resolution | None = None,
        per_entity: Mapping[tuple[str, str], Resolution] | None = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        client_key: str | None = None,
        if_commit: str | None = None,
        engine: MergeEngine = "auto",
        spark: SparkSession | None = None,
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        progress: bool | None = None,
    ) -> MergeReport:
        """Merge the newest commit of `source` into `into` (by default this handle's branch), in one commit.

        A row that both changed is a conflict. `cell_level` joins the changes if they are in different properties,
        `per_entity` and `resolve` choose a side; see `MergeOptions`. If conflicts remain, it raises MergeConflict with
        all of them and writes nothing.

        With few changed rows it runs in this process, else on Spark, which `spark`, `master` and `spark_conf` choose;
        `engine` decides it. On Spark a dry run stages files, which no commit refers to.
        """
        runtime = self._graph._runtime
        if not dry_run:
            self._graph._require_writable()
        target = self._graph._branch if into is None else runtime.branch(into)
        if source == target.name:
            raise InvalidInput(f"branch {source!r} cannot be merged into itself", code="self_merge", branch=source)
        head = runtime.branch(source).publisher.refresh()
        options = MergeOptions(cell_level, resolve, per_entity or {})
        write = WriteOptions(actor, message or f"merge {source}", client_key, if_commit)
        settings = MergeEngineSettings(
            engine, spark, master, spark_conf or {}, progress, require_writable=self._graph._require_writable
        )
        if dry_run:
            return MergeReport.preview(preview_merge(runtime, head, target, options, write, settings))
        holder = self._graph._holder if into is None else None
        receipt = run_merge(runtime, head, target, options, write, settings, holder)
        return MergeReport.of(receipt, branch_deleted=delete_branch and self._delete_merged(source, head, actor))

    def _delete_merged(self, source: str, merged_head: CommitRecord, actor: str | None) -> bool:
        """Delete the source branch, unless it has a commit after the one that was merged."""
        try:
            self._graph._runtime.delete_branch(source, WriteOptions(actor, if_commit=merged_head.commit_id))
        except PreconditionFailed:
            return False
        return True
