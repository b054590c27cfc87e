"""What a query gives back: one Arrow table, and the ways to look at it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import Unsupported
from omnigraph.query.language.checked import STRING, Entity, ReturnColumn
from omnigraph.query.plan.facts import entity_columns
from omnigraph.schema.arrow import arrow_type, prop_type
from omnigraph.schema.catalog import Catalog, Property
from omnigraph.schema.values import to_output
from omnigraph.storage.lance.arrow_fit import fit_column

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column as users see it: `type` is the language's word, with `?` where nulls can occur."""

    name: str
    type: str


@dataclass(frozen=True)
class Result:
    """Rows of one query at one commit. `warnings` says what a reader of the rows must know, such as a ceiling hit."""

    table: pa.Table
    columns: tuple[ResultColumn, ...]
    commit_id: str
    warnings: tuple[str, ...] = ()
    _outputs: tuple[_OutputColumn, ...] = field(default=(), repr=False)

    @classmethod
    def of_table(
        cls, table: pa.Table, columns: tuple[ResultColumn, ...], commit_id: str, warnings: tuple[str, ...] = ()
    ) -> Result:
        """A result from the table of another one, such as one that came over the wire."""
        return cls(table, columns, commit_id, warnings, tuple(_output_of_field(one) for one in table.schema))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Plain Python values by column name: dates as `date`, moments as `datetime`, entities as dicts."""
        return list(self.table.to_pylist())

    @cached_property
    def json_rows(self) -> list[dict[str, Any]]:
        """The same rows in JSON values, as exports write them: ISO text for dates."""
        return [{one.name: one.to_json_value(row[one.name]) for one in self._outputs} for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """The table underneath, without a copy."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        _require("pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """A `polars.DataFrame`; the package must be installed."""
        found = _require("polars")
        return found.from_arrow(self.table)

    def to_json(self) -> dict[str, Any]:
        """The shape shared by `--json` and HTTP."""
        return {
            "commit_id": self.commit_id,
            "columns": [{"name": one.name, "type": one.type} for one in self.columns],
            "rows": self.json_rows,
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }


def _require(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise Unsupported(
            f"{package} is not installed", code="package_missing", advice=f"pip install {package}", package=package
        ) from error


@dataclass(frozen=True, slots=True)
class _OutputColumn:
    """How one result column is built from flat columns, and shown."""

    name: str
    properties: tuple[Property, ...]
    is_entity: bool

    @property
    def type(self) -> pa.DataType:
        if not self.is_entity:
            return arrow_type(self.properties[0].type)
        return pa.struct([pa.field(one.name, arrow_type(one.type)) for one in self.properties])

    def build(self, flat: list[pa.ChunkedArray]) -> pa.ChunkedArray:
        fitted = [fit_column(one, arrow_type(prop.type)) for one, prop in zip(flat, self.properties, strict=True)]
        if not self.is_entity:
            return fitted[0]
        # `id` comes first: an entity without one is missing.
        arrays = [one.combine_chunks() for one in fitted]
        fields = [pa.field(one.name, arrow_type(one.type)) for one in self.properties]
        return pa.chunked_array([pa.StructArray.from_arrays(arrays, fields=fields, mask=arrays[0].is_null())])

    def to_json_value(self, value: Any) -> Any:
        if not self.is_entity or value is None:
            return to_output(self.properties[0], value)
        return {one.name: to_output(one, value[one.name]) for one in self.properties}


@dataclass(frozen=True)
class ResultShape:
    """How flat columns become the columns of a result; the same for every run of a query."""

    columns: tuple[ResultColumn, ...]
    schema: pa.Schema
    outputs: tuple[_OutputColumn, ...]
    names: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: tuple[ReturnColumn, ...], names: tuple[tuple[str, ...], ...], catalog: Catalog) -> ResultShape:
        """`names` gives for each column the flat columns that it is made of."""
        outputs = tuple(_output_of_column(one, catalog) for one in columns)
        schema = pa.schema([pa.field(one.name, one.type) for one in outputs])
        return cls(tuple(ResultColumn(one.name, one.type_text) for one in columns), schema, outputs, names)

    def assemble(self, flat: pa.Table, commit_id: str, warnings: tuple[str, ...] = ()) -> Result:
        parts = zip(self.outputs, self.names, strict=True)
        built = [one.build([flat.column(name) for name in names]) for one, names in parts]
        return Result(pa.Table.from_arrays(built, schema=self.schema), self.columns, commit_id, warnings, self.outputs)


def _output_of_column(column: ReturnColumn, catalog: Catalog) -> _OutputColumn:
    value = column.value
    if not isinstance(value, Entity):
        return _OutputColumn(column.name, (Property("", column.name, value.type),), False)
    one = catalog.by_id[value.type.type_id]
    known: Mapping[str, Property] = one.by_id
    system = Property("", "", STRING)
    parts = [known[name] if name in known else Property(name, name, system.type) for name in entity_columns(one)]
    return _OutputColumn(column.name, tuple(parts), True)


def _output_of_field(column: pa.Field) -> _OutputColumn:
    if not pa.types.is_struct(column.type):
        return _OutputColumn(column.name, (Property("", column.name, prop_type(column.type)),), False)
    parts = tuple(Property("", one.name, prop_type(one.type)) for one in column.type)
    return _OutputColumn(column.name, parts, True)
