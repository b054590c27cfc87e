"""The S3 servers themselves: put-if-absent has one winner however hard it is raced, and every place starts empty."""

from __future__ import annotations

import re
from urllib.parse import quote

import lance
import obstore
import pyarrow as pa
import pytest

from tests.support.s3 import S3Place, ServerProcess, fresh_bucket, race_put_if_absent, request

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("rounds", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_moto_has_one_winner_per_key(rounds: int) -> None:
    """On a server whose threads switch eagerly: there, moto without the lock has several winners in some rounds."""
    server = ServerProcess("moto_server.py", "--eager-switching")
    try:
        with fresh_bucket(server) as place:
            assert race_put_if_absent(place, racers=16, rounds=rounds) == [1] * rounds
    finally:
        server.stop()


def test_seaweed_has_one_winner_per_key(seaweed_place: S3Place) -> None:
    """Few rounds: SeaweedFS makes contenders for one key wait for about a second."""
    assert race_put_if_absent(seaweed_place, racers=4, rounds=3) == [1] * 3


@pytest.mark.slow
def test_seaweed_has_one_winner_per_key_of_sixteen(seaweed_place: S3Place) -> None:
    assert race_put_if_absent(seaweed_place, racers=16, rounds=20) == [1] * 20


def test_every_place_is_empty_and_apart(moto_server: ServerProcess, s3_place: S3Place) -> None:
    with fresh_bucket(moto_server) as second_place:
        assert second_place.bucket != s3_place.bucket
        obstore.put(second_place.object_store(), "a", b"")
        assert second_place.list_keys() == ["a"]
        assert s3_place.list_keys() == []
    status, _ = request(moto_server, "GET", f"/{second_place.bucket}?list-type=2")
    assert status == 404


def test_seaweed_places_share_a_bucket_but_no_key(seaweed_place: S3Place) -> None:
    assert seaweed_place.list_keys() == []
    obstore.put(seaweed_place.below("x").object_store(), "a", b"")
    assert seaweed_place.list_keys() == ["x/a"]


def test_lance_and_obstore_take_the_same_place(race_place: S3Place) -> None:
    uri = f"{race_place.uri}/t"
    lance.write_dataset(pa.table({"a": [1, 2]}), uri, storage_options=race_place.storage_options)
    assert lance.dataset(uri, storage_options=race_place.storage_options).count_rows() == 2
    assert any(key.startswith("t/_versions/") for key in race_place.list_keys())


def test_the_environment_is_enough(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_place.env.items():
        monkeypatch.setenv(name, value)
    store = obstore.store.from_url(s3_place.uri)
    obstore.put(store, "a", b"")
    assert lance.write_dataset(pa.table({"a": [1]}), f"{s3_place.uri}/t").count_rows() == 1


def test_moto_answers_as_s3_does(s3_place: S3Place) -> None:
    store = s3_place.object_store()
    obstore.put(store, "a/b c+d%e", b"0123456789", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "a/b c+d%e", b"", mode="create")
    assert bytes(obstore.get_range(store, "a/b c+d%e", start=2, end=5)) == b"234"
    assert obstore.head(store, "a/b c+d%e")["size"] == 10
    assert s3_place.list_keys() == ["a/b c+d%e"]
    obstore.delete(store, "a/b c+d%e")
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "a/b c+d%e")


def test_listings_are_in_order_and_paged(moto_server: ServerProcess, s3_place: S3Place) -> None:
    store = s3_place.object_store()
    for name in ("d", "b", "e", "a", "c"):
        obstore.put(store, name, b"")
    pages: list[list[str]] = []
    token = ""
    while len(pages) < 5:
        query = f"list-type=2&prefix={s3_place.prefix}/&max-keys=2{token}"
        _, body = request(moto_server, "GET", f"/{s3_place.bucket}?{query}")
        pages.append(re.findall(r"<Key>g/(.)</Key>", body.decode()))
        following = re.search(r"<NextContinuationToken>([^<]+)<", body.decode())
        if following is None:
            break
        token = f"&continuation-token={quote(following[1], safe='')}"
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


def test_a_server_ends_with_its_input() -> None:
    """So that no server outlives a session that was killed."""
    server = ServerProcess("moto_server.py")
    process = server._process
    assert process.poll() is None
    server.stop()
    assert process.returncode == 0


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)no_such_server.py did not start.*No such file"):
        ServerProcess("no_such_server.py")
