"""Objects that are cut short, empty or garbage: loud and typed for readers and writers, and the rest stays readable.

S51, S52, S53, S60 and what a damaged table means.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph
from omnigraph.api import Graph, catalog_of
from omnigraph.commit.birth import GraphExists, init_graph
from omnigraph.errors import Corruption, OmnigraphError
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertNode
from tests.faults.atomicity import AtomicityCheck
from tests.faults.faulty_process import SCHEMA, FaultyProcess, content_of, copy_graph

Damage = Callable[[bytes], bytes]

_PEOPLE = ["Ada", "Bob", "Cid", "Dan"]
_CUT: dict[str, Damage] = {
    "empty": lambda data: b"",
    "cut-in-half": lambda data: data[: len(data) // 2],
    "last-byte-lost": lambda data: data[:-1],
}
_GARBAGE: dict[str, Damage] = {
    "garbage": lambda data: bytes(byte ^ 0x5A for byte in data),
    "zeros": lambda data: bytes(len(data)),
    "more-bytes": lambda data: data + data,
}
_ALL = {**_CUT, **_GARBAGE}
#: Lance finds a manifest from its end, so that one written twice over is still whole.
_UNREADABLE = {name: damage for name, damage in _ALL.items() if name != "more-bytes"}
_FLIPS = 40


class _Scene:
    """One copy of the graph, and what is where in it."""

    def __init__(self, atomicity: AtomicityCheck, folder: Path) -> None:
        self.uri = copy_graph(atomicity.template, folder)
        self.root = Path(self.uri)
        self.warm = FaultyProcess(self.uri).open()
        self.head: CommitRecord = self.warm._branch.publisher.refresh()

    def record(self, seq: int) -> Path:
        return self.root / record_key(self.head.stream, seq)

    def cold(self, branch: str = "main", *, read_only: bool = False) -> Graph:
        return FaultyProcess(self.uri).open(branch, read_only=read_only)

    def spoil(self, path: Path, damage: Damage) -> None:
        path.write_bytes(damage(path.read_bytes()))

    def files(self, type_name: str, folder: str) -> list[Path]:
        table = self.warm.view().catalog.node(type_name)
        assert table is not None
        return sorted((self.root / "tables" / table.id / folder).iterdir())


@pytest.fixture
def scene(atomicity: AtomicityCheck, tmp_path: Path) -> _Scene:
    return _Scene(atomicity, tmp_path / "graph")


def _insert(graph: Graph, name: str = "Eve") -> None:
    graph.apply([InsertNode("Person", {"name": name})])


def _people(graph: Graph) -> list[str]:
    return sorted(graph.table("Person").to_arrow(["name"])["name"].to_pylist())


def _expect_refusal(work: Callable[[], object], kind: type[OmnigraphError] = Corruption) -> OmnigraphError:
    with pytest.raises(kind) as caught:
        work()
    assert caught.value.advice, f"no advice in {caught.value!r}"
    return caught.value


@pytest.mark.parametrize("damage", _ALL.values(), ids=_ALL)
def test_newest_record(damage: Damage, scene: _Scene) -> None:
    """S51: nobody reads past it or writes over it; all before it can still be read."""
    _insert(scene.cold())
    scene.spoil(scene.record(scene.head.seq + 1), damage)
    for read_only in (False, True):
        _expect_refusal(lambda read_only=read_only: scene.cold(read_only=read_only))  # type: ignore[misc]
    _expect_refusal(lambda: _people(scene.warm))
    _expect_refusal(lambda: _insert(scene.warm, "Fay"))
    _expect_refusal(scene.warm.fold)
    _expect_refusal(lambda: scene.warm.branch.create("fresh"))
    elsewhere = scene.cold("dev")
    for seq in range(1, scene.head.seq + 1):
        assert _people_at(elsewhere, f"{scene.head.stream}.{seq}") == _people_at(scene.warm, scene.head, seq)
    _insert(elsewhere, "Gus")
    assert "Gus" in _people(elsewhere)
    assert scene.record(scene.head.seq + 1).exists()
    assert not scene.record(scene.head.seq + 2).exists()


def _people_at(graph: Graph, commit: str | CommitRecord, seq: int = 0) -> list[str]:
    """Rows at a commit, by its id or through the records that a handle knows."""
    if isinstance(commit, CommitRecord):
        view_of = graph._view_of(graph._runtime.records(commit.stream).record(seq))
        return sorted(view_of.table("Person").to_arrow(["name"])["name"].to_pylist())
    return sorted(graph.at(commit).table("Person").to_arrow(["name"])["name"].to_pylist())


def test_every_byte_of_a_record_counts(scene: _Scene, sweep_seed: int) -> None:
    """One wrong byte anywhere is found. S52"""
    path = scene.record(scene.head.seq)
    content = path.read_bytes()
    places = (
        range(len(content)) if len(content) < _FLIPS else random.Random(sweep_seed).sample(range(len(content)), _FLIPS)
    )
    for location in places:
        path.write_bytes(content[:location] + bytes([content[location] ^ 1 << location % 8]) + content[location + 1 :])
        with pytest.raises(OmnigraphError) as caught:
            scene.cold(read_only=True)
        assert caught.value.code in ("corruption", "unsupported"), f"byte {location}: {caught.value!r}"
    path.write_bytes(content)
    assert _people(scene.cold()) == _PEOPLE


@pytest.mark.parametrize("damage", _ALL.values(), ids=_ALL)
def test_older_record(damage: Damage, scene: _Scene) -> None:
    """Only those who ask for that commit notice, and they do. S52"""
    scene.spoil(scene.record(scene.head.seq - 1), damage)
    graph = scene.cold()
    assert _people(graph) == _PEOPLE
    _insert(graph)
    _expect_refusal(lambda: graph.at(f"{scene.head.stream}.{scene.head.seq - 1}"))
    assert _people(graph) == sorted([*_PEOPLE, "Eve"])
    assert content_of(scene.uri)


def test_a_record_under_another_sequence_number(scene: _Scene) -> None:
    """Whole and well-formed, under a wrong name. S52"""
    shutil.copyfile(scene.record(scene.head.seq), scene.record(scene.head.seq + 1))
    _expect_refusal(scene.cold)
    _expect_refusal(lambda: _insert(scene.warm))


def test_a_gap_below_the_head(scene: _Scene) -> None:
    """S53: corruption, not the end of the log."""
    scene.record(scene.head.seq - 1).unlink()
    for read_only in (False, True):
        _expect_refusal(lambda read_only=read_only: scene.cold(read_only=read_only))  # type: ignore[misc]
    assert not scene.record(scene.head.seq - 1).exists(), "a writer filled the hole"


@pytest.mark.parametrize("damage", _ALL.values(), ids=_ALL)
def test_schema_object(damage: Damage, scene: _Scene) -> None:
    """No table is read under a guessed schema. S52"""
    scene.spoil(scene.root / "schemas" / f"{scene.head.schema}.json", damage)
    for read_only in (False, True):
        _expect_refusal(lambda read_only=read_only: _people(scene.cold(read_only=read_only)))  # type: ignore[misc]
    _expect_refusal(lambda: _insert(scene.cold()))
    _expect_refusal(lambda: scene.cold().schema.apply(SCHEMA))


def test_schema_object_is_gone(scene: _Scene) -> None:
    """S52"""
    (scene.root / "schemas" / f"{scene.head.schema}.json").unlink()
    _expect_refusal(lambda: _people(scene.cold(read_only=True)))
    _expect_refusal(lambda: _insert(scene.cold()))


@pytest.mark.parametrize("damage", _ALL.values(), ids=_ALL)
def test_graph_stamp(damage: Damage, scene: _Scene) -> None:
    """Neither opened nor taken for an empty address. S52, S57"""
    stamp = scene.root / "graph.json"
    scene.spoil(stamp, damage)
    spoilt = stamp.read_bytes()
    for read_only in (False, True):
        _expect_refusal(lambda read_only=read_only: scene.cold(read_only=read_only))  # type: ignore[misc]
    backend = FaultyProcess(scene.uri).backend
    _expect_refusal(lambda: init_graph(backend, catalog_of(SCHEMA, backend)), GraphExists)
    assert stamp.read_bytes() == spoilt


@pytest.mark.parametrize("damage", _ALL.values(), ids=_ALL)
def test_registry_entry(damage: Damage, scene: _Scene) -> None:
    """That branch is refused by name; all others work. S52"""
    scene.spoil(scene.root / "__branches" / "dev" / "00000000.json", damage)
    graph = scene.cold()
    _expect_refusal(lambda: graph.on_branch("dev"))
    _expect_refusal(graph.branch.list)
    _expect_refusal(lambda: graph.branch.create("dev"))
    _expect_refusal(lambda: graph.branch.delete("dev"))
    _insert(graph)
    graph.branch.create("fresh")
    assert _people(scene.cold("fresh")) == sorted([*_PEOPLE, "Eve"])


@pytest.mark.parametrize("damage", _UNREADABLE.values(), ids=_UNREADABLE)
def test_table_manifest(damage: Damage, scene: _Scene) -> None:
    """That table cannot be read; the others can, and none is written on top of what cannot be read."""
    for path in scene.files("Person", "_versions"):
        if path.suffix == ".manifest":
            scene.spoil(path, damage)
    graph = scene.cold()
    _expect_refusal(lambda: _people(graph))
    assert graph.table("Company").to_arrow(["name"]).num_rows == 1
    with pytest.raises(OmnigraphError):
        graph.fold()
    graph.apply([InsertNode("Company", {"name": "Bolt"})])
    assert scene.cold().table("Company").to_arrow(["name"]).num_rows == 2


@pytest.mark.parametrize("damage", _CUT.values(), ids=_CUT)
def test_table_data(damage: Damage, scene: _Scene) -> None:
    """A data file that was cut short is never read as fewer rows."""
    for path in scene.files("Person", "data"):
        scene.spoil(path, damage)
    graph = scene.cold()
    _expect_refusal(lambda: _people(graph))
    assert graph.table("Company").to_arrow(["name"]).num_rows == 1
    graph.apply([InsertNode("Company", {"name": "Bolt"})])


@pytest.mark.parametrize("folder", ["data", "_versions"])
def test_table_file_is_gone(folder: str, scene: _Scene) -> None:
    """Missing is said, never taken for empty."""
    for path in scene.files("Person", folder):
        path.unlink()
    graph = scene.cold()
    _expect_refusal(lambda: _people(graph))
    assert graph.table("Company").to_arrow(["name"]).num_rows == 1


def test_transaction_files_are_not_needed(scene: _Scene) -> None:
    """Lance keeps them for conflicts that detached versions never have: losing them loses nothing."""
    for path in scene.files("Person", "_transactions"):
        path.unlink()
    graph = scene.cold()
    _insert(graph)
    graph.fold()
    assert _people(scene.cold()) == sorted([*_PEOPLE, "Eve"])


def test_older_commits_when_only_main_exists(tmp_path: Path) -> None:
    """S51: a damaged head must not lock a reader out of what came before it."""
    process = FaultyProcess(str(tmp_path / "graph"))
    init_graph(process.backend, catalog_of(SCHEMA, process.backend))
    graph = process.open()
    _insert(graph, "Ada")
    commit = graph.refresh()
    _insert(graph, "Bob")
    head = graph._branch.publisher.head
    path = tmp_path / "graph" / record_key(head.stream, head.seq)
    path.write_bytes(path.read_bytes()[:-3])
    uri = str(tmp_path / "graph")
    _expect_refusal(lambda: FaultyProcess(uri).open(read_only=True))
    assert _people_at(graph, commit) == ["Ada"]
    assert omnigraph.open_at(uri, commit).table("Person").to_arrow(["name"])["name"].to_pylist() == ["Ada"]
    _expect_refusal(lambda: omnigraph.open_at(uri, head.commit_id))
