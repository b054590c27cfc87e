"""The local directory: atomic, durable, and typed in its failures (H41)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import Forbidden, InvalidInput, OmnigraphError, Unavailable, Unsupported
from omnigraph.storage import local as local_module
from omnigraph.storage.local import DirectorySync, LocalStore
from omnigraph.storage.store import ObjectMissing, PutResult

_RACER = """
import sys
from omnigraph.storage.local import LocalStore
root, name, count = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
store = LocalStore(root, fsync=False)
print("ready", flush=True)
sys.stdin.readline()
print(*[n for n in range(count) if store.put_if_absent(f"__manifest/s/{n:04d}.rec", name).value == "created"])
"""


def test_eight_processes_race_and_each_key_has_one_winner(tmp_path: Path) -> None:
    keys, names = 100, [f"p{n}" for n in range(8)]
    command = [sys.executable, "-c", _RACER, str(tmp_path / "graph")]
    racers = [
        subprocess.Popen([*command, name, str(keys)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    for racer in racers:
        assert racer.stdout
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {name: racer.communicate(timeout=60)[0].split() for name, racer in zip(names, racers, strict=True)}
    assert sorted(int(n) for keys_won in won.values() for n in keys_won) == list(range(keys))
    store = LocalStore(tmp_path / "graph")
    for name, keys_won in won.items():
        for n in keys_won:
            assert store.get(f"__manifest/s/{int(n):04d}.rec") == name.encode()
    assert _temporaries(tmp_path) == []


def test_sixteen_threads_race_on_one_store(local: LocalStore) -> None:
    start = threading.Barrier(16)
    answers: list[PutResult] = []

    def race(n: int) -> None:
        start.wait()
        answers.append(local.put_if_absent("a/b/c", str(n).encode()))

    threads = [threading.Thread(target=race, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(PutResult.CREATED) == 1


def test_thread_that_saw_no_root_does_not_report_the_new_root_as_vanished(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An early thread sees no root. Before it goes on, others make the root, learn it, and look at it once more."""
    real = local_module._identity
    looked, noticed, moved, ended = (threading.Event() for _ in range(4))

    def identity(path: str) -> tuple[int, int] | None:
        root_id = real(path)
        if threading.current_thread() is not early:
            if looked.is_set() and local._root_id is not None:
                noticed.set()
                moved.wait()
        elif not looked.is_set():
            looked.set()
            noticed.wait()
        else:
            moved.set()
            ended.wait()
        return root_id

    def act() -> None:
        try:
            local.put_if_absent("early/key", b"")
        finally:
            moved.set()

    early = threading.Thread(target=act)
    monkeypatch.setattr(local_module, "_identity", identity)
    early.start()
    looked.wait()
    try:
        local.put_if_absent("first/key", b"")
        local.put_if_absent("second/key", b"")
    finally:
        noticed.set()
        ended.set()
        early.join()
    assert [local.get(f"{key}/key") for key in ("early", "first", "second")] == [b""] * 3


