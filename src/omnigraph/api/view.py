"""What can be read: one table, one commit, the commits before it. Nothing here can change anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import pyarrow as pa

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import InvalidInput, NotFound, Unsupported
from omnigraph.log.commit_record import Header
from omnigraph.log.indexes import measure_table_coverage
from omnigraph.log.lineage import first_parents
from omnigraph.log.snapshot import Snapshot
from omnigraph.log.stamp import INTERNAL_SCHEMA
from omnigraph.query.language.check_statements import column_of
from omnigraph.query.language.statements import Compare, Condition
from omnigraph.query.plan.arrow_predicate import condition_to_expression
from omnigraph.schema.catalog import Catalog, Scalar, TypeDef, no_such_type

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


class Table:
    """One type of one snapshot. `now` is the same type under today's schema, for properties renamed since."""

    def __init__(self, snapshot: Snapshot, one: TypeDef, now: TypeDef | None = None) -> None:
        self._snapshot = snapshot
        self._type = one
        self._named = _also_named(one, now) if now is not None else one

    def to_arrow(self, columns: Sequence[str] | None = None, where: Condition | None = None) -> pa.Table:
        """Rows under the names asked for; by default `id`, for edges `from` and `to`, then all properties."""
        one = self._type
        names = list(columns) if columns is not None else [*_system_names(one), *one.by_name]
        ids = [column_of(self._named, name).id for name in names]
        condition = condition_to_expression(self._named, where) if where is not None else None
        with self._snapshot.reading():
            return self._snapshot.view(one).scan(ids, condition).rename_columns(names)

    def count(self) -> int:
        with self._snapshot.reading():
            return self._snapshot.view(self._type).count()

    @property
    def key(self) -> str:
        """How errors and reports name this table: `node:Person`."""
        return self._type.table_key

    def spark(
        self,
        session: SparkSession | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Condition | str | None = None,
    ) -> DataFrame:
        """The same rows as a pinned Spark frame; `where` may be text such as `age > 30`."""
        from omnigraph.spark.data_source import read_frame
        from omnigraph.spark.where_text import parse_where, renamed

        names = list(columns) if columns is not None else [*_system_names(self._type), *self._type.by_name]
        own = [self._own_name(name) for name in names]
        condition = parse_where(where) if isinstance(where, str) else where
        if condition is not None:
            condition = renamed(condition, self._own_name)
        frame = read_frame(self._snapshot, self._type, session, columns=own, where=condition)
        return frame if own == names else frame.toDF(*names)

    def lance(self) -> NoReturn:
        """The raw Lance dataset, which this version does not hand out: rows may ride in the record beside it."""
        raise Unsupported(
            "the raw Lance dataset: not built yet in this version",
            code="not_built",
            advice="Use to_arrow() or spark(), which see every row",
        )

    def _own_name(self, name: str) -> str:
        """The name that this commit has for a column."""
        found = self._type.by_id.get(column_of(self._named, name).id)
        return found.name if found is not None else name

    def _blob(self, row_id: str, name: str) -> pa.Table:
        prop = column_of(self._named, name)
        if prop.type.scalar is not Scalar.BLOB:
            raise InvalidInput(
                f"`{name}` of {self._type.name} is a {prop.type}, not a Blob",
                code="not_a_blob",
                advice="Ask for it by a query",
            )
        return self.to_arrow([name], Compare("id", "=", row_id))


