"""What a user meets who is wrong, unlucky or not allowed: a typed error with a stable code that says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.commit.birth import GraphExists
from omnigraph.config import Config
from omnigraph.errors import (
    BranchClosed,
    Corruption,
    Forbidden,
    InvalidInput,
    NotFound,
    OmnigraphError,
    ParseError,
    PreconditionFailed,
    SnapshotExpired,
    Unavailable,
    Unsupported,
)
from omnigraph.log.branches import BranchExists
from omnigraph.log.commit_record import Stub
from omnigraph.log.stream import record_key
from omnigraph.query.language.statements import InsertNode
from omnigraph.storage.metering import RequestKind
from tests.scenarios.bed import SCHEMA, ScenarioBed, person, rows_of
from tests.support.faulty_store import Fault, FaultPlan, FaultyStore
from tests.support.s3 import S3Place

QUICK = Config(fsync=False, publish_deadline_s=0.3)


def _expect_refusal(
    error_type: type[OmnigraphError], code: str, advice: str, work: Callable[[], object]
) -> OmnigraphError:
    """`work` is refused with exactly this class and code, and the text says what to do."""
    with pytest.raises(OmnigraphError) as caught:
        work()
    error = caught.value
    assert isinstance(error, error_type), repr(error)
    assert error.code == code, repr(error)
    assert advice.lower() in str(error).lower(), str(error)
    assert json.loads(json.dumps(error.to_json()))["code"] == code
    return error


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_graph_that_is_not_there(tmp_path: Path) -> None:
    location = tmp_path / "nothing here"
    for read_only in (False, True):
        error = _expect_refusal(
            NotFound, "graph_not_found", "init", partial(omnigraph.open, location, read_only=read_only)
        )
        assert str(location) in str(error)
    assert not location.exists(), "looking leaves nothing behind"


def test_a_graph_that_is_there_already(local_bed: ScenarioBed) -> None:
    error = _expect_refusal(
        GraphExists, "graph_exists", "open it", partial(omnigraph.init, local_bed.place.uri, SCHEMA)
    )
    assert local_bed.place.uri in str(error)
    assert not error.retryable


def test_a_file_where_the_graph_should_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("hello")
    for work in (partial(omnigraph.open, path), partial(omnigraph.init, path, SCHEMA)):
        with pytest.raises(OmnigraphError) as caught:
            work()
        assert caught.value.code
    assert path.read_text() == "hello"


@pytest.mark.parametrize(
    "uri", ["", "  ", "ftp://host/graph", "s3://", "s3:///key", "file://host/graph", "s3://b/../x"]
)
def test_an_address_that_cannot_be_one(uri: str) -> None:
    for work in (partial(omnigraph.open, uri), partial(omnigraph.init, uri, SCHEMA)):
        with pytest.raises(InvalidInput) as caught:
            work()
        assert caught.value.code == "invalid_address"
        assert caught.value.advice


def test_a_server_that_does_not_answer() -> None:
    options = {
        "aws_endpoint": f"http://127.0.0.1:{free_port()}",
        "aws_region": "us-east-1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "allow_http": "true",
    }
    with pytest.raises(Unavailable) as caught:
        omnigraph.open("s3://bucket/graph", storage_options=options, config=QUICK)
    assert caught.value.retryable
    assert caught.value.advice
    assert "bucket" in str(caught.value)


@pytest.mark.s3
def test_a_bucket_that_is_not_there(s3_place: S3Place) -> None:
    for work in (
        partial(omnigraph.open, "s3://no-such-bucket/g", storage_options=s3_place.storage_options, config=QUICK),
        partial(
            omnigraph.init, "s3://no-such-bucket/g", SCHEMA, storage_options=s3_place.storage_options, config=QUICK
        ),
    ):
        with pytest.raises((NotFound, Unavailable)) as caught:
            work()
        assert caught.value.advice
        assert "no-such-bucket" in str(caught.value)


@pytest.mark.parametrize("kinds", [[RequestKind.GET, RequestKind.LIST], [RequestKind.PUT]], ids=["reading", "writing"])
def test_no_permission(local_bed: ScenarioBed, kinds: list[RequestKind]) -> None:
    """Emulated at the seam: who runs the tests may be allowed everything on the disk."""
    local_bed.process().apply(person("a"))
    plan = FaultPlan.at(1, Fault.FORBID, kinds=kinds, times=None)
    with pytest.raises(Forbidden):
        local_bed.process(wrap=partial(FaultyStore, plan=plan))
    if kinds == [RequestKind.PUT]:
        reader = local_bed.process(read_only=True, wrap=partial(FaultyStore, plan=plan))
        assert rows_of(reader.graph, "Person").keys() == {"a"}
    late = local_bed.process(fold="never")
    late.fail(FaultPlan.at(1, Fault.FORBID, kinds=kinds, times=None))
    with pytest.raises(Forbidden):
        late.apply(person("b", 1)) if kinds == [RequestKind.PUT] else late.graph.view()
    assert local_bed.rows("Person").keys() == {"a"}


def test_permissions_of_the_directory(local_bed: ScenarioBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file system answers is told as what it is."""
    process = local_bed.process(fold="never")

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(Forbidden) as caught:
        process.graph.view()
    assert caught.value.advice


