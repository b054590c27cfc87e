"""Mutations: statements run in order on a snapshot with their own pending rows on top, then checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteTxn
from omnigraph.errors import InvalidInput, KeyConflict
from omnigraph.log.commit_record import Kind
from omnigraph.log.snapshot import Snapshot, no_such_type
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.table_state import Row, TableState, TooManyRows
from omnigraph.query.language.statements import Condition, Delete, InsertEdge, InsertNode, Overwrite, Statement, Update
from omnigraph.query.plan.arrow_predicate import column_of, exact_ids, to_expression
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.values import convert, default_of, derive_id
from omnigraph.storage.backend import Backend

_NOTHING = {"inserted": 0, "updated": 0, "deleted": 0}


Script = Callable[[Catalog], Sequence[Statement]]
"""Statements under a given schema. Called once per attempt, since the schema may have changed."""


class Mutation:
    """One atomic list of statements. Ids it mints stay the same over all its attempts."""

    kind: Kind = "mutate"

    def __init__(self, backend: Backend, script: Script) -> None:
        self._backend = backend
        self._script = script
        self.op_id = backend.ids.ulid()
        self._fresh = FreshIds(backend)

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        run = MutationRun(self._backend, txn, self.op_id, self._fresh)
        run.execute_all(self._script(txn.catalog))
        return run.finish()


class FreshIds:
    """Ids for rows without a key: the n-th statement gets the same one in every attempt."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: list[str] = []

    def of(self, place: int) -> str:
        while len(self._known) <= place:
            self._known.append(self._backend.ids.ulid())
        return self._known[place]


class _Insert:
    """An insert whose type, id and given values are known."""

    def __init__(self, one: TypeDef, row_id: str, given: Row, *, minted: bool, strict: bool) -> None:
        self.type = one
        self.id = row_id
        self.given = given
        self.minted = minted
        self.strict = strict


