"""Mutations: statements run in order on a snapshot with their own pending rows on top, then checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from omnigraph.commit.publish_plan import PublishPlan, Receipt, WriteTxn
from omnigraph.errors import InvalidInput, KeyConflict
from omnigraph.log.commit_record import CommitKind
from omnigraph.log.snapshot import Snapshot
from omnigraph.mutate.change_set import ChangeSet
from omnigraph.mutate.pending_table import PendingTable, Row, TooManyRows
from omnigraph.query.language.bind import BoundStatement, ValueResolver
from omnigraph.query.language.check_statements import check_statement
from omnigraph.query.language.checked import (
    Assignment,
    CheckedDelete,
    CheckedInsert,
    CheckedOverwrite,
    CheckedUpdate,
    EntityType,
    Predicate,
)
from omnigraph.query.language.statements import InsertEdge, InsertNode, Statement
from omnigraph.query.plan.arrow_predicate import exact_ids, predicate_to_expression
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.values import default_value, derive_id
from omnigraph.storage.backend import Backend

_NO_COUNTS = {"inserted": 0, "updated": 0, "deleted": 0}


StatementSource = Callable[[Catalog], Sequence[BoundStatement | Statement]]
"""Gives the statements of a mutation under a schema. Called once per attempt, since the schema may have changed."""


class Mutation:
    """One atomic list of statements. Ids it mints stay the same over all its attempts."""

    kind: CommitKind = "mutate"

    def __init__(self, backend: Backend, bind_statements: StatementSource) -> None:
        self._backend = backend
        self._bind_statements = bind_statements
        self.op_id = backend.ids.ulid()
        self._minted_ids = MintedIds(backend)

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        """Execute all statements on the snapshot of this attempt and make a publish plan of the changes."""
        run = MutationRun(self._backend, txn, self.op_id, self._minted_ids)
        run.execute_all(self._bind_statements(txn.catalog))
        return run.finish()


class MintedIds:
    """Ids for rows without a key: the n-th statement gets the same id in every attempt."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ids: list[str] = []

    def id_at(self, position: int) -> str:
        while len(self._ids) <= position:
            self._ids.append(self._backend.ids.ulid())
        return self._ids[position]


@dataclass(frozen=True, slots=True)
class _InsertedRow:
    """The row of one insert: its id is decided, its values are in stored form by column."""

    type_def: TypeDef
    id: str
    values: Row
    is_id_minted: bool
    is_strict: bool


