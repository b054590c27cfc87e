"""Whether commits that landed during a load disturb it: their rows are looked up in what was staged, not the reverse.

A load of millions of rows states no keys that it read. Instead it is asked, for each commit that landed since its base,
about the few rows that that commit wrote: whether the load has the same id, needs a node that is gone, shares a unique
value, or counts edges of the same source. No answer but "none of this" lets the staged files be used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder, Hit
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.changed_rows import changed_rows
from omnigraph.mutate.claims import unique_key
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.spark.constraints_by_shuffle import LoadedTable
from omnigraph.storage.lance import PinnedTable, TableStore

#: Changes of others beyond this are not compared row by row: the load is done again.
FOREIGN_ROWS_MAX = 50_000


@dataclass(frozen=True)
class Foreign:
    """What others did to one table: rows as they are now, and ids that are gone."""

    table: str
    after: Sequence[Mapping[str, Any]]
    gone: Sequence[str]


@dataclass(frozen=True)
class Recheck:
    """The staged rows of a load, to be asked about the rows of others."""

    catalog: Catalog
    tables: TableStore
    loaded: Mapping[str, LoadedTable]

    def judge(self, record: CommitRecord) -> Hit | None:
        """For a record that landed after the base; one that staged a table is looked at as a whole, in `since`."""
        for table, touched in record.touched.items():
            if not self._concerns(table):
                continue
            own = record.own_entries(table)
            if touched.staged or own is None:
                return Hit(table, "a bulk change wrote the table")
            hit = self.hit(Foreign(table, own.rows.to_pylist(), sorted(own.tombstones)))
            if hit is not None:
                return hit
        return None

    def since(self, records: Iterable[CommitRecord], old: Snapshot, new: Snapshot) -> Hit | None:
        """For all records that lead from one state to another under the same schema."""
        staged: set[str] = set()
        for record in records:
            if not record.is_logical:
                continue
            concerned = {table: touched for table, touched in record.touched.items() if self._concerns(table)}
            if any(touched.staged for touched in concerned.values()):
                staged |= concerned.keys()  # some of them may ride in the record all the same
                continue
            hit = self.judge(record)
            if hit is not None:
                return hit
        return self._between(old, new, sorted(staged))

    def _between(self, old: Snapshot, new: Snapshot, tables: Sequence[str]) -> Hit | None:
        for table in tables:
            if self._moved_rows(old.record, new.record, table) > FOREIGN_ROWS_MAX:
                return Hit(table, "a large change wrote the table")
            changes = changed_rows(old, new, table).values()
            after = [change.after for change in changes if change.after is not None]
            hit = self.hit(Foreign(table, after, [change.id for change in changes if change.after is None]))
            if hit is not None:
                return hit
        return None

    def hit(self, foreign: Foreign) -> Hit | None:
        if not foreign.after and not foreign.gone:
            return None
        one = self.catalog.by_id[foreign.table]
        return next((Hit(foreign.table, why) for why in self._reasons(one, foreign)), None)

    def _moved_rows(self, old: CommitRecord, new: CommitRecord, table: str) -> int:
        """How many rows lie in files that the old version did not have."""
        versions = [one.pins[table].version for one in (old, new) if table in one.pins]
        if len(set(versions)) < 2 or versions[1] is None:
            return 0
        files = [
            {str(part.files[0].path): part.num_rows for part in self.tables.open(table, version).metadata}
            for version in versions
            if version is not None
        ]
        known = files[0] if len(files) > 1 else {}
        return sum(rows for path, rows in files[-1].items() if path not in known)

    def _reasons(self, one: TypeDef, foreign: Foreign) -> Iterator[str]:
        mine = self.loaded.get(one.id)
        if mine is not None:
            yield from self._same_table(one, mine, foreign)
        if one.kind == "node":
            yield from self._nodes(one, foreign)
        else:
            yield from self._edges(one, foreign)

    def _same_table(self, one: TypeDef, mine: LoadedTable, foreign: Foreign) -> Iterator[str]:
        if mine.overwrite:
            yield "the table was written, and the load replaces all of it"
        ids = [*(row["id"] for row in foreign.after), *foreign.gone]
        if self._any(mine, "id", ids):
            yield "a row that the load writes was written"
        for columns in one.uniques:
            if self._shares(one, mine, columns, foreign.after):
                yield "a unique value of the load was taken"
        if one.cardinality.binds:
            if mine.replaces:
                yield "edges whose number is limited were written, and the load moves some"
            if self._any(mine, "src", [row["src"] for row in foreign.after]):
                yield "an edge was written at a source whose edges the load adds to"

    def _nodes(self, node: TypeDef, foreign: Foreign) -> Iterator[str]:
        for edge in self.catalog.edges_at(node.id):
            mine = self.loaded.get(edge.id)
            if mine is None:
                continue
            for column, end in (("src", edge.source), ("dst", edge.target)):
                if end == node.id and self._any(mine, column, foreign.gone):
                    yield "a node was removed that an edge of the load needs"
            if foreign.after and edge.source == node.id and edge.cardinality.low > 0 and mine.overwrite:
                yield "a node was written that needs edges, and the load replaces all of them"

    def _edges(self, edge: TypeDef, foreign: Foreign) -> Iterator[str]:
        for column, end in (("src", edge.source), ("dst", edge.target)):
            nodes = self.loaded.get(end) if end is not None else None
            if nodes is None:
                continue
            needed = sorted({row[column] for row in foreign.after})
            if nodes.overwrite and self._count(nodes, "id", needed) < len(needed):
                yield "an edge was written to a node that the load removes"
        source = self.loaded.get(edge.source) if edge.source is not None else None
        if source is not None and edge.cardinality.low > 0 and foreign.gone:
            yield "edges were removed that nodes of the load may need"

    def _shares(
        self, one: TypeDef, mine: LoadedTable, columns: Sequence[str], after: Sequence[Mapping[str, Any]]
    ) -> bool:
        keys = {unique_key(one, columns, dict(row)) for row in after} - {None}
        if not keys:
            return False
        found = self._find(mine, columns[0], [row[columns[0]] for row in after], ["id", *columns])
        return any(unique_key(one, columns, row) in keys for row in found.to_pylist())

    def _any(self, mine: LoadedTable, column: str, values: Sequence[Any]) -> bool:
        return self._count(mine, column, values) > 0

    def _count(self, mine: LoadedTable, column: str, values: Sequence[Any]) -> int:
        return int(self._find(mine, column, values, ["id"]).num_rows)

    def _find(self, mine: LoadedTable, column: str, values: Sequence[Any], columns: Sequence[str]) -> pa.Table:
        return self.held(mine).find_in(set(mine.own), column, values, columns)

    def held(self, mine: LoadedTable) -> PinnedTable:
        return self.tables.bulk.version_of(mine.staged)

    def _concerns(self, table: str) -> bool:
        return table in self.footprint_tables

    @cached_property
    def footprint_tables(self) -> frozenset[str]:
        """Tables whose changes can disturb the load: its own, and those at the ends of what it writes."""
        found: set[str] = set(self.loaded)
        for table, mine in self.loaded.items():
            one = mine.type
            if one.kind == "edge":
                found |= {end for end in (one.source, one.target) if end is not None}
                continue
            for edge in self.catalog.edges_at(table):
                if mine.overwrite or (edge.source == table and edge.cardinality.low > 0):
                    found.add(edge.id)
        return frozenset(found)

    @property
    def footprint(self) -> Footprint:
        """For others: everything in the tables written, and new edges at any node of their ends. For whoever has to
        publish the load without its process: that nothing in these tables has changed."""
        claims = FootprintBuilder()
        for table, mine in self.loaded.items():
            claims.write_all(table)
            for end in (mine.type.source, mine.type.target):
                if end is not None:
                    claims.write_all(end, "inc")
        for table in self.footprint_tables:
            claims.read_all(table)
        return claims.build()
