"""A change against the rules of the schema, in-process: only what it can break is looked up, all of it at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from omnigraph.commit.publish_plan import TableAction
from omnigraph.constraints.compile import ChangedImages, Constraint, describe_violation, input_rows_to_reject
from omnigraph.constraints.evaluate import (
    EvaluationContext,
    PreparedConstraint,
    RelationCompiler,
    RowTuple,
    prepare_constraints,
)
from omnigraph.constraints.relations import ImageRows, columns_of
from omnigraph.errors import ConstraintViolation
from omnigraph.mutate.table_state import PendingTable, Row, RowChange
from omnigraph.schema.catalog import Catalog, TypeDef
from omnigraph.schema.row_constraints import Violation, find_row_violations
from omnigraph.storage.backend import Backend

VIOLATIONS_MAX = 100
_ADDRESS = "_row"

Changes = Mapping[str, Sequence[RowChange]]
ResultT = TypeVar("ResultT")
StateOf = Callable[[TypeDef], PendingTable]


@dataclass
class ViolationReport:
    """How much is broken, and the first of it by id, as much as an error lists."""

    listed: list[Violation] = field(default_factory=list)
    count: int = 0

    def add(self, listed: Iterable[Violation], count: int) -> None:
        self.listed += listed
        self.count += count

    def add_violating_rows(self, catalog: Catalog, rule: Constraint, rows: Iterable[RowTuple]) -> None:
        """What a rule returns, streamed."""
        columns = columns_of(rule.query)
        counting = _CountingIterable(rows)
        first = heapq.nsmallest(VIOLATIONS_MAX, counting, key=itemgetter(columns.index("id")))
        listed = [describe_violation(catalog, rule, dict(zip(columns, row, strict=True))) for row in first]
        self.add(listed, counting.count)


def check_changes(
    backend: Backend, catalog: Catalog, state_of: StateOf, changes: Changes, actions: Sequence[TableAction]
) -> None:
    """Raise ConstraintViolation with everything the changes would break; a hundred are listed, all are counted."""
    change = ChangeChecker(backend, catalog, state_of, changes)
    values = [
        partial(find_row_violations, catalog.by_id[action.table], action.rows, limit=VIOLATIONS_MAX)
        for action in actions
        if action.rows is not None
    ]
    found = ViolationReport()
    for listed, count in change.read_committed_rows(values):
        found.add(listed, count)
    for rule, rows in change.evaluate_constraints():
        found.add_violating_rows(catalog, rule, rows)
    if found.count:
        raise build_violation_error(found)


def build_violation_error(found: ViolationReport, code: str | None = None) -> ConstraintViolation:
    ordered = sorted(found.listed, key=lambda one: (one.type, one.id, one.rule, one.property or ""))
    first = ordered[0]
    more = f" (and {found.count - 1} more)" if found.count > 1 else ""
    return ConstraintViolation(
        f"{first.message}{more}",
        code=code,
        advice="Nothing was written; fix the change and send it again",
        violations=[one.to_json() for one in ordered[:VIOLATIONS_MAX]],
        violation_count=found.count,
    )


class ChangeChecker:
    """The rules that a set of row changes can break, and what they need to know of the committed rows."""

    def __init__(
        self, backend: Backend, catalog: Catalog, state_of: StateOf, changes: Changes, *, strict: bool = False
    ) -> None:
        self._backend = backend
        self._state_of = state_of
        self._catalog = catalog
        self._changes = changes
        self._states = {table: state_of(catalog.by_id[table]) for table in changes}
        self._kept: dict[tuple[str, str], list[Row]] = {}
        images = {table: _images(rows, self._states[table]) for table, rows in changes.items()}
        self._rules = [
            (rule, EvaluationContext(partial(self._read, rule.lookup_columns)))
            for rule in prepare_constraints(catalog, images, strict)
        ]

    def read_committed_rows(self, beside: Sequence[Callable[[], ResultT]] = ()) -> list[ResultT]:
        """Read what the rules need, in one lookup for each column of a table, all at once with `beside`."""
        probes = self._probes()
        for table, _ in probes:
            self._states.setdefault(table, self._state_of(self._catalog.by_id[table]))
        work: list[Callable[[], Any]] = [partial(self._probe, where, probe) for where, probe in probes.items()]
        done = self._backend.in_parallel(lambda one: one(), [*work, *beside])
        return done[len(work) :]

    def evaluate_constraints(self) -> Iterator[tuple[Constraint, Iterable[RowTuple]]]:
        """Every rule with the rows that it returns. `look_up` must have run."""
        for one, change in self._rules:
            yield one.constraint, one.evaluate(change)

    def violations_with_rows(self) -> Iterator[tuple[Violation, list[tuple[str, str]]]]:
        """Every violation with the rows of the change that it names, as (table, id); none if no row is to blame."""
        for one, change in self._rules:
            broken = list(one.evaluate(change))
            if not broken:
                continue
            columns, rows = columns_of(one.constraint.query), self._accused(one)
            for row in broken:
                violation = describe_violation(self._catalog, one.constraint, dict(zip(columns, row, strict=True)))
                yield violation, rows.get(row, [])

    def _accused(self, prepared: PreparedConstraint) -> dict[RowTuple, list[tuple[str, str]]]:
        """By what the rule returns."""
        found: dict[RowTuple, list[tuple[str, str]]] = {}
        evaluators = RelationCompiler(self._catalog.by_id[prepared.constraint.type_id])
        change = EvaluationContext(partial(self._read_addressed, prepared.lookup_columns))
        for table, relation in input_rows_to_reject(prepared.constraint, self._catalog, _ADDRESS).items():
            for *row, row_id in evaluators.compile(relation)(change):
                found.setdefault(tuple(row), []).append((table, row_id))
        return found

    def _read_addressed(self, looked_up_by: Mapping[ImageRows, str], image: ImageRows) -> Iterable[RowTuple]:
        """In-process, the address of a row is its id."""
        columns = tuple("id" if column == _ADDRESS else column for column in image.columns)
        return self._read(looked_up_by, ImageRows(image.kind, image.table, columns))

    def _probes(self) -> dict[tuple[str, str], _Probe]:
        """One per table and column.

        A lookup without keys of its own still sees the rows that another one brings, so its columns are among them.
        """
        found: dict[tuple[str, str], _Probe] = {}
        for one, change in self._rules:
            for lookup in one.lookups:
                probe = found.setdefault((lookup.table, lookup.column), _Probe())
                probe.values.update(dict.fromkeys(row[lookup.key_index] for row in lookup.keys(change)))
                probe.columns.update(dict.fromkeys(lookup.columns))
        return {where: probe for where, probe in found.items() if probe.values}

    def _probe(self, where: tuple[str, str], probe: _Probe) -> None:
        (table, column), values = where, list(probe.values)
        state = self._states[table]
        if column == "id":
            assert set(probe.columns) == {"id"}, probe.columns
            self._kept[where] = [{"id": row_id} for row_id in state.find_unchanged_ids(values)]
        else:
            self._kept[where] = state.find_unchanged_rows(column, values, list(probe.columns))

    def _read(self, looked_up_by: Mapping[ImageRows, str], image: ImageRows) -> Iterable[RowTuple]:
        rows: Iterable[Row | None]
        changes = self._changes.get(image.table, ())
        match image.kind:
            case "new":
                rows = [change.after for change in changes]
            case "old":
                rows = [change.before for change in changes]
            case "gone":
                return [(change.id,) for change in changes if change.after is None]
            case _:
                rows = self._kept.get((image.table, looked_up_by[image]), ())
        return [tuple([row[column] for column in image.columns]) for row in rows if row is not None]


@dataclass(frozen=True, slots=True)
class _Probe:
    """Values to look for, and columns to bring; in the order in which they were asked for."""

    values: dict[Any, None] = field(default_factory=dict)
    columns: dict[str, None] = field(default_factory=dict)


def _images(changes: Sequence[RowChange], state: PendingTable) -> ChangedImages:
    removed = any(change.after is None for change in changes)
    return ChangedImages(
        has_new=any(change.after is not None for change in changes),
        has_old=any(change.before is not None for change in changes),
        has_gone=removed and state.must_leave_no_edges,
        has_kept=not state.is_overwritten,
    )


class _CountingIterable:
    """An iterable that knows afterwards how many there were."""

    def __init__(self, rows: Iterable[RowTuple]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[RowTuple]:
        for row in self._rows:
            self.count += 1
            yield row
