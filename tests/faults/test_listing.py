"""Finding the newest record whatever a listing says: stale, long, unordered, with strangers in it (S49, S50, S53)."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.api import Graph
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Corruption, OmnigraphError
from omnigraph.log.commit_record import CommitRecord
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.address import open_store
from omnigraph.storage.store import ObjectInfo, Store
from tests.faults.atomicity import AtomicityCheck
from tests.faults.faulty_process import FaultyProcess, copy_graph
from tests.faults.stores import ChangedListingStore
from tests.support.s3 import S3Place

_MANY = 1100


def lengthen(store: Store, head: CommitRecord, count: int) -> CommitRecord:
    """Records that repeat the head, as cheap as commits can be."""
    for number in range(count):
        header = replace(
            head.header, seq=head.seq + 1, rid=f"fabricated{number:06d}", parents=(head.ref,), gen=head.header.gen + 1
        )
        head = replace(head, header=header, trail=())
        store.put_if_absent(record_key(head.stream, head.seq), head.as_bytes)
    return head


def _head(graph: Graph) -> CommitRecord:
    return graph._branch.publisher.head


def _insert(graph: Graph, name: str) -> None:
    graph.apply([InsertNode("Person", {"name": name})])


@pytest.fixture
def uri(atomicity: AtomicityCheck, tmp_path: Path) -> str:
    return copy_graph(atomicity.template, tmp_path / "graph")


@pytest.mark.parametrize("hidden", [1, 3, 17, 60, 1000])
def test_a_stale_listing(hidden: int, uri: str) -> None:
    """The newest keys are not listed yet: they are found by probing upward, by readers and writers. S49"""
    head = lengthen(open_store(uri, fsync=False), _head(FaultyProcess(uri).open()), 50)

    def stale(objects: list[ObjectInfo]) -> list[ObjectInfo]:
        return [info for info in objects if not info.key.endswith(".rec")] or objects[hidden:]

    for read_only in (True, False):
        graph = FaultyProcess(uri, wrap=lambda store: ChangedListingStore(store, stale)).open(read_only=read_only)
        assert _head(graph).commit_id == head.commit_id
    _insert(graph, "Eve")
    assert _head(FaultyProcess(uri).open()).seq == head.seq + 1


def test_a_stale_registry_never_makes_two_branches_of_one_name(uri: str) -> None:
    """The newest registry entries are not listed yet: a typed answer or the right one, and one live incarnation."""
    FaultyProcess(uri).open().branch.create("dead")

    def stale(objects: list[ObjectInfo]) -> list[ObjectInfo]:
        return objects[:-1] if objects and "__branches/dead" in objects[-1].key else objects

    process = FaultyProcess(uri, wrap=lambda store: ChangedListingStore(store, stale))
    with pytest.raises(OmnigraphError):
        process.open().branch.create("dead")
    fresh = FaultyProcess(uri).open()
    _insert(fresh.on_branch("dead"), "Eve")
    assert sorted(Path(uri, "__branches", "dead").iterdir())[-1].name == "00000002.json"


@pytest.mark.parametrize("name", [".tmp-abc", ".tmp-probe-x"])
def test_temporary_files_are_no_records(name: str, uri: str) -> None:
    """What a killed put left behind is in no listing. S50"""
    head = _head(FaultyProcess(uri).open())
    for folder in (f"__manifest/{head.stream}", "__branches/dev", "__branches", "."):
        Path(uri, folder, name).write_bytes(b"half a rec")
    graph = FaultyProcess(uri).open()
    assert _head(graph).commit_id == head.commit_id
    assert graph.branch.list() == ["dev", "main"]
    _insert(graph.on_branch("dev"), "Eve")


def test_a_foreign_object_among_the_records(uri: str) -> None:
    """Refused by name, for readers and writers. S50"""
    head = _head(FaultyProcess(uri).open())
    Path(uri, "__manifest", head.stream, "notes.txt").write_bytes(b"hello")
    for read_only in (True, False):
        with pytest.raises(Corruption, match=r"notes\.txt"):
            FaultyProcess(uri).open(read_only=read_only)


def test_many_pages(uri: str) -> None:
    """More records than a page lists: the newest is on the first one; old commits stay one GET away. S50"""
    first = _head(FaultyProcess(uri).open())
    head = lengthen(open_store(uri, fsync=False), first, _MANY)
    process = FaultyProcess(uri)
    graph = process.open()
    assert _head(graph).commit_id == head.commit_id
    _insert(graph, "Eve")
    assert graph.at(first.commit_id).table("Person").count() == 4
    assert graph.table("Person").count() == 5
    assert len(graph.commits(limit=None)) > _MANY


def test_an_unordered_store(uri: str, sweep_seed: int) -> None:
    """Listed whole, in whatever order it comes. S50"""
    chance = random.Random(sweep_seed)
    head = lengthen(open_store(uri, fsync=False), _head(FaultyProcess(uri).open()), 300)

    def shuffle(objects: list[ObjectInfo]) -> list[ObjectInfo]:
        return chance.sample(objects, len(objects))

    process = FaultyProcess(uri, wrap=lambda store: ChangedListingStore(store, shuffle))
    runtime = GraphRuntime.open(replace(process.backend, lists_in_order=False), read_only=False)
    graph = Graph(runtime, runtime.branch("main"))
    assert _head(graph).commit_id == head.commit_id
    assert graph.branch.list() == ["dev", "main"]
    _insert(graph, "Eve")
    assert _head(FaultyProcess(uri).open()).seq == head.seq + 1


@pytest.mark.s3
@pytest.mark.slow
def test_many_pages_on_s3(s3_place: S3Place) -> None:
    """A server's pages of 1000 keys. S50"""
    import omnigraph

    omnigraph.init(s3_place.uri, "node Person { name: String @key }", storage_options=s3_place.storage_options)
    process = FaultyProcess(s3_place.uri, s3_place.storage_options)
    head = lengthen(process.backend.store, _head(process.open()), _MANY)
    graph = FaultyProcess(s3_place.uri, s3_place.storage_options).open()
    assert _head(graph).commit_id == head.commit_id
    _insert(graph, "Eve")
    assert graph.table("Person").count() == 1
