"""The result of a query: one Arrow table, and its conversions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
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
        return cls(table, columns, commit_id, warnings, tuple(_output_of_field(field) for field in table.schema))

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
        return [{output.name: output.to_json_value(row[output.name]) for output in self._outputs} for row in self.rows]

    def to_arrow(self) -> pa.Table:
        """The table underneath, without a copy."""
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        _require("pandas")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """A `polars.DataFrame`; the package must be installed."""
        return _require("polars").from_arrow(self.table)

    def to_json(self) -> dict[str, Any]:
        """The shape shared by `--json` and HTTP."""
        return {
            "commit_id": self.commit_id,
            "columns": [{"name": column.name, "type": column.type} for column in self.columns],
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
    """How one result column is built from flat columns and converted to JSON."""

    name: str
    properties: tuple[Property, ...]
    is_entity: bool

    @property
    def type(self) -> pa.DataType:
        if not self.is_entity:
            return arrow_type(self.properties[0].type)
        return pa.struct([pa.field(prop.name, arrow_type(prop.type)) for prop in self.properties])

    def build(self, flat: list[pa.ChunkedArray]) -> pa.ChunkedArray:
        columns = [
            fit_column(column, arrow_type(prop.type)) for column, prop in zip(flat, self.properties, strict=True)
        ]
        if not self.is_entity:
            return columns[0]
        # The first column is `id`. Where it is null, there is no entity (an optional match), so the struct is null.
        arrays = [column.combine_chunks() for column in columns]
        fields = [pa.field(prop.name, arrow_type(prop.type)) for prop in self.properties]
        return pa.chunked_array([pa.StructArray.from_arrays(arrays, fields=fields, mask=arrays[0].is_null())])

    def to_json_value(self, value: Any) -> Any:
        if not self.is_entity or value is None:
            return to_output(self.properties[0], value)
        return {prop.name: to_output(prop, value[prop.name]) for prop in self.properties}


@dataclass(frozen=True)
class ResultShape:
    """How flat columns become the columns of a result; the same for every run of a query."""

    columns: tuple[ResultColumn, ...]
    schema: pa.Schema
    outputs: tuple[_OutputColumn, ...]
    names: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: tuple[ReturnColumn, ...], names: tuple[tuple[str, ...], ...], catalog: Catalog) -> ResultShape:
        """`names` are the flat columns of every result column."""
        outputs = tuple(_output_of_column(column, catalog) for column in columns)
        schema = pa.schema([pa.field(output.name, output.type) for output in outputs])
        result_columns = tuple(ResultColumn(column.name, column.type_text) for column in columns)
        return cls(result_columns, schema, outputs, names)

    def assemble(self, flat: pa.Table, commit_id: str, warnings: tuple[str, ...] = ()) -> Result:
        parts = zip(self.outputs, self.names, strict=True)
        built = [output.build([flat.column(name) for name in names]) for output, names in parts]
        return Result(pa.Table.from_arrays(built, schema=self.schema), self.columns, commit_id, warnings, self.outputs)


def _output_of_column(column: ReturnColumn, catalog: Catalog) -> _OutputColumn:
    value = column.value
    if not isinstance(value, Entity):
        return _OutputColumn(column.name, (Property("", column.name, value.type),), False)
    type_def = catalog.by_id[value.type.type_id]
    parts = [type_def.by_id.get(name) or Property(name, name, STRING) for name in entity_columns(type_def)]
    return _OutputColumn(column.name, tuple(parts), True)


def _output_of_field(column: pa.Field) -> _OutputColumn:
    if not pa.types.is_struct(column.type):
        return _OutputColumn(column.name, (Property("", column.name, prop_type(column.type)),), False)
    parts = tuple(Property("", field.name, prop_type(field.type)) for field in column.type)
    return _OutputColumn(column.name, parts, True)
