"""`spark.read.format("omnigraph")`: one type of a graph as a frame, pinned when it is loaded.

Spark's filter pushdown for Python sources is never used: Spark 4.3.0 keeps pushed filters in an object that all uses
of a frame share, and then returns wrong rows (tests/guards shows it). Columns and filter are options instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.log.branches import MAIN
from omnigraph.log.commit_record import parse_commit_id
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.statements import Condition
from omnigraph.schema.catalog import Catalog, TypeDef, no_such_type
from omnigraph.spark.session import get_session
from omnigraph.spark.table_scan import PART_BYTES, Part, TableScan, plan_parts
from omnigraph.spark.types import spark_schema, to_spark
from omnigraph.spark.where_text import parse_where, where_text
from omnigraph.storage.open_backend import make_backend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "omnigraph"
STORAGE_PREFIX = "storage."
_OPTIONS = ("graph", "type", "branch", "at", "columns", "filter", "part_bytes")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one `spark.read.format("omnigraph")…load()`, in plain values."""

    graph: str
    type: str
    branch: str | None = None
    at: str | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    part_bytes: int = PART_BYTES
    storage: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """From the options that Spark passes; Spark does not keep the case of their names."""
        storage = {
            name.removeprefix(STORAGE_PREFIX): value
            for name, value in options.items()
            if name.startswith(STORAGE_PREFIX)
        }
        values = {name: value for name, value in options.items() if not name.startswith(STORAGE_PREFIX)}
        path = values.pop("path", None)
        if path is not None:
            values.setdefault("graph", path)
        unknown = sorted(set(values) - set(_OPTIONS))
        if unknown:
            raise InvalidInput(
                f"format {NAME!r} has no option {unknown[0]!r}",
                code="unknown_option",
                advice=f"It has {', '.join(_OPTIONS)} and {STORAGE_PREFIX}<setting of the store>",
            )
        for name in ("graph", "type"):
            if not values.get(name):
                raise InvalidInput(f"format {NAME!r} needs the option {name!r}", code="missing_option")
        if values.get("branch") and values.get("at"):
            raise InvalidInput("the options 'branch' and 'at' contradict each other", advice="Leave out one of them")
        columns = values.get("columns")
        return cls(
            graph=values["graph"],
            type=values["type"],
            branch=values.get("branch"),
            at=values.get("at"),
            columns=tuple(column.strip() for column in columns.split(",")) if columns is not None else None,
            filter=values.get("filter"),
            part_bytes=_positive("part_bytes", values["part_bytes"]) if "part_bytes" in values else PART_BYTES,
            storage=tuple(sorted(storage.items())),
        )

    def to_spark(self) -> dict[str, str]:
        """The options as a reader of Spark takes them."""
        options = {"graph": self.graph, "type": self.type, "branch": self.branch, "at": self.at, "filter": self.filter}
        if self.columns is not None:
            options["columns"] = ",".join(self.columns)
        if self.part_bytes != PART_BYTES:
            options["part_bytes"] = str(self.part_bytes)
        plain = {name: value for name, value in options.items() if value is not None}
        return plain | {f"{STORAGE_PREFIX}{name}": value for name, value in self.storage}


@dataclass(frozen=True, slots=True)
class _Piece(InputPartition):
    """One part of a table, in the class that Spark requires to pass it to a worker."""

    part: Part