@pytest.mark.parametrize(("version", "advice"), [(7, "upgrade"), (0, "export")])
def test_another_storage_format(local_bed: ScenarioBed, version: int, advice: str) -> None:
    stamp = json.loads(local_bed.store().get("graph.json"))
    local_bed.store().put("graph.json", json.dumps({**stamp, "internal_schema": version}).encode())
    for read_only in (False, True):
        error = _expect_refusal(Unsupported, "storage_format", advice, partial(local_bed.process, read_only=read_only))
        assert error.details["internal_schema"] == version


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"format": "other"}', b'{"format": "omnigraph"}', b"\xff"]
)
def test_a_stamp_that_cannot_be_read(local_bed: ScenarioBed, content: bytes) -> None:
    local_bed.store().put("graph.json", content)
    _expect_refusal(Corruption, "corruption", "backup", local_bed.process)
    with pytest.raises(GraphExists):
        omnigraph.init(local_bed.place.uri, SCHEMA)


def test_a_stamp_that_lacks_a_part(local_bed: ScenarioBed) -> None:
    stamp = json.loads(local_bed.store().get("graph.json"))
    del stamp["main_stream"]
    local_bed.store().put("graph.json", json.dumps(stamp).encode())
    _expect_refusal(Corruption, "corruption", "backup", local_bed.process)


