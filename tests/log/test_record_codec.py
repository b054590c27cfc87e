"""The bytes of a record: what goes in comes out, and no damage passes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from omnigraph.errors import Corruption, InvalidInput, SnapshotExpired, Unsupported
from omnigraph.log.commit_record import (
    CommitRecord,
    CommitRef,
    Epoch,
    Member,
    Pin,
    Stub,
    TouchedTable,
    WriteSet,
    decode_record,
    parse_commit_id,
)
from omnigraph.log.frame import MAGIC, decode_frame, encode_frame
from tests.log.records import STREAM, entries, header, record

FULL = replace(
    record(
        33,
        "merge",
        pins={"node.person-1": Pin("9223372036854775809", 3, 512, 2, 31), "edge.knows-1": Pin(None, 0, 0, 0, 0)},
        overlay={
            "node.person-1": entries("rid33", {"a": 1, "b": None}, ["c"]),
            "edge.knows-1": entries("r2", {"e": 4}),
        },
        touched={"node.person-1": TouchedTable(2, 0, 1, True, "1", "9223372036854775809")},
        writes=WriteSet(np.array([3, 5, 2**64 - 1], np.uint64), frozenset({"t|*"}), frozenset({"t|row"})),
        trail=(header(31), header(32, "fold", actor="omnigraph:fold")),
        epoch=Epoch(4, "holder"),
        parents=(CommitRef(STREAM, 32, "r32"), CommitRef("OTHER", 7, "r7")),
        actor="ada",
        message="why — ünïcode",
        members=(Member("op1", "ada", "key", {"inserted": 2}), Member("op2", None, None, {})),
    ),
    gc={"id": "g", "honours": ["x"]},
    extra={"recovery_kind": "rolled_forward"},
)


def _same(commit_record: CommitRecord, expected: CommitRecord) -> bool:
    plain = ("header", "epoch", "content_seq", "pins", "touched", "trail", "gc", "extra")
    return (
        all(getattr(commit_record, name) == getattr(expected, name) for name in plain)
        and (commit_record.writes.wild, commit_record.writes.scopes) == (expected.writes.wild, expected.writes.scopes)
        and bool(np.array_equal(commit_record.writes.exact, expected.writes.exact))
        and {name: table.table.to_pylist() for name, table in commit_record.overlay.items()}
        == {name: table.table.to_pylist() for name, table in expected.overlay.items()}
    )


@pytest.mark.parametrize("commit_record", [FULL, record(0, "init"), record(7)], ids=["full", "init", "plain"])
def test_a_record_survives_encoding(commit_record: CommitRecord) -> None:
    again = decode_record(commit_record.as_bytes, "here")
    assert isinstance(again, CommitRecord)
    assert _same(commit_record, again)
    assert again.as_bytes == commit_record.as_bytes, "the same record always has the same bytes"


def test_versions_beyond_64_bits_stay_exact() -> None:
    again = decode_record(FULL.as_bytes, "here")
    assert isinstance(again, CommitRecord)
    assert again.pins["node.person-1"].version == "9223372036854775809"


@pytest.mark.parametrize(("count", "compressed"), [(1, False), (600, True)])
def test_large_records_are_compressed(count: int, compressed: bool) -> None:
    large_record = record(3, overlay={"t": entries("rid3", {f"row-{number}": number for number in range(count)})})
    assert large_record.as_bytes[4] == (1 if compressed else 0)
    again = decode_record(large_record.as_bytes, "here")
    assert isinstance(again, CommitRecord)
    assert _same(large_record, again)


def test_a_stub_keeps_what_answers_was_it_mine() -> None:
    stub = Stub(FULL.header)
    again = decode_record(stub.encode(), "here")
    assert again == stub
    assert (again.rid, again.seq, again.commit_id) == (FULL.rid, 33, FULL.commit_id)
    with pytest.raises(SnapshotExpired) as caught:
        raise stub.make_expired_error()
    assert caught.value.details == {"commit_id": FULL.commit_id}


def _bytes(name: str) -> bytes:
    if name == "raw":
        return record(3, overlay={"t": entries("rid3", {"a": 1})}).as_bytes
    return record(3, overlay={"t": entries("rid3", {f"row-{number}": number for number in range(600)})}).as_bytes


@pytest.mark.parametrize("name", ["raw", "compressed"])
def test_every_changed_byte_is_found(name: str, sweep_seed: int) -> None:
    """S52. In the frame and in a sample of the body, one bit at a time; nothing but a typed error may come out."""
    data = _bytes(name)
    chance = random.Random(sweep_seed)
    places = [*range(13), *chance.sample(range(13, len(data)), 60)]
    for location in places:
        for bit in range(8):
            damaged = data[:location] + bytes([data[location] ^ (1 << bit)]) + data[location + 1 :]
            with pytest.raises((Corruption, Unsupported)) as caught:
                decode_record(damaged, "the key")
            assert "the key" in str(caught.value)


@pytest.mark.parametrize("name", ["raw", "compressed"])
def test_every_truncation_is_found(name: str) -> None:
    data = _bytes(name)
    for length in [*range(40), *range(40, len(data), 97), len(data) - 1]:
        with pytest.raises(Corruption):
            decode_record(data[:length], "the key")


def test_bytes_behind_the_end_are_found() -> None:
    with pytest.raises(Corruption):
        decode_record(record(3).as_bytes + b"x", "the key")


@pytest.mark.parametrize("data", [b"", b"x", bytes(13), b"PAR1" + bytes(100), b"{}" * 40], ids=repr)
def test_other_things_are_no_record(data: bytes) -> None:
    with pytest.raises(Corruption):
        decode_record(data, "the key")


@pytest.mark.parametrize(
    "head",
    [
        {},
        {"v": 1},
        {"v": 1, "stub": True},
        {"v": 1, "stream": "s", "seq": "one"},
        {"v": 1, "stream": "s", "pins": []},
    ],
)
def test_a_header_without_what_it_needs_is_corruption_or_another_version(head: dict[str, object]) -> None:
    with pytest.raises((Corruption, Unsupported)):
        decode_record(encode_frame(head, []), "the key")


def test_a_newer_record_version_asks_for_an_upgrade() -> None:
    with pytest.raises(Unsupported, match="Upgrade"):
        decode_record(encode_frame({"v": 2}, []), "the key")


def test_the_frame_begins_with_its_magic() -> None:
    data = encode_frame({"v": 1}, [b"abc"])
    assert data[:4] == MAGIC.to_bytes(4, "little")
    head, body = decode_frame(data, "here")
    assert (head, bytes(body)) == ({"v": 1}, b"abc")


@pytest.mark.parametrize(("text", "parsed"), [("abc.0", ("abc", 0)), (f"{STREAM}.12345", (STREAM, 12345))])
def test_commit_ids(text: str, parsed: tuple[str, int]) -> None:
    assert parse_commit_id(text) == parsed


@pytest.mark.parametrize(
    "text", ["", ".", "a", "a.", ".1", "a.b", "a.-1", "a.1.2", "a/b.1", "a b.1", "a.١", "a." + "9" * 5000]
)
def test_texts_that_are_no_commit_ids(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_commit_id(text)
