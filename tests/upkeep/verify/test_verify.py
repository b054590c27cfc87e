"""Verify finds what is wrong and names it; repair makes anew what is derived and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.api import verify
from omnigraph.commit import next_record as next_module
from omnigraph.commit import publisher as publish_module
from omnigraph.config import Config
from omnigraph.errors import Unavailable, WriterFenced
from omnigraph.log.commit_record import CommitRecord, Stub
from omnigraph.log.stream import record_key
from omnigraph.storage.keys import KeyClass
from omnigraph.upkeep.verify.findings import VerifyReport
from tests.schedules.world import Actor, World, person
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.upkeep.upkeep_graphs import contents, file_of, fill, open_pin


def _report(world: World, *, deep: bool = False) -> VerifyReport:
    """By somebody who has seen nothing; no branch need be readable."""
    return verify(world.path, deep=deep, config=Config(fsync=False))


def _find_problems(world: World, *, deep: bool = False) -> list[tuple[str, str]]:
    report = _report(world, deep=deep)
    return [(error.code, error.where) for error in report.errors]


def _codes(world: World, *, deep: bool = False) -> set[str]:
    return {code for code, _ in _find_problems(world, deep=deep)}


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_graph_is_sound(used_world: World, deep: bool) -> None:
    actor = used_world.actor()
    report = actor.graph.verify(deep=deep)
    assert report.errors == ()
    assert report.ok
    notes = {problem.code for problem in report.problems}
    assert notes <= {"unnamed_files"}
    for part in ("records", "schemas", "registry_entries", "versions", "files", "indexes", "commits", "rows", "tags"):
        assert report.checked[part] > 0, part
    assert (report.checked["rows_read"] > 0) == deep
    assert report.to_json()["ok"] is True


def test_an_empty_graph_is_sound(world: World) -> None:
    assert world.actor().graph.verify(deep=True).ok


def _some_record(actor: Actor, kind: str) -> CommitRecord:
    records = actor.runtime.records(actor.head.stream)
    return next(
        entry
        for seq in range(actor.head.seq, -1, -1)
        if isinstance(entry := records.get(seq), CommitRecord) and entry.kind == kind
    )


def _data_file(world: World, actor: Actor) -> str:
    return f"tables/{open_pin(actor, 'Person').table}/data/{open_pin(actor, 'Person').metadata[0].files[0].path}"


def _break_record(world: World, actor: Actor) -> str:
    key = record_key(actor.head.stream, actor.head.seq - 1)
    path = file_of(world, key)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    return key


def _truncate_record(world: World, actor: Actor) -> str:
    key = record_key(actor.head.stream, 3)
    path = file_of(world, key)
    path.write_bytes(path.read_bytes()[:-7])
    return key


def _lose_record(world: World, actor: Actor) -> str:
    key = record_key(actor.head.stream, 2)
    file_of(world, key).unlink()
    return key


def _swap_record(world: World, actor: Actor) -> str:
    key = record_key(actor.head.stream, 3)
    file_of(world, key).write_bytes(file_of(world, record_key(actor.head.stream, 2)).read_bytes())
    return key


def _lose_data(world: World, actor: Actor) -> str:
    key = _data_file(world, actor)
    file_of(world, key).unlink()
    return key


def _truncate_data(world: World, actor: Actor) -> str:
    key = _data_file(world, actor)
    file_of(world, key).write_bytes(file_of(world, key).read_bytes()[:-100])
    return key


def _lose_manifest(world: World, actor: Actor) -> str:
    table = open_pin(actor, "Person")
    file_of(world, f"tables/{table.table}/{table.manifest_file}").unlink()
    return f"tables/{table.table}/ version {table.version}"


def _lose_deletions(world: World, actor: Actor) -> str:
    path = next((Path(world.path) / "tables" / open_pin(actor, "Person").table / "_deletions").iterdir())
    path.unlink()
    return str(path.relative_to(world.path))


def _lose_schema(world: World, actor: Actor) -> str:
    key = f"schemas/{actor.head.schema}.json"
    file_of(world, key).unlink()
    return key


def _lose_registry_entry(world: World, actor: Actor) -> str:
    file_of(world, "__branches/side/00000000.json").unlink()
    stream = next(
        path.name
        for path in (Path(world.path) / "__manifest").iterdir()
        if path.name != actor.head.stream
        and len(list(path.iterdir())) == 2
        and _kinds(actor, path.name) == ["fork", "mutate"]
    )
    return f"__manifest/{stream}/"


def _kinds(actor: Actor, stream: str) -> list[str]:
    entries = [actor.runtime.records(stream).get(seq) for seq in range(2)]
    return [entry.header.kind for entry in entries if entry]


def _lose_end_entry(world: World, actor: Actor) -> str:
    key = "__branches/gone/00000001.json"
    file_of(world, key).unlink()
    return key


def _break_registry(world: World, actor: Actor) -> str:
    key = "__branches/side/00000000.json"
    file_of(world, key).write_text('{"name": "other", "n": 0, "stream": "x"}')
    return key


def _write_past_the_records(world: World, actor: Actor) -> str:
    table_path = file_of(world, f"tables/{open_pin(actor, 'Knows').table}")
    dataset = lance.dataset(str(table_path))
    dataset.delete("true")
    return f"tables/{table_path.name}/_versions/{(1 << 64) - 1 - 2}.manifest"


def _break_tag(world: World, actor: Actor) -> str:
    path = file_of(world, "__tags/v1/00000000.json")
    path.write_text(path.read_text().replace(actor.head.commit_id, f"{actor.head.stream}.9999"))
    return "v1"


DAMAGE: dict[str, tuple[Callable[[World, Actor], str], str]] = {
    "a flipped byte in a record": (_break_record, "record_damaged"),
    "a truncated record": (_truncate_record, "record_damaged"),
    "a lost record": (_lose_record, "record_missing"),
    "a record in the wrong place": (_swap_record, "record_damaged"),
    "a lost data file": (_lose_data, "file_missing"),
    "a truncated data file": (_truncate_data, "file_truncated"),
    "a lost table manifest": (_lose_manifest, "version_unreadable"),
    "a lost deletion file": (_lose_deletions, "file_missing"),
    "a lost schema": (_lose_schema, "schema_damaged"),
    "a lost registry entry": (_lose_registry_entry, "registry_entry_missing"),
    "a lost end entry": (_lose_end_entry, "tombstone_missing"),
    "a damaged registry entry": (_break_registry, "registry_damaged"),
    "a stray table version": (_write_past_the_records, "stray_version"),
    "a tag of nothing": (_break_tag, "tag_broken"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_named(used_world: World, damage: str) -> None:
    actor = used_world.actor()
    act, code = DAMAGE[damage]
    where = act(used_world, actor)
    assert (code, where) in _find_problems(used_world)


def test_stock_cleanup_of_lance_is_detected(used_world: World) -> None:  # S134
    actor = used_world.actor()
    table_path = file_of(used_world, f"tables/{open_pin(actor, 'Person').table}")
    lance.dataset(str(table_path)).cleanup_old_versions(older_than=None, delete_unverified=True)
    assert _codes(used_world) & {"file_missing", "version_unreadable"}


def test_nobody_cleans_up_automatically(used_world: World) -> None:  # S135
    actor = used_world.actor()
    for name in ("Person", "Knows"):
        table = open_pin(actor, name)
        assert table.lance().config() == {}
        assert lance.dataset(str(file_of(used_world, f"tables/{table.table}"))).config() == {}


def test_a_lost_update_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # H5
    first_actor, second_actor = world.actor(inline_share=0), world.actor(inline_share=0)
    fill(first_actor, 3)
    monkeypatch.setattr(
        next_module, "_move_pin", lambda pin, move, table: replace(pin, version=move.version, fragments=move.fragments)
    )
    monkeypatch.setattr(publish_module, "_has_pin_moved", lambda *_: False)
    with first_actor.hold_at("write.before-record", lambda: first_actor.apply(person("x", 1))):
        second_actor.apply(person("y", 1))
    assert "pin_not_built_on" in _codes(world)
    assert "rows_wrong" in _codes(world)


def _rewritten(world: World, actor: Actor, change: Callable[[CommitRecord], CommitRecord]) -> None:
    """The newest record as a defect might have written it."""
    record = change(actor.head)
    file_of(world, record_key(record.stream, record.seq)).write_bytes(record.as_bytes)


def test_wrong_facts_inside_a_sound_record_are_found(used_world: World) -> None:
    actor = used_world.actor()
    good = actor.head
    person_id = actor.snapshot().type("Person").id

    def codes_with(**changes: Any) -> set[str]:
        _rewritten(used_world, actor, lambda _: replace(good, **changes))
        return _codes(used_world)

    pin = good.pins[person_id]
    assert codes_with(pins={**good.pins, person_id: replace(pin, rows=pin.rows + 1)}) == {"rows_wrong"}
    assert codes_with(content_seq=3) == {"chain_broken"}
    assert codes_with(header=replace(good.header, parents=())) == {"chain_broken"}
    assert codes_with(trail=(*good.trail[:-1], replace(good.trail[-1], rid="x"))) == {"trail_wrong"}
    knows_id = actor.snapshot().type("Knows").id
    overlay_without = {table: overlay_table for table, overlay_table in good.overlay.items() if table != person_id}
    fewer = {**good.pins, person_id: replace(pin, rows=pin.rows - 1)}
    assert codes_with(overlay=overlay_without, pins=fewer) == {"edge_end_missing"}
    assert codes_with(pins={t: overlay_table for t, overlay_table in good.pins.items() if t != knows_id}) == {
        "pin_lost",
        "pin_missing",
    }
    assert codes_with(header=replace(good.header, schema="0" * 64)) == {"schema_damaged"}
    assert codes_with() == set()


def test_only_deep_reads_data(used_world: World) -> None:
    actor = used_world.actor()
    key = _data_file(used_world, actor)
    path = file_of(used_world, key)
    data = bytearray(path.read_bytes())
    data[-60:-20] = b"\xff" * 40  # the file's own directory
    path.write_bytes(bytes(data))
    table = actor.snapshot().type("Person").id
    assert ("data_damaged", table) in {
        (error.code, error.details.get("table")) for error in _report(used_world, deep=True).errors
    }


def test_older_commits_are_counted_by_deep(world: World) -> None:
    actor = world.actor()
    actor.apply(person("a"))
    record = actor.head
    actor.apply(person("b"))
    table = actor.snapshot().type("Person").id
    wrong = replace(record, pins={table: replace(record.pins[table], rows=7)})
    file_of(world, record_key(record.stream, record.seq)).write_bytes(wrong.as_bytes)
    assert _codes(world) == set()
    assert _codes(world, deep=True) == {"rows_wrong"}


def test_collected_commits_are_no_damage(world: World) -> None:
    actor = world.actor(inline_share=0)
    fill(actor, 3)
    old = actor.head
    fill(actor, 3, 10)
    fill(actor, 3, 20)
    actor.runtime.backend.store.put(record_key(old.stream, old.seq), Stub(old.header).encode())
    assert world.actor().graph.verify(deep=True).ok


def test_a_store_that_does_not_answer_is_no_finding(used_world: World) -> None:
    used_world.actor()
    plan = FaultPlan.at(1, Fault.FAIL_BEFORE, key_classes={KeyClass.TAG})
    actor = used_world.actor(wrap=lambda store: FaultyStore(store, plan))
    with pytest.raises(Unavailable):
        actor.graph.verify()


class TestRepair:
    def test_completes_a_deletion(self, used_world: World) -> None:
        actor = used_world.actor()
        _lose_end_entry(used_world, actor)
        report = used_world.actor().graph.repair()
        assert report.ok
        assert len(report.done) == 1
        assert used_world.actor().graph.verify().ok

    @pytest.mark.parametrize("index", ["by_id", "text", "near"])
    def test_rebuilds_lost_indexes(self, used_world: World, index: str) -> None:
        actor = used_world.actor()
        before = contents(actor)
        info = next(candidate for candidate in open_pin(actor, "Person").indices() if candidate.name.startswith(index))
        table = open_pin(actor, "Person").table
        for uuid in info.segments:
            shutil.rmtree(file_of(used_world, f"tables/{table}/_indices/{uuid}"))
        assert "index_missing" in _codes(used_world)
        report = used_world.actor().graph.repair()
        assert [action for action in report.done if "Person" in action]
        newest = used_world.actor()
        assert contents(newest) == before
        assert info.name in {rebuilt.name for rebuilt in open_pin(newest, "Person").indices()}
        # The older commits still name what is lost; only the newest is made anew.
        assert {error.code for error in newest.graph.verify().errors} <= {"index_missing"}

    def test_leaves_data_alone(self, used_world: World) -> None:
        actor = used_world.actor()
        _lose_data(used_world, actor)
        seq = actor.head.seq
        report = used_world.actor().graph.repair()
        assert not report.ok
        assert report.done == ()
        assert actor.head.seq == seq

    def test_wants_to_write(self, used_world: World) -> None:
        actor = used_world.actor()
        table = open_pin(actor, "Person")
        shutil.rmtree(file_of(used_world, f"tables/{table.table}/_indices/{table.indices()[0].segments[0]}"))
        second_actor = used_world.actor()
        from omnigraph.commit.publish_plan import WriteOptions

        second_actor.runtime.claim(second_actor.branch, WriteOptions())
        with pytest.raises(WriterFenced):
            used_world.actor().graph.repair()
