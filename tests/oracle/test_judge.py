"""The oracle itself: it agrees with a single writer, and it notices every kind of lie."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api import init, make_backend
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.config import Config
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.stream import record_key
from tests.oracle import model
from tests.oracle.model import SCHEMA, Refused
from tests.oracle.oracle import Diaries, Line, judge
from tests.oracle.structure import entries_of
from tests.oracle.worker import Diary, Observer, OracleActor


class History:
    """What one writer alone did, and its diary."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self._folder = folder
        self._config = Config(fsync=False, **config)

    def write(self, seed: int, steps: int) -> History:
        init(self._uri, SCHEMA, config=Config(fsync=False))
        self._diaries.mkdir()
        observed = GraphRuntime.open(make_backend(self._uri, None, self._config), read_only=True)
        actor = OracleActor("w", self.runtime, Observer(observed), Diary(str(self._diaries / "w")), f"{seed}")
        for _ in range(steps):
            actor.step()
        return self

    def copy(self, folder: Path) -> History:
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)
        return History(folder)

    @property
    def _uri(self) -> str:
        return str(self._folder / "graph")

    @property
    def _diaries(self) -> Path:
        return self._folder / "diaries"

    @cached_property
    def runtime(self) -> GraphRuntime:
        return GraphRuntime.open(make_backend(self._uri, None, self._config), read_only=False)

    @cached_property
    def diaries(self) -> Diaries:
        return Diaries.read(self._diaries)

    def records(self, stream: str) -> list[CommitRecord]:
        return [entry for entry in entries_of(self.runtime, stream) if isinstance(entry, CommitRecord)]

    def rewrite(self, record: CommitRecord) -> None:
        self.runtime.backend.store.put(record_key(record.stream, record.seq), record.as_bytes)


@pytest.mark.parametrize(
    "config", [{"fold": "never"}, {"fold": "always"}, {"fold": "random", "inline_share": 0}], ids=lambda one: str(one)
)
def test_one_writer_is_what_the_model_says(tmp_path: Path, sweep_seed: int, config: dict[str, Any]) -> None:
    """Every verb means the same to the engine and to the model, folded, staged or inline."""
    print(f"seed {sweep_seed}")
    history = History(tmp_path, **config).write(sweep_seed, 70)
    verdict = judge(history.runtime, history.diaries)
    assert not verdict.violations, str(verdict)
    assert verdict.counts["mutate"] >= 8, str(verdict)


Lie = Callable[[History], None]


def _last_landed(history: History) -> Line:
    """The last acknowledged write on main whose rows say so."""
    main = history.runtime.stamp.main_stream
    ends = [end for end in history.diaries.ended.values() if end["answer"] == "landed"]
    return [end for end in ends if end["commit_id"].startswith(main)][-1]


def _last_refused(history: History, word: str) -> Line:
    return next(end for end in history.diaries.ended.values() if end["answer"] == word)


def _wrong_place(history: History) -> None:
    end = _last_landed(history)
    stream, _, seq = end["commit_id"].rpartition(".")
    history.diaries.ended[end["tag"]] = {**end, "commit_id": f"{stream}.{int(seq) - 1}"}


def _wrong_counts(history: History) -> None:
    end = _last_landed(history)
    history.diaries.ended[end["tag"]] = {**end, "counts": {"inserted": 99, "updated": 0, "deleted": 0}}


def _report_failure(history: History) -> None:
    end = _last_landed(history)
    history.diaries.ended[end["tag"]] = {**end, "answer": "contention"}


def _false_negative(history: History) -> None:
    """Nothing to do, the caller was told, though there was."""
    end = _last_refused(history, "nothing")
    history.diaries.ended[end["tag"]] = {**end, "answer": "violation"}


def _other_operation(history: History) -> None:
    end = _last_landed(history)
    beginning = history.diaries.begun[end["tag"]]
    another = {"do": "insert", "type": "Person", "values": {"name": "nobody", "age": 1}, "strict": False}
    history.diaries.begun[end["tag"]] = {**beginning, "operation": [*beginning["operation"], another]}


def _lose_row(history: History) -> None:
    """The newest overlay lacks an entry."""
    head = next(record for record in reversed(history.records(history.runtime.stamp.main_stream)) if record.overlay)
    table, entries = next(
        (table, table_entries)
        for table, table_entries in head.overlay.items()
        if table_entries.rows.num_rows and table != "_ops"
    )
    history.rewrite(replace(head, overlay={**head.overlay, table: entries.without_ids(entries.rows["id"].to_pylist())}))


def _forgotten_write_set(history: History) -> None:
    end = _last_landed(history)
    stream, _, seq = end["commit_id"].rpartition(".")
    record = history.records(stream)[int(seq)]
    history.rewrite(replace(record, writes=type(record.writes)()))


def _time_went_back(history: History) -> None:
    record = history.records(history.runtime.stamp.main_stream)[2]
    history.rewrite(replace(record, header=replace(record.header, created_at=datetime(2000, 1, 1, tzinfo=UTC))))


def _twice(history: History) -> None:
    """The same operation in two records."""
    records = history.records(history.runtime.stamp.main_stream)
    first = next(record for record in records if record.kind == "mutate")
    history.rewrite(replace(records[-1], header=replace(records[-1].header, members=first.members)))


@pytest.fixture(scope="module")
def true_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(tmp_path_factory.mktemp("true"), fold="never").write(seed=3, steps=50)
    assert not judge(history.runtime, history.diaries).violations
    return history


@pytest.mark.parametrize(
    "lie",
    [
        _wrong_place,
        _wrong_counts,
        _report_failure,
        _false_negative,
        _other_operation,
        _lose_row,
        _forgotten_write_set,
        _time_went_back,
        _twice,
    ],
)
def test_a_lie_is_noticed(tmp_path: Path, true_history: History, lie: Lie) -> None:
    """Each falsification of a true history makes the oracle speak."""
    history = true_history.copy(tmp_path)
    lie(history)
    assert judge(history.runtime, history.diaries).violations


def test_the_model_cascades_and_checks_the_end() -> None:
    """Statements see each other; rules are looked at once, at the end."""

    def person(name: str, **more: Any) -> dict[str, Any]:
        return {"do": "insert", "type": "Person", "values": {"name": name, **more}, "strict": False}

    edge = {"do": "insert", "type": "Likes", "values": {"tag": "t"}, "strict": False, "from": "a", "to": "b"}
    delete_statement = {"do": "delete", "type": "Person", "where": {"name": "name", "op": "=", "value": "a"}}
    state = model.apply(model.empty(), [edge, person("a"), person("b")]).state
    assert len(state["Likes"]) == 1
    after = model.apply(state, [delete_statement, person("a")])
    assert (after.state["Likes"], after.counts) == ({}, {"inserted": 0, "updated": 1, "deleted": 1})
    for operation, answer in (
        ([delete_statement, delete_statement, {**delete_statement, "where": {"null": "name"}}], None),
        ([{**delete_statement, "where": {"name": "age", "op": ">", "value": 0}}], "nothing"),
        ([person("a", email="e"), person("b", email="e")], "violation"),
        ([{**edge, "values": {"tag": "u"}}], "violation"),
        ([{**person("a"), "strict": True}], "key_conflict"),
    ):
        if answer is None:
            assert model.apply(state, operation).counts["deleted"] == 2
            continue
        with pytest.raises(Refused) as refused:
            model.apply(state, operation)
        assert refused.value.answer == answer
