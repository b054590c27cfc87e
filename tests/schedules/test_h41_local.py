"""H41: in a directory, what an acknowledged write needs is on the disk before the write is acknowledged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.schedules.guarded import run_without_rules
from tests.schedules.world import Actor, World, person


class _Calls:
    """What was asked of the file system, in order: ("sync", path), ("link", path)."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def paths_synced_before(self, position: int) -> set[str]:
        return {path for call, path in self.made[:position] if call == "sync"}

    def record_link(self) -> int:
        """The place of the link that gave the newest record its name."""
        return max(
            position for position, (call, path) in enumerate(self.made) if call == "link" and path.endswith(".rec")
        )


@contextmanager
def _record_calls() -> Iterator[_Calls]:
    calls = _Calls()
    fsync, link = os.fsync, os.link

    def syncing(descriptor: int) -> None:
        calls.made.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def linking(source: str, target: str) -> None:
        link(source, target)
        calls.made.append(("link", os.fspath(target)))

    with patch("os.fsync", syncing), patch("os.link", linking):
        yield calls


def _durable(world: World, **config: Any) -> Actor:
    return world.actor(fsync=True, **config)


def _table_files(world: World) -> set[str]:
    return {str(path) for path in (Path(world.path) / "tables").rglob("*") if path.is_file()}


def _assert_staged_is_durable(world: World, calls: _Calls, new: set[str]) -> None:
    """Files, their folders and, once, the folders above those, all before the record gets its name."""
    synced = calls.paths_synced_before(calls.record_link())
    needed = {path for path in new if not path.endswith("latest_version_hint.json")}
    assert needed, "nothing was staged"
    assert needed <= synced, sorted(needed - synced)
    folders = {str(folder) for path in needed for folder in Path(path).parents if folder.is_relative_to(world.path)}
    assert folders <= synced, sorted(folders - synced)


@run_without_rules("sync-tables")
def test_h41_every_staged_file_is_synced_before_the_record(world: World) -> None:
    """Data, deletion, manifest and transaction files of the first and of a later staged write. H41"""
    stager = _durable(world, inline_share=0)
    before = _table_files(world)
    with _record_calls() as calls:
        for change in ([person("x", 1), person("y", 1)], [person("x", 2), person("z", 1)]):
            stager.apply(*change)
            new = _table_files(world) - before
            assert {Path(path).suffix for path in new} >= {".lance", ".manifest", ".txn"}
            _assert_staged_is_durable(world, calls, new)
    assert any("_deletions" in path for path in new)


@run_without_rules("sync-tables")
def test_h41_a_fold_is_a_staged_write_too(world: World) -> None:
    """What a fold writes is synced before its record. H41"""
    writer = _durable(world)
    writer.apply(person("x", 1))
    before = _table_files(world)
    with _record_calls() as calls:
        writer.graph.fold()
    _assert_staged_is_durable(world, calls, _table_files(world) - before)


@run_without_rules("sync-names", "sync-temporary")
def test_h41_a_record_is_synced_linked_and_its_folder_synced(world: World) -> None:
    """Temporary file, fsync, link, fsync of the folder, and only then the answer. H41"""
    writer = _durable(world)
    with _record_calls() as calls:
        writer.apply(person("x", 1))
    position = calls.record_link()
    folder = str(Path(calls.made[position][1]).parent)
    before = [path for call, path in calls.made[:position] if call == "sync"]
    after = [path for call, path in calls.made[position:] if call == "sync"]
    assert any(Path(path).name.startswith(".tmp-") and str(Path(path).parent) == folder for path in before)
    assert folder in after


@run_without_rules("sync-names")
def test_h41_new_folders_are_anchored_in_their_parents(world: World) -> None:
    """The first record of a stream is in a folder that was just made. H41"""
    main = _durable(world)
    with _record_calls() as calls:
        main.graph.branch.create("dev")
    synced = {path for call, path in calls.made if call == "sync"}
    linked = [Path(path) for call, path in calls.made if call == "link"]
    assert {path.parent.parent.name for path in linked} == {"__manifest", "__branches"}
    for path in linked:
        assert {str(path.parent), str(path.parent.parent), world.path} <= synced


@run_without_rules("sync-names")
def test_h41_who_finds_its_own_record_makes_it_durable_before_saying_so(world: World) -> None:
    """The link's answer was lost: the second try finds the name taken, by itself. H41, H25"""
    writer = _durable(world)
    store = writer.runtime.backend.store
    store.put_if_absent("__manifest/x/a.rec", b"1")
    with _record_calls() as calls:
        store.put_if_absent("__manifest/x/a.rec", b"1")
    assert ("sync", f"{world.path}/__manifest/x") in calls.made