class MutationRun:
    """One attempt on one snapshot. Statements may be added until `finish` makes a plan of them."""

    def __init__(self, backend: Backend, txn: WriteTxn, op_id: str, fresh: FreshIds) -> None:
        self._backend = backend
        self._txn = txn
        self._op_id = op_id
        self._fresh = fresh
        self._executed = 0
        self._changes = ChangeSet(backend, txn)
        self._claims = self._changes.claims

    def execute_all(self, statements: Sequence[Statement]) -> None:
        """Run the statements in order; each sees what the earlier ones did."""
        first = self._executed
        self._executed += len(statements)
        inserts = [self._resolve(one, first + place) for place, one in enumerate(statements)]
        self._fetch_inserted(inserts)
        for statement, insert in zip(statements, inserts, strict=True):
            self._execute(statement, insert)

    def state(self, one: TypeDef) -> TableState:
        return self._changes.state(one)

    def _resolve(self, statement: Statement, place: int) -> _Insert | None:
        if isinstance(statement, InsertNode):
            one = self._txn.catalog.node(statement.type)
            if one is None:
                raise no_such_type(statement.type, self._txn.catalog)
            return self._insert(one, statement.values, place, strict=statement.strict)
        if isinstance(statement, InsertEdge):
            one = self._txn.catalog.edge(statement.type)
            if one is None:
                raise no_such_type(statement.type, self._txn.catalog)
            values = {**statement.values, "src": statement.source, "dst": statement.target}
            return self._insert(one, values, place, strict=statement.strict)
        return None

    def _fetch_inserted(self, inserts: Sequence[_Insert | None]) -> None:
        """The rows that upserts may meet: one read per type, all types at once."""
        wanted: dict[str, tuple[TableState, list[str]]] = {}
        for one in inserts:
            if one is not None and not one.minted:
                wanted.setdefault(one.type.id, (self.state(one.type), []))[1].append(one.id)
        self._backend.in_parallel(lambda item: item[0].fetch(item[1]), wanted.values())

    def _execute(self, statement: Statement, insert: _Insert | None) -> None:
        try:
            if insert is not None:
                self._execute_insert(insert)
            elif isinstance(statement, Update):
                self._execute_update(statement)
            elif isinstance(statement, Delete):
                self._execute_delete(statement)
            elif isinstance(statement, Overwrite):
                self._execute_overwrite(statement)
        except TooManyRows as error:
            raise self._too_many(error.count) from None
        if self._changes.row_count > self._most:
            raise self._too_many(self._changes.row_count)

    @property
    def _most(self) -> int:
        return self._backend.config.mutation_max_rows

    def _too_many(self, changed: int) -> InvalidInput:
        return InvalidInput(
            f"one mutation may change {self._most} rows, this one changes {changed}",
            code="limit_exceeded",
            advice="Load large changes with `omnigraph load`",
            limit="mutation_max_rows",
            bound=self._most,
            value=changed,
        )

    def read_whole(self, tables: Iterable[str]) -> Snapshot:
        """The state as the next statement sees it, for a caller that will decide by what it finds in these tables."""
        for table in tables:
            self._claims.read_all(table)
        return self._changes.pending_snapshot()

    def finish(self) -> PublishPlan | Receipt:
        if not self._changes.changes:
            return Receipt(None, _NOTHING)
        self._changes.check()
        return self._changes.plan(Mutation.kind, self._op_id)

    def _insert(self, one: TypeDef, values: Mapping[str, Any], place: int, *, strict: bool) -> _Insert:
        given = _converted(one, values)
        named = given.pop("id", None)
        if one.key:
            row_id = derive_id(one, given)
            if named not in (None, row_id):
                raise InvalidInput(
                    f"{one.table_key}: id {named!r} does not agree with the key, which gives {row_id!r}",
                    code="id_mismatch",
                )
            return _Insert(one, row_id, given, minted=False, strict=strict)
        return _Insert(one, named or self._fresh.of(place), given, minted=named is None, strict=strict)

    def _execute_insert(self, insert: _Insert) -> None:
        state = self.state(insert.type)
        existing = None if insert.minted else state.current(insert.id)
        if existing is not None and insert.strict:
            raise KeyConflict.on_row(insert.type.table_key, insert.id)
        if existing is None:
            existing = {prop.id: default_of(prop) for prop in insert.type.properties}
        state.put({**existing, **insert.given, "id": insert.id}, minted=insert.minted)

    def _execute_update(self, statement: Update) -> None:
        one = self._named_type(statement.type)
        given = _converted(one, statement.values)
        fixed = [name for name in statement.values if column_of(one, name).id in ("id", *one.key)]
        if fixed:
            raise InvalidInput(
                f"{one.table_key}: {', '.join(fixed)} is the identity of a row and cannot be changed",
                code="key_immutable",
                advice="Delete the row and insert it anew",
            )
        state = self.state(one)
        for row in self._matching(state, statement.where):
            state.put({**row, **given})

    def _execute_delete(self, statement: Delete) -> None:
        one = self._named_type(statement.type)
        state = self.state(one)
        gone = [row["id"] for row in self._matching(state, statement.where)]
        for row_id in gone:
            state.remove(row_id)
            if one.kind == "node":
                # Also if a later statement makes the node again: its edges of now were looked for and removed.
                self._claims.read(one.id, "inc", row_id)
                self._claims.write(one.id, "live", row_id)
        if one.kind == "node" and gone:
            self._cascade(one, gone)

    def _execute_overwrite(self, statement: Overwrite) -> None:
        """The rows given become the whole content. It depends on the whole table, and so does who wrote to it."""
        one = self._named_type(statement.type)
        state = self.state(one)
        state.remove_all(self._most)
        seen: set[str] = set()
        for values in statement.rows:
            insert = self._insert(one, values, self._next_place(), strict=True)
            if insert.id in seen:
                raise KeyConflict.on_row(one.table_key, insert.id)
            seen.add(insert.id)
            defaults = {prop.id: default_of(prop) for prop in one.properties}
            state.put({**defaults, **insert.given, "id": insert.id}, minted=insert.minted)
        self._claims.read_all(one.id)
        self._claims.write_all(one.id)

    def _next_place(self) -> int:
        self._executed += 1
        return self._executed - 1

    def _cascade(self, node: TypeDef, gone: Sequence[str]) -> None:
        """Remove every edge at the deleted nodes, whatever its type and direction; all probes at once."""
        probes = [
            (edge, column)
            for edge in self._txn.catalog.edges_at(node.id)
            for column, end in (("src", edge.source), ("dst", edge.target))
            if end == node.id
        ]
        for edge, _ in probes:
            self.state(edge)
        found = self._backend.in_parallel(
            lambda probe: self.state(probe[0]).select_by(probe[1], gone, self._most), probes
        )
        for (edge, _), rows in zip(probes, found, strict=True):
            for row in rows:
                self.state(edge).remove(row["id"])

    def _matching(self, state: TableState, where: Condition) -> list[Row]:
        """Rows the condition selects now; what was asked becomes part of the footprint."""
        condition = to_expression(state.type, where)
        ids = exact_ids(state.type, where)
        if ids is None:
            self._claims.predicate(state.type.id, condition)
            return state.select(condition, self._most)
        for row_id in ids:
            self._claims.read(state.type.id, "row", row_id)
        state.fetch(ids)
        rows = [row for row in map(state.current, dict.fromkeys(ids)) if row is not None]
        return state.only_matching(rows, condition)

    def _named_type(self, name: str) -> TypeDef:
        found = self._txn.snapshot.type(name)
        self.state(found)
        return found


def _converted(one: TypeDef, values: Mapping[str, Any]) -> Row:
    """User values as stored values, by column id."""
    columns = {name: column_of(one, name) for name in values}
    return {columns[name].id: convert(columns[name], value) for name, value in values.items()}
