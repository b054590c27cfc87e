"""A graph pinned to one commit: tables, queries, export, and the commits before it. Nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from omnigraph.api.table import Table
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import NotFound
from omnigraph.log.commit_record import Header
from omnigraph.log.indexes import measure_table_coverage
from omnigraph.log.lineage import first_parents
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stamp import INTERNAL_SCHEMA
from omnigraph.query.language.statements import Condition
from omnigraph.schema.catalog import Catalog, no_such_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.load.export.export import ExportEngine, ExportReport
    from omnigraph.load.export.formats import ExportFormat
    from omnigraph.query.limits import QueryLimits
    from omnigraph.query.run.explain import Explanation
    from omnigraph.query.run.result import Result
    from omnigraph.query.run.run_query import QueryRun


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """A commit as users see it."""

    commit_id: str
    seq: int
    parents: tuple[str, ...]
    kind: str
    actor: str | None
    created_at: str
    message: str | None
    branch: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "parents": list(self.parents)}

    @classmethod
    def of(cls, header: Header) -> CommitInfo:
        return cls(
            header.commit_id,
            header.seq,
            tuple(parent.commit_id for parent in header.parents),
            header.kind,
            header.actor,
            header.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            header.message,
            header.branch,
        )


class GraphView:
    """A graph pinned to one commit: it can be read, not written."""

    def __init__(self, runtime: GraphRuntime, snapshot: Snapshot, current_catalog: Catalog | None = None) -> None:
        self._runtime = runtime
        self._snapshot = snapshot
        self._current_catalog = current_catalog or snapshot.catalog

    @property
    def commit_id(self) -> str:
        return self._snapshot.commit_id

    @property
    def state(self) -> Snapshot:
        """The `Snapshot` itself, which engines read; `snapshot()` describes it."""
        return self._snapshot

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of this commit."""
        return self._snapshot.catalog

    def table(self, name: str) -> Table:
        """A type by its name at this commit, or by the name it has now: identity survives renames."""
        current = self._current_catalog.node(name) or self._current_catalog.edge(name)
        type_def = self._snapshot.catalog.node(name) or self._snapshot.catalog.edge(name)
        if type_def is None and current is not None:
            type_def = self._snapshot.catalog.by_id.get(current.id)
        if type_def is None:
            raise no_such_type(name, self._snapshot.catalog)
        return Table(self._snapshot, type_def, self._current_catalog.by_id.get(type_def.id))

    def spark(
        self,
        name: str,
        spark: SparkSession | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | str | None = None,
    ) -> DataFrame:
        """A type as a Spark frame, pinned to this commit; columns and rows are chosen before Spark sees them."""
        return self.table(name).spark(spark, columns=columns, where=where)

    def spark_views(self, spark: SparkSession | None = None) -> dict[str, str]:
        """Temporary views of all types for Spark SQL, all of this commit: view name → table key."""
        from omnigraph.spark.data_source import create_views

        return create_views(self._snapshot, spark)

    def export(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        format: ExportFormat = "ndjson",
        *,
        types: Sequence[str] | None = None,
        engine: ExportEngine = "auto",
        partitioned: bool | None = None,
        overwrite: bool = False,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> ExportReport:
        """Write this commit to a file, a folder (a path that ends in `/`) or a binary stream.

        `ndjson` is one stream of records, nodes first, sorted by type and id; `parquet` and `csv` are one folder per
        type. Large graphs are written by Spark. Storage options are those of the graph unless others are given.
        """
        from omnigraph.load.export.export import ExportOptions, export

        keys = None if types is None else tuple(self._table_key(name) for name in types)
        graph_options = self._runtime.backend.tables.location.options
        store_options = dict(graph_options) if storage_options is None else dict(storage_options)
        options = ExportOptions(format, keys, engine, partitioned, overwrite, store_options, progress)
        return export(self._snapshot, path, options, spark)

    def _table_key(self, name: str) -> str:
        """Returns the table key at this commit of a type by its name then or now; a key is returned as it is."""
        return name if ":" in name else self.table(name).key

    def query(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: QueryLimits | None = None,
    ) -> Result:
        """Run a reading query on this commit. `name` picks one of several in the text."""
        return self._start_query(source, params, name, limits).result()

    def explain(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        limits: QueryLimits | None = None,
        profile: bool = False,
    ) -> Explanation:
        """Run a query and report plan, SQL, requests, access path and rows of every step; `profile` adds seconds."""
        return self._start_query(source, params, name, limits).explain(profile=profile)

    def _start_query(
        self, source: str, params: Mapping[str, Any] | None, name: str | None, limits: QueryLimits | None
    ) -> QueryRun:
        from omnigraph.query.run.run_query import start_query

        now = self._runtime.backend.clock.now()
        return start_query(source, params, name, self.catalog, lambda _: self._snapshot, now, limits)

    def snapshot(self, *, indexes: bool = False) -> dict[str, Any]:
        """Describes `state`: commit, storage format, and per type the pin, counts and overlay.

        `indexes` adds how much of its table each index covers, which costs the tables' own lists of indexes.
        """
        described = self._snapshot.describe()
        if indexes:
            for table in described["tables"]:
                coverages = measure_table_coverage(self._snapshot, self.catalog.by_id[table["table_id"]])
                table["indexes"] = [asdict(coverage) for coverage in coverages]
        return {"graph_id": self._runtime.stamp.graph_id, "internal_schema": INTERNAL_SCHEMA, **described}

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity; None if it has none."""
        rows = self.table(type_name)._blob(row_id, name)
        if rows.num_rows == 0:
            raise NotFound(
                f"{type_name} has no row with id {row_id!r}",
                code="no_such_entity",
                advice="Name an entity of this commit",
                type=type_name,
                id=row_id,
            )
        value: bytes | None = rows.column(0)[0].as_py()
        return value

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        """This commit and those before it, newest first, along first parents; only those that match."""
        headers = first_parents(self._runtime.records, self._snapshot.record)
        matching = (CommitInfo.of(header) for header in headers if _matches(header, actor, kind, branch))
        return list(islice(matching, limit))

    def commit(self) -> dict[str, Any]:
        """This one commit: its position in the history, who made it, and what it did to each table."""
        commit_record = self._snapshot.record
        members = [
            {
                "op_id": member.op_id,
                "actor": member.actor,
                "client_key": member.client_key,
                "counts": dict(member.counts),
            }
            for member in commit_record.members
        ]
        touched = [
            {
                "table_key": self.catalog.by_id[table].table_key if table in self.catalog.by_id else table,
                "inserted": touch.inserted,
                "updated": touch.updated,
                "deleted": touch.deleted,
                "staged": touch.staged,
            }
            for table, touch in sorted(commit_record.touched.items())
        ]
        return {**CommitInfo.of(commit_record.header).to_json(), "members": members, "touched": touched}


def _matches(header: Header, actor: str | None, kind: str | None, branch: str | None) -> bool:
    actors = {header.actor, *(member.actor for member in header.members)}
    return (
        (actor is None or actor in actors)
        and (kind is None or kind == header.kind)
        and (branch is None or branch == header.branch)
    )