class MutationRun:
    """One attempt on one snapshot. Statements may be added until `finish` makes a plan of them."""

    def __init__(self, backend: Backend, txn: WriteTxn, op_id: str, minted_ids: MintedIds) -> None:
        self._backend = backend
        self._txn = txn
        self._op_id = op_id
        self._minted_ids = minted_ids
        self._statement_count = 0
        self._changes = ChangeSet(backend, txn)
        self._claims = self._changes.claims

    def execute_all(self, statements: Sequence[BoundStatement | Statement]) -> None:
        """Run the statements in order; each sees what the earlier ones did.

        The rows that the inserts may replace are read before anything runs, all together. A statement from Python is
        checked when its turn comes, so that errors of the statements before it are raised first.
        """
        first = self._statement_count
        self._statement_count += len(statements)
        inserts = [self._row_of_insert(statement, first + index) for index, statement in enumerate(statements)]
        self._fetch_existing(inserts)
        for statement, insert in zip(statements, inserts, strict=True):
            try:
                if insert is not None:
                    self._execute_insert(insert)
                else:
                    self._execute(self._check(statement))
            except TooManyRows as error:
                raise self._too_many_rows(error.count) from None
            if self._changes.row_count > self._max_rows:
                raise self._too_many_rows(self._changes.row_count)

    def state(self, type_def: TypeDef) -> PendingTable:
        return self._changes.pending_table(type_def)

    def read_whole(self, tables: Iterable[str]) -> Snapshot:
        """The state as the next statement sees it. The tables are claimed as a whole: the caller decides by them."""
        for table in tables:
            self._claims.read_all(table)
        return self._changes.pending_snapshot()

    def finish(self) -> PublishPlan | Receipt:
        """Check the schema constraints and make a plan; a receipt without a commit if nothing changed."""
        if not self._changes.changes:
            return Receipt(None, _NO_COUNTS)
        self._changes.check()
        return self._changes.plan(Mutation.kind, self._op_id)

    def _check(self, statement: BoundStatement | Statement) -> BoundStatement:
        return statement if isinstance(statement, BoundStatement) else check_statement(statement, self._txn.catalog)

    def _type_def(self, entity: EntityType) -> TypeDef:
        return self._txn.catalog.by_id[entity.type_id]

    @property
    def _max_rows(self) -> int:
        return self._backend.config.mutation_max_rows

    def _too_many_rows(self, row_count: int) -> InvalidInput:
        return InvalidInput(
            f"one mutation may change {self._max_rows} rows, this one changes {row_count}",
            code="limit_exceeded",
            advice="Load large changes with `omnigraph load`",
            limit="mutation_max_rows",
            bound=self._max_rows,
            value=row_count,
        )

    # ---- insert and overwrite ----------------------------------------------------------------------------------------

    def _row_of_insert(self, statement: BoundStatement | Statement, position: int) -> _InsertedRow | None:
        if not isinstance(statement, BoundStatement | InsertNode | InsertEdge):
            return None
        bound = self._check(statement)
        if not isinstance(bound.statement, CheckedInsert):
            return None
        return self._inserted_row(bound.statement, bound, position)

    def _inserted_row(self, insert: CheckedInsert, bound: BoundStatement, position: int) -> _InsertedRow:
        type_def = self._type_def(insert.type)
        values = _resolve_values(insert.values, bound.resolve_value)
        explicit_id = values.pop("id", None)
        if not type_def.key:
            row_id = explicit_id or self._minted_ids.id_at(position)
            return _InsertedRow(type_def, row_id, values, explicit_id is None, bound.is_strict)
        row_id = derive_id(type_def, values)
        if explicit_id not in (None, row_id):
            raise InvalidInput(
                f"{type_def.table_key}: id {explicit_id!r} does not agree with the key, which gives {row_id!r}",
                code="id_mismatch",
            )
        return _InsertedRow(type_def, row_id, values, is_id_minted=False, is_strict=bound.is_strict)

    def _fetch_existing(self, inserts: Sequence[_InsertedRow | None]) -> None:
        """Read the rows that the inserts may replace: one read per type, all types in parallel."""
        ids_by_type: dict[str, tuple[PendingTable, list[str]]] = {}
        for insert in inserts:
            if insert is not None and not insert.is_id_minted:
                ids_by_type.setdefault(insert.type_def.id, (self.state(insert.type_def), []))[1].append(insert.id)
        self._backend.in_parallel(lambda item: item[0].fetch(item[1]), ids_by_type.values())

    def _execute_insert(self, insert: _InsertedRow) -> None:
        """Update the row of this id, or put a new one with the defaults of the schema."""
        state = self.state(insert.type_def)
        row = None if insert.is_id_minted else state.current_row(insert.id)
        if row is not None and insert.is_strict:
            raise KeyConflict.on_row(insert.type_def.table_key, insert.id)
        if row is None:
            row = _default_row(insert.type_def)
        state.put({**row, **insert.values, "id": insert.id}, minted=insert.is_id_minted)

    def _execute(self, bound: BoundStatement) -> None:
        match bound.statement:
            case CheckedUpdate():
                self._execute_update(bound.statement, bound.resolve_value)
            case CheckedDelete():
                self._execute_delete(bound.statement, bound.resolve_value)
            case CheckedOverwrite():
                self._execute_overwrite(bound.statement, bound)

    def _execute_overwrite(self, overwrite: CheckedOverwrite, bound: BoundStatement) -> None:
        """Replace the whole content of a table. Conflicts with every other write to the table."""
        type_def = self._type_def(overwrite.type)
        state = self.state(type_def)
        state.remove_all(self._max_rows)
        new_ids: set[str] = set()
        for insert in overwrite.rows:
            row = self._inserted_row(insert, bound, self._next_position())
            if row.id in new_ids:
                raise KeyConflict.on_row(type_def.table_key, row.id)
            new_ids.add(row.id)
            state.put({**_default_row(type_def), **row.values, "id": row.id}, minted=row.is_id_minted)
        self._claims.read_all(type_def.id)
        self._claims.write_all(type_def.id)

    def _next_position(self) -> int:
        self._statement_count += 1
        return self._statement_count - 1

    # ---- update and delete -------------------------------------------------------------------------------------------

    def _execute_update(self, update: CheckedUpdate, resolve_value: ValueResolver) -> None:
        state = self.state(self._type_def(update.type))
        values = _resolve_values(update.values, resolve_value)
        for row in self._matching_rows(state, update.where, resolve_value):
            state.put({**row, **values})

    def _execute_delete(self, delete: CheckedDelete, resolve_value: ValueResolver) -> None:
        type_def = self._type_def(delete.type)
        state = self.state(type_def)
        deleted_ids = [row["id"] for row in self._matching_rows(state, delete.where, resolve_value)]
        for row_id in deleted_ids:
            state.remove(row_id)
            if type_def.kind == "node":
                # Claimed now: if a later statement inserts the node again, the net change no longer shows a delete.
                self._claims.read(type_def.id, "inc", row_id)
                self._claims.write(type_def.id, "live", row_id)
        if type_def.kind == "node" and deleted_ids:
            self._delete_edges_at(type_def, deleted_ids)

    def _delete_edges_at(self, node_type: TypeDef, node_ids: Sequence[str]) -> None:
        """Remove every edge at the deleted nodes, whatever its type and direction; all probes in parallel."""
        probes = [
            (edge_type, column)
            for edge_type in self._txn.catalog.edges_at(node_type.id)
            for column, end in (("src", edge_type.source), ("dst", edge_type.target))
            if end == node_type.id
        ]
        for edge_type, _ in probes:
            self.state(edge_type)
        rows_by_probe = self._backend.in_parallel(
            lambda probe: self.state(probe[0]).select_by(probe[1], node_ids, self._max_rows), probes
        )
        for (edge_type, _), rows in zip(probes, rows_by_probe, strict=True):
            for row in rows:
                self.state(edge_type).remove(row["id"])

    def _matching_rows(self, state: PendingTable, where: Predicate, resolve_value: ValueResolver) -> list[Row]:
        """Rows that the condition selects now; the condition, or the ids it names, become read claims."""
        condition = predicate_to_expression(where, resolve_value)
        ids = exact_ids(state.type, where, resolve_value)
        if ids is None:
            self._claims.predicate(state.type.id, condition)
            return state.select(condition, self._max_rows)
        for row_id in ids:
            self._claims.read(state.type.id, "row", row_id)
        state.fetch(ids)
        rows = [row for row in map(state.current_row, dict.fromkeys(ids)) if row is not None]
        return state.filter_rows(rows, condition)


def _resolve_values(assignments: Sequence[Assignment], resolve_value: ValueResolver) -> Row:
    return {assignment.column: resolve_value(assignment.value) for assignment in assignments}


def _default_row(type_def: TypeDef) -> Row:
    return {prop.id: default_value(prop) for prop in type_def.properties}
