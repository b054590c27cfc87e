"""The conflict test: which commit that landed in between conflicts with which plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

from omnigraph.commit.footprint import (
    EXACT_KEYS_MAX,
    Footprint,
    FootprintBuilder,
    depends_on_member,
    find_footprint_conflict,
    merge_writes,
    tuple_key,
)
from omnigraph.log.commit_record import CommitKind, CommitRecord, Stub, TouchedTable
from tests.commit.plans import T, U
from tests.log.records import entries, header, record, rows

Claims = Callable[[FootprintBuilder], None]


def _of(*claims: Claims) -> Footprint:
    builder = FootprintBuilder()
    for claim in claims:
        claim(builder)
    return builder.build()


def _read(table: str, kind: str, key: str) -> Claims:
    return lambda builder: builder.read(table, kind, key)


def _write(table: str, kind: str, key: str) -> Claims:
    return lambda builder: builder.write(table, kind, key)


def _both(table: str, kind: str, key: str) -> Claims:
    return lambda builder: builder.read_write(table, kind, key)


def _all(table: str) -> Claims:
    return lambda builder: builder.read_all(table)


def _wild(table: str, kind: str | None = None) -> Claims:
    return lambda builder: builder.write_all(table, kind)


def _where(table: str, condition: pc.Expression) -> Claims:
    return lambda builder: builder.predicate(table, condition)


def _theirs(*claims: Claims, kind: CommitKind = "mutate", **fields: Any) -> CommitRecord:
    return record(6, kind, writes=_of(*claims).writes, **fields)


NOTHING = _of()

CASES: list[tuple[str, list[Claims], list[Claims], bool]] = [
    ("the same row", [_both(T, "row", "a")], [_both(T, "row", "a")], True),
    ("another row", [_both(T, "row", "a")], [_both(T, "row", "b")], False),
    ("the same id of another table", [_both(T, "row", "a")], [_both(U, "row", "a")], False),
    ("another class of the same key", [_read(T, "live", "a")], [_write(T, "inc", "a")], False),
    ("only written by both", [_write(T, "row", "a")], [_write(T, "row", "a")], False),
    ("only read by them", [_both(T, "row", "a")], [_read(T, "row", "a")], False),
    ("edge insert after node delete", [_read(T, "live", "n")], [_write(T, "live", "n")], True),
    ("node delete after edge insert", [_read(T, "inc", "n")], [_write(T, "inc", "n")], True),
    ("two edge inserts at one node", [_write(T, "inc", "n")], [_write(T, "inc", "n")], False),
    ("the same unique tuple", [_both(T, "uniq:k", '["x"]')], [_both(T, "uniq:k", '["x"]')], True),
    ("a unique tuple that was freed", [_both(T, "uniq:k", '["x"]')], [_write(T, "uniq:k", '["x"]')], True),
    ("another unique rule", [_both(T, "uniq:k", '["x"]')], [_both(T, "uniq:j", '["x"]')], False),
    ("two edges of one source under @card", [_both(T, "card", "s")], [_both(T, "card", "s")], True),
    ("whole-table read, any row", [_all(T)], [_write(T, "row", "z")], True),
    ("whole-table read, another table", [_all(T)], [_write(U, "row", "z")], False),
    ("their wildcard, our row", [_read(T, "row", "a")], [_wild(T)], True),
    ("their wildcard of a class", [_read(T, "row", "a")], [_wild(T, "row")], True),
    ("their wildcard of another class", [_read(T, "row", "a")], [_wild(T, "inc")], False),
    ("their wildcard of another table", [_read(T, "row", "a")], [_wild(U)], False),
    ("their wildcard, our whole-table read", [_all(T)], [_wild(T)], True),
    ("their wildcard, our condition", [_where(T, pc.field("age") > 5)], [_wild(T)], True),
    ("our wildcard alone reads nothing", [_wild(T)], [_write(T, "row", "a")], False),
    ("nothing read", [], [_wild(T), _write(T, "row", "a")], False),
    ("nothing written", [_all(T), _both(T, "row", "a")], [], False),
]


@pytest.mark.parametrize(
    ("read_claims", "write_claims", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_reads_against_writes(read_claims: list[Claims], write_claims: list[Claims], expected: bool) -> None:
    hit = find_footprint_conflict(_of(*read_claims), "schema-1", _theirs(*write_claims))
    assert (hit is not None) == expected
    if hit is not None:
        assert hit.table == T
        assert hit.reason


@pytest.mark.parametrize("kind", ["fold", "physical", "gc", "epoch"])
def test_what_changes_nothing_logical_never_conflicts(kind: CommitKind) -> None:
    assert find_footprint_conflict(_of(_all(T), _read(T, "row", "a")), "schema-1", _theirs(_wild(T), kind=kind)) is None


@pytest.mark.parametrize("kind", ["mutate", "load", "merge", "schema", "recovery", "close"])
def test_everything_else_does(kind: CommitKind) -> None:
    assert find_footprint_conflict(_of(_read(T, "row", "a")), "schema-1", _theirs(_wild(T), kind=kind)) is not None


def test_another_schema_invalidates_everybody() -> None:
    hit = find_footprint_conflict(NOTHING, "schema-1", _theirs(schema="schema-2", kind="schema"))
    assert hit is not None
    assert hit.table is None


def test_a_stub_means_everything() -> None:
    """H19: what a collected commit wrote is unknown."""
    assert find_footprint_conflict(NOTHING, "schema-1", Stub(header(6))) is not None


OLDER = pc.field("age") > 50


@pytest.mark.parametrize(
    ("ages", "deleted", "expected"),
    [
        ({"n": 52}, [], True),
        ({"n": 50}, [], False),
        ({"n": None}, [], False),
        ({}, ["n"], False),
        ({"a": 1, "b": 99}, [], True),
    ],
    ids=["phantom", "no match", "null", "tombstone", "one of several"],
)
def test_a_condition_meets_new_rows_that_satisfy_it(
    ages: dict[str, int | None], deleted: list[str], expected: bool
) -> None:
    """H17. Only the record's own entries count, not what was in the overlay before."""
    overlay = entries("old", {"before": 99}).with_entries(entries("rid6", ages, deleted))
    commit_record = record(6, overlay={T: overlay}, touched={T: TouchedTable(inserted=1)})
    assert (find_footprint_conflict(_of(_where(T, OLDER)), "schema-1", commit_record) is not None) == expected
    assert find_footprint_conflict(_of(_where(U, OLDER)), "schema-1", commit_record) is None, (
        "a condition is about one table"
    )