class GraphView:
    """A graph pinned to one commit: everything that can be read, nothing that can be written."""

    def __init__(self, runtime: GraphRuntime, snapshot: Snapshot, names: Catalog | None = None) -> None:
        self._runtime = runtime
        self._snapshot = snapshot
        self._names = names or snapshot.catalog

    @property
    def commit_id(self) -> str:
        return self._snapshot.commit_id

    @property
    def state(self) -> Snapshot:
        """What engines read."""
        return self._snapshot

    @property
    def catalog(self) -> Catalog:
        """The compiled schema of this commit."""
        return self._snapshot.catalog

    def table(self, name: str) -> Table:
        """A type by its name at this commit, or by the name it has now: identity survives renames."""
        now = self._names.node(name) or self._names.edge(name)
        known = self._snapshot.catalog.node(name) or self._snapshot.catalog.edge(name)
        if known is None and now is not None:
            known = self._snapshot.catalog.by_id.get(now.id)
        if known is None:
            raise no_such_type(name, self._snapshot.catalog)
        return Table(self._snapshot, known, self._names.by_id.get(known.id))

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

        named = None if types is None else tuple(self._named_key(name) for name in types)
        given = (
            dict(self._runtime.backend.tables.location.options) if storage_options is None else dict(storage_options)
        )
        options = ExportOptions(format, named, engine, partitioned, overwrite, given, progress)
        return export(self._snapshot, path, options, spark)

    def _named_key(self, name: str) -> str:
        """The key, at this commit, of a type by its name then or now; a key is left as it is."""
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
        """Commit, storage format, and per type the pin, counts and overlay.

        `indexes` adds how much of its table each index covers, which costs the tables' own lists of indexes.
        """
        described = self._snapshot.describe()
        if indexes:
            for table in described["tables"]:
                found = measure_table_coverage(self._snapshot, self.catalog.by_id[table["table_id"]])
                table["indexes"] = [asdict(one) for one in found]
        return {"graph_id": self._runtime.stamp.graph_id, "internal_schema": INTERNAL_SCHEMA, **described}

    def blob(self, type_name: str, row_id: str, name: str) -> bytes | None:
        """The bytes of one Blob property of one entity; None if it has none."""
        found = self.table(type_name)._blob(row_id, name)
        if found.num_rows == 0:
            raise NotFound(
                f"{type_name} has no row with id {row_id!r}",
                code="no_such_entity",
                advice="Name an entity of this commit",
                type=type_name,
                id=row_id,
            )
        value: bytes | None = found.column(0)[0].as_py()
        return value

    def commits(
        self, limit: int | None = 20, *, actor: str | None = None, kind: str | None = None, branch: str | None = None
    ) -> list[CommitInfo]:
        """This commit and those before it, newest first, along first parents; only those that match."""
        return list(
            islice((CommitInfo.of(one) for one in self._headers() if _matches(one, actor, kind, branch)), limit)
        )

    def commit(self) -> dict[str, Any]:
        """This one commit: its place, who made it, and what it did to each table."""
        record = self._snapshot.record
        members = [
            {"op_id": one.op_id, "actor": one.actor, "client_key": one.client_key, "counts": dict(one.counts)}
            for one in record.members
        ]
        touched = [
            {
                "table_key": self.catalog.by_id[table].table_key if table in self.catalog.by_id else table,
                "inserted": one.inserted,
                "updated": one.updated,
                "deleted": one.deleted,
                "staged": one.staged,
            }
            for table, one in sorted(record.touched.items())
        ]
        return {**CommitInfo.of(record.header).to_json(), "members": members, "touched": touched}

    def _headers(self) -> Iterator[Header]:
        return first_parents(self._runtime.records, self._snapshot.record)


def _also_named(one: TypeDef, now: TypeDef) -> TypeDef:
    """`one` with its properties under today's names too, where an older name does not have that meaning already."""
    renamed = [
        replace(one.by_id[prop.id], name=prop.name)
        for prop in now.properties
        if prop.id in one.by_id and prop.name not in one.by_name
    ]
    return replace(one, properties=(*one.properties, *renamed))


def _system_names(one: TypeDef) -> list[str]:
    return ["id", "from", "to"] if one.kind == "edge" else ["id"]


def _matches(header: Header, actor: str | None, kind: str | None, branch: str | None) -> bool:
    actors = {header.actor, *(one.actor for one in header.members)}
    return (
        (actor is None or actor in actors)
        and (kind is None or kind == header.kind)
        and (branch is None or branch == header.branch)
    )
