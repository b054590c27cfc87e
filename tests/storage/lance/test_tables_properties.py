"""Random histories of table versions, on a chain and on forks, against a dict."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.storage.lance import IndexSpec, PinnedTable, StagedTable, TableDelta, TableStore
from tests.storage.lance.table_cases import AGE, ID, NOTE, SIZE, TAGS, rows_of

TABLE = "person_ab12cd34-1"
EXTRA = [NOTE, TAGS, SIZE]
FULL = pa.schema([ID, AGE, *EXTRA])
UNIVERSE = [f"n{number}" for number in range(12)]
INDEXES = [IndexSpec("by_id", "id", "BTREE"), IndexSpec("by_age", AGE.name, "BITMAP")]
Model = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class TableChange:
    """Upserts of (id, number), deletes, and which further columns the writer's schema has, in which order."""

    upserts: dict[str, int]
    deletes: list[str]
    columns: tuple[int, ...]
    overwrite: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([ID, *(EXTRA[number] for number in self.columns), AGE])

    def rows(self) -> list[dict[str, Any]]:
        names = [EXTRA[number].name for number in self.columns]
        return [
            {"id": row_id, AGE.name: value, **{name: _value(name, value) for name in names}}
            for row_id, value in self.upserts.items()
        ]

    def apply(self, model: Model) -> Model:
        remaining = {} if self.overwrite else {one: row for one, row in model.items() if one not in self.deletes}
        blank = dict.fromkeys([AGE.name, *(one.name for one in EXTRA)])
        return {**remaining, **{row["id"]: {**blank, **row} for row in self.rows()}}

    def delta(self, model: Model, hint: bool) -> TableDelta:
        rows = rows_of(self.schema, *self.rows())
        present = set(model) if hint else None
        return TableDelta(self.schema, rows, self.deletes, self.overwrite, present)


def _value(column: str, number: int) -> Any:
    return {NOTE.name: str(number), TAGS.name: [str(number)] * (number % 3), SIZE.name: number + 2**63}[column]


ids = st.sampled_from(UNIVERSE)
changes = st.builds(
    TableChange,
    st.dictionaries(ids, st.integers(0, 50), max_size=5),
    st.lists(ids, max_size=4, unique=True),
    st.permutations([0, 1, 2]).flatmap(lambda order: st.integers(0, 3).map(lambda count: tuple(order[:count]))),
    st.sampled_from([False] * 7 + [True]),
)
version_numbers = st.integers(0, 30)
steps = st.one_of(
    st.tuples(st.just("write"), version_numbers, changes, st.booleans()),
    st.tuples(st.just("move"), version_numbers, version_numbers, changes, st.booleans()),
    st.tuples(st.just("index"), version_numbers),
    st.tuples(st.just("rewrite"), version_numbers),
)


class TableHistory:
    """All versions ever made, each with what it must hold. A step builds on any of them, so there are forks."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.versions: list[tuple[PinnedTable, Model]] = [(store.birth(TABLE, "node"), {})]

    def at(self, number: int) -> tuple[PinnedTable, Model]:
        """Favours the newest: small numbers count from the end."""
        return self.versions[-1 - number % len(self.versions)]

    def write(self, number: int, change: TableChange, hint: bool) -> None:
        pinned, model = self.at(number)
        staged = self.store.stage(pinned, change.delta(model, hint))
        self._commit(pinned, staged, change.apply(model))

    def move(self, number: int, target_number: int, change: TableChange, through_json: bool) -> None:
        """Stage on one version, commit on another that may be newer, older or on another fork."""
        pinned, model = self.at(number)
        staged = self.store.stage(pinned, change.delta(model, False))
        if through_json:
            staged = StagedTable.from_json(staged.to_json())
        target, target_model = self.at(target_number)
        self._commit(target, self.store.restage(staged, target), change.apply(target_model))

    def _commit(self, base: PinnedTable, staged: StagedTable, expected: Model) -> None:
        assert base.rows - staged.rows_removed + staged.rows_written == len(expected)
        self.versions.append((self.store.commit(base, staged), expected))

    def index(self, number: int) -> None:
        pinned, model = self.at(number)
        specs = [spec for spec in INDEXES if spec.column in pinned.schema.names]
        self.versions.append((self.store.commit(pinned, self.store.stage_index(pinned, specs)), model))

    def rewrite(self, number: int) -> None:
        pinned, model = self.at(number)
        specs = [spec for spec in INDEXES if spec.column in pinned.schema.names]
        self.versions.append((self.store.commit(pinned, self.store.stage_rewrite(pinned, specs)), model))

    def check(self, pinned: PinnedTable, model: Model) -> None:
        rows = pinned.scan(schema=FULL).to_pylist()
        assert {row["id"]: row for row in rows} == model
        assert len(rows) == len(model) == pinned.rows
        found = pinned.find(UNIVERSE, schema=FULL).to_pylist()
        assert {row["id"]: row for row in found} == model
        assert len(found) == len(model)
        by_age = {row["id"] for row in pinned.find_by(AGE.name, range(25), ["id"], schema=FULL).to_pylist()}
        assert by_age == {row_id for row_id, row in model.items() if row[AGE.name] is not None and row[AGE.name] < 25}


def _run(history_steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = TableHistory(TableStore(folder, fsync=False))
        for verb, *arguments in history_steps:
            getattr(history, verb)(*arguments)
            history.check(*history.versions[-1])
        # Old pins still hold what they held, also for a process that opens them now.
        fresh = TableStore(folder, fsync=False)
        for pinned, model in history.versions:
            history.check(fresh.open(TABLE, pinned.version), model)


_UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(st.lists(steps, min_size=1, max_size=8))
@settings(max_examples=25, deadline=None, suppress_health_check=_UNHURRIED)
def test_versions_agree_with_a_dict(history_steps: list[tuple[Any, ...]]) -> None:  # H4, H14
    _run(history_steps)


@pytest.mark.slow
@given(st.lists(steps, min_size=4, max_size=25))
@settings(max_examples=250, deadline=None, suppress_health_check=_UNHURRIED)
def test_versions_agree_with_a_dict_at_length(history_steps: list[tuple[Any, ...]]) -> None:  # H4, H14
    _run(history_steps)