def test_a_condition_meets_every_staged_change_of_its_table() -> None:
    """No row images are at hand there."""
    commit_record = record(6, touched={T: TouchedTable(inserted=1, staged=True)})
    assert find_footprint_conflict(_of(_where(T, OLDER)), "schema-1", commit_record) is not None
    assert find_footprint_conflict(_of(_where(U, OLDER)), "schema-1", commit_record) is None


def test_too_many_keys_become_a_wildcard() -> None:
    builder = FootprintBuilder()
    for number in range(EXACT_KEYS_MAX):
        builder.write(T, "row", str(number))
    exact = builder.build().writes
    assert len(exact.exact) == EXACT_KEYS_MAX
    assert not exact.wild
    builder.write(T, "row", "one more")
    wild = builder.build().writes
    assert wild.wild == {f"{T}|row|*"}
    assert not len(wild.exact)
    assert find_footprint_conflict(_of(_read(T, "row", "anything")), "schema-1", record(6, writes=wild)) is not None
    assert find_footprint_conflict(_of(_read(T, "live", "anything")), "schema-1", record(6, writes=wild)) is None


def test_write_sets_are_sorted_and_joined() -> None:
    parts = [_of(_write(T, "row", key)).writes for key in "dcba"]
    joined = merge_writes([*parts, parts[0]])
    assert joined.exact.tolist() == sorted(joined.exact.tolist())
    assert len(joined.exact) == 4
    assert merge_writes([parts[0]]) is parts[0]


@pytest.mark.parametrize(
    ("first", "second"),
    [(("a", "b"), ("a,b",)), (("a", ""), ("a",)), (('a","b',), ("a", "b")), ((1,), ("1",)), ((True,), (1,))],
)
def test_tuples_that_differ_have_different_keys(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    assert tuple_key(first) != tuple_key(second)


@pytest.mark.parametrize(
    ("footprint", "other_footprint", "ages", "expected"),
    [
        (_of(_read(T, "row", "a")), _of(_write(T, "row", "a")), {}, True),
        (_of(_read(T, "row", "a")), _of(_write(T, "row", "b")), {}, False),
        (_of(_where(T, OLDER)), _of(_write(T, "row", "b")), {"b": 60}, True),
        (_of(_where(T, OLDER)), _of(_write(T, "row", "b")), {"b": 40}, False),
        (_of(_all(T)), _of(_write(T, "row", "b")), {"b": 40}, True),
        (_of(_read(T, "row", "a")), _of(_wild(T)), {}, True),
    ],
    ids=["row", "other row", "phantom", "no phantom", "whole table", "wildcard"],
)
def test_members_of_one_group(
    footprint: Footprint, other_footprint: Footprint, ages: dict[str, int | None], expected: bool
) -> None:
    assert depends_on_member(footprint, other_footprint, {T: rows(ages)}) == expected
