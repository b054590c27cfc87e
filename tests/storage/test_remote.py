"""Each way an object store answers becomes one typed answer of the seam (H25), within bounded time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from omnigraph.clock import SystemClock
from omnigraph.errors import Forbidden, InvalidInput, NotFound, OmnigraphError, Unavailable
from omnigraph.storage.address import open_store, parse_address
from omnigraph.storage.remote import open_remote
from omnigraph.storage.store import ObjectMissing, PutResult, Store
from tests.storage.s3_double import STAMP, CannedAnswer, S3Double, serving

Ask = Callable[[Store], object]
ASKS: dict[str, Ask] = {
    "get": lambda store: store.get("k/1"),
    "get_many": lambda store: store.get_many(["k/1", "k/2"]),
    "head": lambda store: store.head("k/1"),
    "put_if_absent": lambda store: store.put_if_absent("k/1", b"x"),
    "put": lambda store: store.put("k/1", b"x"),
    "list": lambda store: store.list("k/"),
    "list-first": lambda store: store.list("k/", first_page=True),
    "delete": lambda store: store.delete("k/1"),
}
every_ask = pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS.keys())


@pytest.fixture
def store(double: S3Double) -> Store:
    return open_store("s3://bucket/g", double.options)


@every_ask
@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (401, b"", Forbidden, "forbidden"),
        (403, b"", Forbidden, "forbidden"),
        (400, b"<Error><Code>ExpiredToken</Code></Error>", Forbidden, "forbidden"),
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", NotFound, "bucket_missing"),
        (400, b"", InvalidInput, "store_configuration"),
        (301, b"", InvalidInput, "store_configuration"),
        (400, b"<Error><Code>RequestTimeout</Code></Error>", Unavailable, "unavailable"),
        (500, b"", Unavailable, "unavailable"),
        (501, b"", Unavailable, "unavailable"),
        (503, b"", Unavailable, "slow_down"),
        (429, b"", Unavailable, "slow_down"),
    ],
)
def test_a_status_becomes_a_typed_answer(
    double: S3Double, store: Store, ask: Ask, status: int, body: bytes, kind: type[OmnigraphError], code: str
) -> None:
    if body and ask is ASKS["head"]:
        pytest.skip("the answer to a HEAD has no body that could tell more than its status")
    double.always(status, body)
    with pytest.raises(kind) as caught:
        ask(store)
    assert caught.value.code == code
    assert caught.value.advice
    assert "s3://bucket/g" in str(caught.value)
    assert "Debug source" not in str(caught.value)
    assert not isinstance(caught.value, ObjectMissing)


@pytest.mark.parametrize("name", ["get", "head"])
def test_404_is_a_missing_key(double: S3Double, store: Store, name: str) -> None:
    with pytest.raises(ObjectMissing):
        ASKS[name](store)


@pytest.mark.parametrize("name", ["put_if_absent", "put", "list"])
def test_404_where_no_key_is_needed_is_a_missing_bucket(double: S3Double, store: Store, name: str) -> None:
    double.always(404)
    with pytest.raises(NotFound) as caught:
        ASKS[name](store)
    assert caught.value.code == "bucket_missing"


@pytest.mark.parametrize("status", [409, 412])
def test_409_and_412_to_a_conditional_put_are_exists(double: S3Double, store: Store, status: int) -> None:
    # H25: 409 means that nothing landed. The caller reads the key, so the seam need not know which it was.
    double.always(status)
    assert store.put_if_absent("k/1", b"x") is PutResult.EXISTS
    assert double.count("PUT") == 1


@pytest.mark.parametrize("name", ["get", "head", "put", "list", "delete"])
@pytest.mark.parametrize("status", [409, 412])
def test_409_and_412_to_anything_else_are_no_answer(double: S3Double, store: Store, name: str, status: int) -> None:
    double.always(status)
    with pytest.raises(Unavailable):
        ASKS[name](store)


@pytest.mark.parametrize("lost", [CannedAnswer(503), CannedAnswer(200, drop=True)], ids=["503", "dropped"])
def test_own_success_whose_answer_was_lost_comes_back_as_exists(
    double: S3Double, store: Store, lost: CannedAnswer
) -> None:
    # H25: obstore itself repeats the PUT and is told that the key exists.
    answers = [lost]
    double.after = lambda method, key: answers.pop() if method == "PUT" and answers else None
    assert store.put_if_absent("k/1", b"x") is PutResult.EXISTS
    assert double.objects["g/k/1"] == b"x"


@every_ask
def test_a_refused_connection_is_unavailable(ask: Ask) -> None:
    with socket.socket() as closed_socket:
        closed_socket.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port and answer
        endpoint = f"http://127.0.0.1:{closed_socket.getsockname()[1]}"
        options = {"aws_endpoint": endpoint, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        store = open_store("s3://bucket/g", options)
        with pytest.raises(Unavailable) as caught:
            ask(store)
    assert caught.value.code == "unavailable"
    assert caught.value.retryable


@pytest.mark.parametrize("name", ["get", "put_if_absent", "list"])
def test_a_silent_server_is_given_up_in_bounded_time(name: str) -> None:
    with serving() as double:  # its own: requests that were given up are still standing there
        _ask_a_silent_server(double, name)


def _ask_a_silent_server(double: S3Double, name: str) -> None:
    released = threading.Event()

    def be_silent(method: str, key: str) -> None:
        released.wait(30)

    double.before = be_silent
    address = parse_address("s3://bucket/g", double.options)
    store_options = {name: value for name, value in address.options.items() if name != "allow_http"}
    store = open_remote(address.uri, store_options, {"allow_http": "true"}, timeout_s=0.3, retry_limit_s=0.2)
    clock = SystemClock()
    started_s = clock.monotonic()
    try:
        with pytest.raises(Unavailable):
            ASKS[name](store)
    finally:
        released.set()
    assert clock.monotonic() - started_s < 5


def test_a_transient_503_is_repeated_by_the_client(double: S3Double, store: Store) -> None:
    double.objects["g/k/1"] = b"x"
    answers = [CannedAnswer(503)]
    double.before = lambda method, key: answers.pop() if answers else None
    assert store.get("k/1") == b"x"
    assert double.count("GET") == 2


def test_missing_credentials_are_named(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    double.always(404)
    options = {"aws_endpoint": double.endpoint, "aws_metadata_endpoint": double.endpoint}
    with pytest.raises(Forbidden) as caught:
        open_store("s3://bucket/g", options).get("k/1")
    assert caught.value.code == "no_credentials"


def test_an_unknown_option_is_the_callers_mistake() -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store("s3://bucket/g", {"aws_no_such_option": "1"})
    assert caught.value.code == "store_configuration"


def test_the_first_page_is_one_request_and_the_whole_list_all_of_them(double: S3Double, store: Store) -> None:
    double.objects = {f"g/k/{n:05d}": b"" for n in range(2500)}
    assert store.list("k/", first_page=True)[0].key == "k/00000"
    assert double.count("LIST") == 1
    assert len(store.list("k/")) == 2500
    assert double.count("LIST") == 1 + 3


def test_a_store_that_lists_in_disorder_is_listed_whole(double: S3Double, store: Store) -> None:
    # H28: the newest record may stand on any page.
    double.objects = {f"g/k/{n:05d}": b"" for n in range(2500)}
    double.listing_order = lambda keys: sorted(keys, key=lambda key: key[::-1])
    assert store.list("k/", first_page=True)[0].key == "k/00000"
    double.seen.clear()
    assert store.list("k/", first_page=True)[0].key == "k/00000"
    assert double.count("LIST") == 3


def test_an_express_bucket_is_listed_whole_from_the_start(double: S3Double) -> None:
    double.objects = {f"g/k/{n:05d}": b"" for n in range(1500)}
    address = parse_address("s3://bucket/g", double.options)
    store_options = {name: value for name, value in address.options.items() if name != "allow_http"}
    store = open_remote(address.uri, store_options, {"allow_http": "true"}, ordered=False)
    assert len(store.list("k/", first_page=True)) == 1500


def test_stamps_are_the_stores_own(double: S3Double, store: Store) -> None:
    store.put("k/1", b"x")
    assert store.head("k/1").modified_at == STAMP
    assert store.list("k/")[0].modified_at == STAMP


def test_get_many_asks_in_parallel(double: S3Double, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(8, timeout=20)
    store.put("k/0", b"0")
    # The hooks run under the double's lock, so the meeting point stands before it.
    answer = double.answer

    def meet(*request: object) -> CannedAnswer:
        together.wait()
        return answer(*request)  # type: ignore[arg-type]

    monkeypatch.setattr(double, "answer", meet)
    assert store.get_many([f"k/{n}" for n in range(8)]) == [b"0"] + [None] * 7


def test_a_failed_get_many_leaves_no_request_behind(double: S3Double, store: Store) -> None:
    double.before = lambda method, key: CannedAnswer(403) if key == "g/k/0" else None
    with pytest.raises(Forbidden):
        store.get_many([f"k/{n}" for n in range(40)])
    assert double.count("GET") == 40


def test_delete_is_one_plain_request(double: S3Double, store: Store) -> None:
    store.delete("k/1")
    assert double.seen == [("DELETE", "g/k/1")]
