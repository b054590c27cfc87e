"""Tokens: who may ask, and who acted. S160: wrong, missing and expired tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph.cli.main import run
from omnigraph.clock import SystemClock, SystemIds
from omnigraph.errors import InvalidInput, NotFound, Unknown
from omnigraph.server.app import check_exposure, is_loopback
from omnigraph.server.hosting import restore_client_key, scope_client_key
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import (
    Token,
    Tokens,
    add_token,
    mint,
    read_tokens,
    revoke_token,
    tokens_of_environment,
    write_tokens,
)
from tests.server.bed import ADD, Door

Serving = Callable[..., Door]


def _mint(name: str, role: str = "write", expires_at: datetime | None = None) -> tuple[str, Token]:
    return mint(SystemIds(), SystemClock(), name, role, expires_at)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "secrets" / "tokens.json"


def test_who_may_do_what(serving: Serving, file: Path) -> None:
    writer, kept = _mint("ada")
    reader, kept_too = _mint("bob", "read")
    late, expired = _mint("eve", "write", datetime(2020, 1, 1, tzinfo=UTC))
    write_tokens(file, [kept, kept_too, expired])
    door = serving("--tokens", file, token=writer)

    assert door.mutate(ADD, {"n": "Ada"}).status == 200
    assert door.open_embedded().commits(1)[0].actor == "ada"
    assert door.query().status == 200

    door.token = reader
    assert door.names() == ["Ada"]
    for refused in (
        door.mutate(ADD, {"n": "Bo"}),
        door.post("branches", {"name": "x"}),
        door.call("DELETE", "/graphs/own/branches", params={"name": "x"}),
        door.post("branches/merge", {"source": "x"}),
        door.post("schema/apply", {"schema": "node X { name: String @key }"}),
        door.call("POST", "/graphs/own/load", content=b'{"type": "Person", "data": {"name": "Bo"}}\n'),
    ):
        assert (refused.status, refused.code) == (403, "read_only_token")
    assert door.names() == ["Ada"]

    codes = {None: "unauthenticated", "og_nonsense": "bad_token", writer[:-1]: "bad_token", late: "token_expired"}
    for token, code in codes.items():
        door.token = token
        for answer in (door.query(), door.call("GET", "/graphs"), door.call("GET", "/metrics")):
            assert (answer.status, answer.code) == (401, code)
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert door.call("POST", "/graphs/own/query", content=b"{").status == 401  # before the body is looked at
        assert door.call("GET", "/healthz").status == 200


def test_a_token_comes_and_goes_without_a_restart(serving: Serving, file: Path) -> None:
    write_tokens(file, [])
    text, token = _mint("ada")
    door = serving("--tokens", file, token=text)
    assert door.query().code == "bad_token"
    add_token(file, token)
    assert door.query().status == 200
    revoke_token(file, "ada")
    assert door.query().code == "bad_token"


def test_the_actor_cannot_be_chosen(serving: Serving, file: Path) -> None:
    text, token = _mint("ada")
    write_tokens(file, [token])
    door = serving("--tokens", file, token=text)
    assert door.mutate(ADD, {"n": "Bo"}, actor="root").code == "bad_request"


def test_tokens_from_the_environment(serving: Serving) -> None:
    door = serving(token="s3cret:with:colons", OMNIGRAPH_TOKENS="ada:write:s3cret:with:colons, bob:read:other")
    door.mutate(ADD, {"n": "Ada"})
    assert door.open_embedded().commits(1)[0].actor == "ada"
    door.token = "other"
    assert door.mutate(ADD, {"n": "Bo"}).status == 403


def test_the_file_holds_no_token(file: Path) -> None:
    text, token = _mint("ada")
    add_token(file, token)
    assert text not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert read_tokens(file) == (token,)
    tokens = Tokens(SystemClock(), file=file)
    assert tokens.find(text) == token
    assert tokens.find(text.upper()) is None
    with pytest.raises(InvalidInput, match="already"):
        add_token(file, token)
    with pytest.raises(NotFound):
        revoke_token(file, "nobody")


def test_two_tokens_with_one_secret_have_different_hashes() -> None:
    both = tokens_of_environment(SystemIds(), {"OMNIGRAPH_TOKENS": "a:read:same b:write:same"})
    assert len({token.hash for token in both}) == 2


@pytest.mark.parametrize("text", ["ada", "ada:read", "ada:read:", ":read:x", "ada:admin:x"])
def test_what_the_environment_cannot_say(text: str) -> None:
    with pytest.raises(InvalidInput):
        tokens_of_environment(SystemIds(), {"OMNIGRAPH_TOKENS": text})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tokens": [{"name": "x"}]}', '{"tokens": 5}'])
def test_a_damaged_file_lets_nobody_in(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(InvalidInput):
        Tokens(SystemClock(), file=file)


def test_a_file_that_vanished_lets_nobody_in(file: Path) -> None:
    text, token = _mint("ada")
    add_token(file, token)
    tokens = Tokens(SystemClock(), file=file)
    file.unlink()
    assert tokens.are_needed
    assert tokens.find(text) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_it_does_not_start_open_to_everybody() -> None:
    exposed = ServerSettings(host="0.0.0.0")
    with pytest.raises(InvalidInput, match="no tokens") as refused:
        check_exposure(exposed, {})
    assert refused.value.code == "unauthenticated_server"
    check_exposure(ServerSettings(host="0.0.0.0", allow_unauthenticated=True), {})
    check_exposure(ServerSettings(host="0.0.0.0", tokens=Path("tokens.json")), {})
    check_exposure(exposed, {"OMNIGRAPH_TOKENS": "a:read:b"})
    check_exposure(ServerSettings(), {})


def test_the_command_line_refuses_as_well(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(door.place), "--host", "0.0.0.0", "--port", "0", "--json"]) == 2
    assert run(["serve", str(door.place), "--host", "0.0.0.0", "--port", "0"]) == 5
    assert "unauthenticated_server" in capsys.readouterr().err


def test_tokens_on_the_command_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--tokens", str(file), "--json"]
    assert run(["token", "create", "--name", "ada", "--role", "write", "--expires-in", "90d", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = Tokens(SystemClock(), file=file).find(document["token"])
    assert rows is not None
    assert (rows.name, rows.role) == ("ada", "write")
    assert not rows.has_expired(SystemClock().now() + timedelta(days=89))
    assert rows.has_expired(SystemClock().now() + timedelta(days=91))
    assert run(["token", "list", *words]) == 0
    token_documents = json.loads(capsys.readouterr().out)["tokens"]
    assert [(token_document["name"], token_document["role"]) for token_document in token_documents] == [
        ("ada", "write")
    ]
    assert run(["token", "create", "--name", "x", "--role", "admin", *words]) == 5
    assert run(["token", "revoke", "--name", "ada", *words]) == 0
    capsys.readouterr()
    assert run(["token", "revoke", "--name", "ada", *words]) == 1
    assert os.listdir(file.parent) == ["tokens.json"]


def test_the_key_of_one_actor_never_answers_another(serving: Serving, file: Path) -> None:
    ada, token = _mint("ada")
    bob, kept_too = _mint("bob")
    write_tokens(file, [token, kept_too])
    door = serving("--tokens", file, token=ada)
    first = door.mutate(ADD, {"n": "Ada"}, Idempotency_Key="k")
    door.token = bob
    receipt = door.mutate(ADD, {"n": "Bob"}, Idempotency_Key="k")
    assert (receipt.status, receipt.document["replayed"]) == (200, False)
    assert receipt.document["commit_id"] != first.document["commit_id"]
    assert door.names() == ["Ada", "Bob"]
    assert door.mutate(ADD, {"n": "Bob"}, Idempotency_Key="k").document["commit_id"] == receipt.document["commit_id"]
    door.token = ada
    again = door.mutate(ADD, {"n": "Ada"}, Idempotency_Key="k")
    assert (again.document["replayed"], again.document["commit_id"]) == (True, first.document["commit_id"])
    # Every write that takes a key: a load, a merge, a schema.
    line = b'{"type": "Person", "data": {"name": "Cy"}}\n'
    loads = []
    for door.token in (ada, bob, ada):
        headers = {"Idempotency-Key": "load", "content-type": "application/x-ndjson"}
        loads.append(door.call("POST", "/graphs/own/load", content=line, headers=headers))
    assert [load.document["replayed"] for load in loads] == [False, False, True]
    old = door.mutate(ADD, {"n": "x"}, Idempotency_Key="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (old.code, old.document["client_key"]) == ("idempotency_window_passed", "01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_keys_as_they_are_kept() -> None:
    assert scope_client_key(None, "k") == "k"
    assert scope_client_key("ada", "k") == "ada:k"
    assert scope_client_key("a:b", "c") != scope_client_key("a", "b:c")
    assert scope_client_key("a b", "c") != scope_client_key("a%20b", "c")
    long = [scope_client_key(actor, "k" * 250) for actor in ("ada", "bob" * 40, "bob" * 41)]
    assert len(set(long)) == 3
    assert max(map(len, long)) <= 255


def test_errors_name_the_key_as_it_was_given() -> None:
    with pytest.raises(Unknown) as unclear, restore_client_key("k"):
        raise Unknown("nobody knows", op_id="o", client_key="ada:k")
    assert unclear.value.details == {"op_id": "o", "client_key": "k"}
    with pytest.raises(NotFound) as raised, restore_client_key("k"):
        raise NotFound("nothing")
    assert "client_key" not in raised.value.details
