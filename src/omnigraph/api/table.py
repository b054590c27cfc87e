"""One type of a graph at one commit, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from omnigraph.errors import InvalidInput, Unsupported
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.check_statements import column_of
from omnigraph.query.language.statements import Compare, Condition
from omnigraph.query.plan.arrow_predicate import condition_to_expression
from omnigraph.schema.catalog import Scalar, TypeDef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Table:
    """One type of one snapshot. `current_type` is the same type in today's schema, for properties renamed since."""

    def __init__(self, snapshot: Snapshot, type_def: TypeDef, current_type: TypeDef | None = None) -> None:
        self._snapshot = snapshot
        self._type = type_def
        self._type_with_current_names = _add_current_names(type_def, current_type) if current_type else type_def

    def to_arrow(self, columns: Sequence[str] | None = None, where: Condition | None = None) -> pa.Table:
        """Rows with these columns; by default `id`, for edges `from` and `to`, then all properties."""
        names = self._column_names(columns)
        ids = [column_of(self._type_with_current_names, name).id for name in names]
        condition = condition_to_expression(self._type_with_current_names, where) if where is not None else None
        with self._snapshot.reading():
            return self._snapshot.view(self._type).scan(ids, condition).rename_columns(names)

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
        from omnigraph.spark.where_text import parse_where, rename_properties

        names = self._column_names(columns)
        commit_names = [self._name_at_commit(name) for name in names]
        condition = parse_where(where) if isinstance(where, str) else where
        if condition is not None:
            condition = rename_properties(condition, self._name_at_commit)
        frame = read_frame(self._snapshot, self._type, session, columns=commit_names, where=condition)
        return frame if commit_names == names else frame.toDF(*names)

    def lance(self) -> NoReturn:
        """The raw Lance dataset, which this version does not hand out: rows may be in the overlay."""
        raise Unsupported(
            "the raw Lance dataset: not built yet in this version",
            code="not_built",
            advice="Use to_arrow() or spark(), which see every row",
        )

    def _name_at_commit(self, name: str) -> str:
        """Returns the name of a column at this commit, given its name then or now."""
        prop = self._type.by_id.get(column_of(self._type_with_current_names, name).id)
        return prop.name if prop is not None else name

    def _column_names(self, columns: Sequence[str] | None) -> list[str]:
        if columns is not None:
            return list(columns)
        return [*(["id", "from", "to"] if self._type.kind == "edge" else ["id"]), *self._type.by_name]

    def _blob(self, row_id: str, name: str) -> pa.Table:
        prop = column_of(self._type_with_current_names, name)
        if prop.type.scalar is not Scalar.BLOB:
            raise InvalidInput(
                f"`{name}` of {self._type.name} is a {prop.type}, not a Blob",
                code="not_a_blob",
                advice="Ask for it by a query",
            )
        return self.to_arrow([name], Compare("id", "=", row_id))


def _add_current_names(type_def: TypeDef, current_type: TypeDef) -> TypeDef:
    """Returns the type with its properties under today's names too, except names that meant another property then."""
    renamed = [
        replace(type_def.by_id[prop.id], name=prop.name)
        for prop in current_type.properties
        if prop.id in type_def.by_id and prop.name not in type_def.by_name
    ]
    return replace(type_def, properties=(*type_def.properties, *renamed))