@pytest.fixture
def effects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which things become durable, by file name."""
    effect_list: list[str] = []
    names: dict[int, str] = {}
    real = {name: getattr(os, name) for name in ("open", "fsync", "link", "replace", "unlink")}

    def label(path: str) -> str:
        return "temporary" if "/.tmp-" in path else os.path.basename(path)

    def record_open(path: str, *args: int) -> int:
        descriptor: int = real["open"](path, *args)
        names[descriptor] = label(os.fspath(path))
        return descriptor

    def record_sync(descriptor: int) -> None:
        real["fsync"](descriptor)
        effect_list.append(f"fsync {names[descriptor]}")

    def record_call(name: str) -> Callable[..., None]:
        def call(*paths: str) -> None:
            real[name](*paths)
            effect_list.append(f"{name} {label(paths[-1])}")

        return call

    monkeypatch.setattr(os, "open", record_open)
    monkeypatch.setattr(os, "fsync", record_sync)
    for name in ("link", "replace", "unlink"):
        monkeypatch.setattr(os, name, record_call(name))
    return effect_list


def test_a_record_is_durable_before_it_is_named_and_its_name_before_the_answer(
    tmp_path: Path, effects: list[str]
) -> None:
    # H41: file, then name, then the directory; once also the path that leads there, since it may be new.
    store = LocalStore(tmp_path / "graph")
    store.put_if_absent("m/s/1", b"x")
    assert effects == [
        "fsync temporary", "link 1", "unlink temporary", "fsync s", "fsync m", "fsync graph", f"fsync {tmp_path.name}",
    ]  # fmt: skip
    effects.clear()
    store.put_if_absent("m/s/2", b"x")
    assert effects == ["fsync temporary", "link 2", "unlink temporary", "fsync s"]


def test_a_folder_made_by_another_process_is_made_durable_too(tmp_path: Path, effects: list[str]) -> None:
    (tmp_path / "graph" / "m" / "s").mkdir(parents=True)
    LocalStore(tmp_path / "graph").put_if_absent("m/s/1", b"x")
    assert effects[-4:] == ["fsync s", "fsync m", "fsync graph", f"fsync {tmp_path.name}"]


def test_exists_is_answered_without_writing_but_makes_the_name_durable(tmp_path: Path, effects: list[str]) -> None:
    store = LocalStore(tmp_path / "graph")
    store.put_if_absent("m/1", b"x")
    effects.clear()
    assert store.put_if_absent("m/1", b"y") is PutResult.EXISTS
    assert effects == ["fsync m"]


def test_replace_is_durable(tmp_path: Path, effects: list[str]) -> None:
    store = LocalStore(tmp_path / "graph")
    store.put("m/1", b"x")
    effects.clear()
    store.put("m/1", b"y")
    assert effects == ["fsync temporary", "replace 1", "fsync m"]


def test_files_of_others_are_made_durable_with_their_folders(tmp_path: Path, effects: list[str]) -> None:
    data = tmp_path / "graph" / "tables" / "t-1" / "data"
    data.mkdir(parents=True)
    (data / "f.lance").write_bytes(b"rows")
    DirectorySync(tmp_path / "graph").sync(["tables/t-1/data/f.lance"])
    assert effects == ["fsync f.lance", "fsync data", "fsync t-1", "fsync tables", "fsync graph"]


def test_without_fsync_nothing_is_synced(tmp_path: Path, effects: list[str]) -> None:
    store = LocalStore(tmp_path / "graph", fsync=False)
    store.put_if_absent("m/1", b"x")
    store.put("m/1", b"x")
    assert not [effect for effect in effects if effect.startswith("fsync")]


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, Unavailable, "disk_full"),
        (errno.EDQUOT, Unavailable, "disk_full"),
        (errno.EIO, Unavailable, "io_error"),
        (errno.EROFS, Unavailable, "read_only_file_system"),
        (errno.ETIMEDOUT, Unavailable, "io_error"),
        (errno.EACCES, Forbidden, "forbidden"),
    ],
)
def test_a_failing_disk_is_typed_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: type[OmnigraphError], code: str
) -> None:
    store = LocalStore(tmp_path / "graph")
    store.put("a/other", b"")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(kind) as caught:
            store.put_if_absent("a/b", b"x")
    assert caught.value.code == code
    assert caught.value.advice
    assert str(tmp_path) in str(caught.value)
    assert store.get_many(["a/b"]) == [None]
    assert _temporaries(tmp_path) == []


def test_a_file_system_without_hard_links_is_named(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(Unsupported, match="hard links") as caught:
        local.put_if_absent("a/b", b"x")
    assert caught.value.code == "no_conditional_put"


def test_a_failed_replace_keeps_the_old_object(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local.put("a", b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(Unavailable):
            local.put("a", b"new")
    assert local.get("a") == b"old"
    assert _temporaries(Path(local.root)) == []


def test_leftovers_of_a_killed_writer_are_invisible(local: LocalStore) -> None:
    local.put("a/1", b"")
    Path(local.root, "a", ".tmp-0123456789abcdef").write_bytes(b"half")
    assert [info.key for info in local.list("")] == ["a/1"]


def test_an_unmounted_root_is_not_an_empty_graph(local: LocalStore) -> None:
    # A record put into a re-created empty directory would be acknowledged and lost.
    local.put("m/1", b"")
    shutil.move(local.root, local.root + "-elsewhere")
    for ask in (
        lambda: local.get("m/1"),
        lambda: local.head("m/1"),
        lambda: local.list("m/"),
        lambda: local.delete("m/1"),
        lambda: local.put_if_absent("m/2", b""),
        lambda: local.put("m/2", b""),
    ):
        with pytest.raises(Unavailable) as caught:
            ask()
        assert caught.value.code == "root_vanished"
    os.mkdir(local.root)
    with pytest.raises(Unavailable, match=r"cannot write into '.*/m': .* replaced"):
        local.put_if_absent("m/2", b"")
    assert os.listdir(local.root) == []


def test_a_root_that_never_was_is_simply_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "none")
    assert store.list("") == []
    with pytest.raises(ObjectMissing):
        store.get("graph.json")
    assert not (tmp_path / "none").exists()


def test_a_folder_is_no_object(local: LocalStore) -> None:
    local.put("a/b/c", b"")
    for ask in (local.get, local.head):
        with pytest.raises(ObjectMissing):
            ask("a/b")
    with pytest.raises(ObjectMissing):
        local.get("a/b/c/d")


def test_a_name_too_long_for_the_file_system_is_the_callers_mistake(local: LocalStore) -> None:
    with pytest.raises(InvalidInput):
        local.put_if_absent("x" * 300, b"")


@pytest.mark.parametrize("key", ["a", "a/b/c"])
def test_a_root_that_is_a_file_is_the_callers_mistake(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path / "file")
    for put in (store.put_if_absent, store.put):
        with pytest.raises(InvalidInput) as caught:
            put(key, b"")
        assert caught.value.code == "invalid_address"


def test_a_file_in_the_place_of_a_folder_is_typed(local: LocalStore) -> None:
    local.put("a", b"")
    for put in (local.put_if_absent, local.put):
        with pytest.raises(InvalidInput):
            put("a/b/c", b"")


def test_large_objects_survive_short_writes(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:1000]))
    payload = os.urandom(12345)
    local.put_if_absent("big", payload)
    assert local.get("big") == payload


def _temporaries(below: Path) -> list[Path]:
    return list(below.rglob(".tmp-*"))