class OmnigraphSource(DataSource):
    """Made once per `load()` in a process of Spark and pickled from then on, so its snapshot stays pinned."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({})  # the options may hold credentials; what is needed of them is in the parts
        source_options = SourceOptions.parse(options)
        snapshot = _read_snapshot(source_options)
        type_def = resolve_type(source_options.type, snapshot.catalog)
        self.commit_id = snapshot.commit_id
        self._scan = TableScan.of(
            type_def, source_options.columns, parse_where(source_options.filter) if source_options.filter else None
        )
        self._parts = plan_parts(snapshot, type_def, source_options.part_bytes)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(self._scan.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """`schema` is ours, or the user's from `.schema(…)`: then it prunes, and its types must be ours."""
        scan = TableScan.of(self._scan.type, schema.fieldNames(), self._scan.where)
        for expected, requested in zip(spark_schema(scan.schema), schema, strict=True):
            if expected.dataType.simpleString() != requested.dataType.simpleString():
                raise InvalidInput(
                    f"{expected.name} is {expected.dataType.simpleString()}, not {requested.dataType.simpleString()}",
                    code="wrong_schema",
                    advice="Leave out .schema(…) and cast in Spark",
                )
        return OmnigraphReader(scan, self._parts, schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise Unsupported(
            f"format {NAME!r} cannot be written",
            advice="Use omnigraph.open(…).load_frames(…): all types in one commit",
        )

    def streamReader(self, schema: StructType) -> NoReturn:
        raise _no_streams()

    def simpleStreamReader(self, schema: StructType) -> NoReturn:
        raise _no_streams()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _no_streams()


class OmnigraphReader(DataSourceReader):
    """Reads parts on the workers. It must not have `pushFilters`: see the head of this module."""

    def __init__(self, scan: TableScan, parts: Sequence[Part], schema: StructType) -> None:
        self._scan = scan
        self._parts = list(parts)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [_Piece(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Piece):  # Spark makes up a partition if there is no part
            return
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")  # Spark compares each batch with just this
        for batch in self._scan.read(partition.part):
            yield to_spark(batch, arrow_schema)


def register(session: SparkSession) -> None:
    """Make `format("omnigraph")` known to a session."""
    session.dataSource.register(OmnigraphSource)


def read_frame(
    snapshot: Snapshot,
    type_def: TypeDef,
    session: SparkSession | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: Condition | None = None,
    part_bytes: int = PART_BYTES,
) -> DataFrame:
    """A type of a snapshot as a frame. The names are those of the snapshot's own schema."""
    TableScan.of(type_def, columns, where)  # raises a typed error for a wrong name
    location = snapshot.backend.tables.location
    options = SourceOptions(
        graph=location.address,
        type=type_def.table_key,
        at=snapshot.commit_id,
        columns=tuple(columns) if columns is not None else None,
        filter=where_text(where) if where is not None else None,
        part_bytes=part_bytes,
        storage=location.options,
    )
    spark = get_session(existing=session)
    register(spark)
    return spark.read.format(NAME).options(**options.to_spark()).load()


def create_views(snapshot: Snapshot, session: SparkSession | None = None) -> dict[str, str]:
    """Temporary views of all types for Spark SQL, all of one commit: view name → table key.

    A view has its type's name. Spark does not tell upper from lower case in names; where that makes two types the
    same, their views are called `node_…` and `edge_…`.
    """
    spark = get_session(existing=session)
    names = view_names(snapshot.catalog)
    for view, type_def in names.items():
        read_frame(snapshot, type_def, spark).createOrReplaceTempView(f"`{view}`")
    return {view: type_def.table_key for view, type_def in names.items()}


def view_names(catalog: Catalog) -> dict[str, TypeDef]:
    lower_names = [type_def.name.lower() for type_def in catalog.types]
    return {
        type_def.name if lower_names.count(type_def.name.lower()) == 1 else f"{type_def.kind}_{type_def.name}": type_def
        for type_def in catalog.types
    }


def resolve_type(name: str, catalog: Catalog) -> TypeDef:
    """A type by its name, a node type before an edge type; or by its key (`edge:Knows`)."""
    kind, _, type_name = name.partition(":")
    type_def = (
        {"node": catalog.node, "edge": catalog.edge}[kind](type_name)
        if kind in ("node", "edge") and type_name
        else None
    )
    type_def = type_def or catalog.node(name) or catalog.edge(name)
    if type_def is None:
        raise no_such_type(name, catalog)
    return type_def


def _read_snapshot(source_options: SourceOptions) -> Snapshot:
    runtime = GraphRuntime.open(make_backend(source_options.graph, dict(source_options.storage)), read_only=True)
    if source_options.at is not None:
        stream, seq = parse_commit_id(source_options.at)
        record = runtime.records(stream).record(seq)
    else:
        record = runtime.branch(source_options.branch or MAIN).publisher.head
    return Snapshot(runtime.backend, record, runtime.catalogs.get(record.schema))


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(f"the option {name!r} is {text!r}", advice="Use a whole number from 1 on")
    return int(text)


def _no_streams() -> Unsupported:
    return Unsupported(
        f"format {NAME!r} cannot be streamed in this version",
        code="streaming_unsupported",
        advice="Use spark.read for a snapshot, or `changes` for what changed since",
    )