def test_a_damaged_record(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never")
    process.apply(person("a"))
    key = record_key(process.head.stream, process.head.seq)
    data = local_bed.store().get(key)
    local_bed.store().put(key, data[:-1])
    error = _expect_refusal(Corruption, "corruption", "backup", local_bed.process)
    assert error.details["key"] == key


def test_a_gap_in_the_sequence(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never")
    for number in range(4):
        process.apply(person(f"p{number}"))
    local_bed.store().delete(record_key(process.head.stream, 2))
    error = _expect_refusal(Corruption, "corruption", "restore", local_bed.process)
    assert error.details["seq"] == 2


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not json"])
def test_a_schema_object_that_is_missing_or_damaged(local_bed: ScenarioBed, content: bytes | None) -> None:
    (key,) = [all_key for all_key in local_bed.place.all_keys() if all_key.startswith("schemas/")]
    if content is None:
        local_bed.store().delete(key)
    else:
        local_bed.store().put(key, content)
    fresh = local_bed.process()
    with pytest.raises(Corruption) as caught:
        fresh.graph.table("Person")
    assert key in str(caught.value)
    assert caught.value.advice
    with pytest.raises(Corruption):
        fresh.apply(person("a"))


def test_a_registry_entry_that_is_damaged(local_bed: ScenarioBed) -> None:
    local_bed.process().graph.branch.create("dev")
    (key,) = [all_key for all_key in local_bed.place.all_keys() if all_key.startswith("__branches/")]
    local_bed.store().put(key, b"{")
    _expect_refusal(Corruption, "corruption", "verify", partial(local_bed.process, "dev"))
    local_bed.process().apply(person("a"))


def test_a_table_file_that_is_gone(local_bed: ScenarioBed) -> None:
    process = local_bed.process(staged=True, fold="never")
    process.apply(person("a"))
    (data,) = [key for key in local_bed.place.all_keys() if "/data/" in key]
    local_bed.store().delete(data)
    with pytest.raises(OmnigraphError) as caught:
        local_bed.rows("Person")
    assert isinstance(caught.value, (Corruption, NotFound))
    assert caught.value.code


def test_a_branch_that_is_not_there(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    for work in (
        partial(local_bed.open, "nope"),
        partial(process.graph.on_branch, "nope"),
        partial(process.graph.branch.delete, "nope"),
        partial(process.graph.branch.create, "new", "nope"),
    ):
        error = _expect_refusal(NotFound, "branch_not_found", "branch list", work)
        assert error.details["branch"] == "nope"


def test_a_branch_that_is_there_already(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    process.graph.branch.create("dev")
    error = _expect_refusal(BranchExists, "branch_exists", "another name", partial(process.graph.branch.create, "dev"))
    assert not error.retryable


def test_names_that_are_reserved(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    _expect_refusal(InvalidInput, "reserved_branch", "another name", partial(process.graph.branch.create, "main"))
    _expect_refusal(InvalidInput, "reserved_branch", "another name", partial(process.graph.branch.delete, "main"))
    _expect_refusal(InvalidInput, "bad_branch_name", "letters", partial(process.graph.branch.create, "__manifest"))


def test_a_deleted_branch(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    dev = process.graph.branch.create("dev")
    process.graph.branch.delete("dev")
    _expect_refusal(BranchClosed, "branch_closed", "open the branch again", partial(dev.apply, [person("a")]))
    _expect_refusal(BranchClosed, "branch_closed", "open the branch again", dev.view)


def test_commits_that_are_not_there(local_bed: ScenarioBed) -> None:
    process = local_bed.process(fold="never")
    for age in range(3):
        process.apply(person("a", age))
    stream = process.head.stream
    for commit_id in (f"{stream}.99", "01ARZ3NDEKTSV4RRFFQ69G5FAV.0"):
        _expect_refusal(NotFound, "not_found", "commit list", partial(process.graph.at, commit_id))
    for text in ("", "main", "12", f"{stream}.x", f"{stream}.-1", "../x.1", f"{stream}.1.2"):
        _expect_refusal(InvalidInput, "invalid_input", "<stream>.<seq>", partial(process.graph.at, text))
    record = process.runtime.records(stream).record(1)
    local_bed.store().put(record_key(stream, 1), Stub(record.header).encode())
    _expect_refusal(SnapshotExpired, "snapshot_expired", "newer commit", partial(process.graph.at, f"{stream}.1"))
    _expect_refusal(
        SnapshotExpired, "snapshot_expired", "newer commit", partial(process.graph.branch.create, "b", f"{stream}.1")
    )
    assert process.graph.branch.list() == ["main"]


def test_a_precondition_that_does_not_hold(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    old = process.apply(person("a", 1)).commit_id
    process.apply(person("a", 2))
    write = partial(process.apply, person("a", 3))
    error = _expect_refusal(PreconditionFailed, "precondition_failed", "read again", partial(write, if_commit=old))
    assert error.details["expected"] == old
    _expect_refusal(InvalidInput, "invalid_input", "<stream>.<seq>", partial(write, if_commit="yesterday"))
    dev = process.graph.branch.create("dev")
    _expect_refusal(
        PreconditionFailed, "precondition_failed", "read again", partial(dev.apply, [person("b")], if_commit=old)
    )


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "\x00"])
def test_client_keys_that_cannot_be_kept(local_bed: ScenarioBed, key: str) -> None:
    process = local_bed.process()
    _expect_refusal(InvalidInput, "bad_client_key", "printable", partial(process.apply, person("a"), client_key=key))


def test_a_client_key_that_is_too_old(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    work = partial(process.apply, person("a"), client_key="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    _expect_refusal(InvalidInput, "idempotency_window_passed", "new key", work)


def test_a_mutation_beyond_its_limit(local_bed: ScenarioBed) -> None:
    """The cap itself passes, one more does not."""
    process = local_bed.process(mutation_max_rows=5)
    process.apply(*[person(f"p{number}") for number in range(5)])
    error = _expect_refusal(
        InvalidInput, "limit_exceeded", "load", partial(process.apply, *[person(f"q{number}") for number in range(6)])
    )
    assert (error.details["limit"], error.details["bound"], error.details["value"]) == ("mutation_max_rows", 5, 6)
    assert len(local_bed.ages()) == 5


def test_types_properties_and_texts_that_are_wrong(local_bed: ScenarioBed) -> None:
    process = local_bed.process()
    _expect_refusal(NotFound, "type_not_found", "Known types", partial(process.apply, InsertNode("Nobody", {})))
    _expect_refusal(NotFound, "type_not_found", "Known types", partial(process.graph.table, "Nobody"))
    _expect_refusal(
        InvalidInput, "unknown_property", "It has", partial(process.apply, InsertNode("Person", {"name": "a", "x": 1}))
    )
    with pytest.raises(ParseError) as caught:
        process.graph.mutate("query q() {\n  insert Person { name: }\n}")
    assert caught.value.details
    assert not local_bed.logical()


def test_schemas_that_are_wrong(tmp_path: Path) -> None:
    for schema in ("node Person { name: Text }", "edge E: A -> B", "node { }", "node P { id: String }"):
        with pytest.raises(InvalidInput) as caught:
            omnigraph.init(tmp_path / "graph", schema)
        assert caught.value.code
    with pytest.raises(InvalidInput) as caught:
        omnigraph.init(tmp_path / "graph", tmp_path / "missing.pg")
    assert caught.value.code == "schema_file"
    assert not (tmp_path / "graph" / "graph.json").exists()


def test_options_that_contradict_each_other(local_bed: ScenarioBed) -> None:
    with pytest.raises(InvalidInput):
        local_bed.open(read_only=True, exclusive=True)


@pytest.mark.parametrize(("name", "text"), [("FSYNC", "perhaps"), ("FOLD", "often"), ("READ_AHEAD", "many")])
def test_settings_of_the_environment_that_are_wrong(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Config.from_environment({f"OMNIGRAPH_{name}": text})
    assert f"OMNIGRAPH_{name}" in str(caught.value)
    assert caught.value.advice
