"""What every store and every wrapper answers alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.storage.address import open_store
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.store import ObjectMissing, PutResult, Store
from tests.storage.s3_double import S3Double
from tests.support.faulty_store import FaultPlan, FaultyStore
from tests.support.throttled_store import ThrottledStore


def _all_wrapped(store: Store) -> Store:
    return MeteredStore(FaultyStore(ThrottledStore(store, 0.0, 2), FaultPlan.none()))


@pytest.fixture(params=["local", "local-synced", "local-wrapped", "remote", "remote-wrapped"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param.startswith("local"):
        store: Store = LocalStore(tmp_path / "a" / "graph", fsync="synced" in request.param)
    else:
        double: S3Double = request.getfixturevalue("double")
        store = open_store("s3://bucket/some/graph", double.options)
    return _all_wrapped(store) if request.param.endswith("wrapped") else store


def test_a_created_object_is_read_back(store: Store) -> None:
    assert store.put_if_absent("__manifest/s/1.rec", b"one") is PutResult.CREATED
    assert store.get("__manifest/s/1.rec") == b"one"


def test_an_existing_key_is_never_replaced_by_put_if_absent(store: Store) -> None:
    store.put_if_absent("a/b", b"first")
    assert store.put_if_absent("a/b", b"second") is PutResult.EXISTS
    assert store.get("a/b") == b"first"


def test_put_creates_and_replaces(store: Store) -> None:
    store.put("a/b", b"first")
    store.put("a/b", b"")
    assert store.get("a/b") == b""


@pytest.mark.parametrize("ask", [lambda s: s.get("no/key"), lambda s: s.head("no/key")], ids=["get", "head"])
def test_a_missing_key_is_a_typed_answer(store: Store, ask: Callable[[Store], object]) -> None:
    store.put("other", b"")
    with pytest.raises(ObjectMissing) as caught:
        ask(store)
    assert caught.value.code == "object_missing"


def test_get_many_keeps_the_order_and_marks_what_is_missing(store: Store) -> None:
    keys = [f"a/{n:02d}" for n in range(20)]
    for key in keys[::2]:
        store.put(key, key.encode())
    assert store.get_many(keys[::-1]) == [key.encode() if n % 2 == 0 else None for n, key in enumerate(keys)][::-1]
    assert store.get_many([]) == []


def test_head_tells_size_and_an_aware_stamp(store: Store) -> None:
    store.put("a/b", b"12345")
    info = store.head("a/b")
    assert (info.key, info.size_bytes) == ("a/b", 5)
    assert info.modified_at.tzinfo is not None


def test_list_is_sorted_by_the_whole_key_and_goes_down(store: Store) -> None:
    # 'a-' < 'a/' < 'a0': sorting folder by folder would be wrong.
    for key in ["p/a/2", "p/a-", "p/a0", "p/a/1", "q/x", "p/B"]:
        store.put(key, b"")
    assert [info.key for info in store.list("p/")] == ["p/B", "p/a-", "p/a/1", "p/a/2", "p/a0"]
    assert [info.key for info in store.list("")][-1] == "q/x"


def test_a_prefix_is_a_folder_not_a_beginning(store: Store) -> None:
    store.put("ab/c", b"")
    store.put("a/c", b"")
    assert [info.key for info in store.list("a/")] == ["a/c"]


def test_listing_nothing_is_empty(store: Store) -> None:
    assert store.list("nothing/") == []
    assert store.list("nothing/", first_page=True) == []


def test_the_first_page_begins_with_the_least_key(store: Store) -> None:
    for n in range(150, 0, -1):
        store.put(f"p/{n:04d}", b"")
    page = [info.key for info in store.list("p/", first_page=True)]
    assert page[0] == "p/0001"
    assert page == sorted(page)


def test_delete_of_a_missing_key_succeeds(store: Store) -> None:
    store.put("a/b", b"x")
    store.delete("a/b")
    store.delete("a/b")
    assert store.get_many(["a/b"]) == [None]


def test_names_that_look_encoded_survive_literally(store: Store) -> None:
    key = "__branches/feature%2Fx ~é+&'/00000000.json"
    store.put_if_absent(key, b"1")
    assert [info.key for info in store.list("__branches/")] == [key]
    assert store.get(key) == b"1"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\x00b", "a\n", ".tmp-x", "a/.tmp-1"]
)
def test_dangerous_keys_are_refused_before_any_request(store: Store, key: str) -> None:
    for ask in (
        store.get,
        store.head,
        store.delete,
        lambda k: store.put(k, b""),
        lambda k: store.put_if_absent(k, b""),
    ):
        with pytest.raises(InvalidInput) as caught:
            ask(key)
        assert caught.value.code == "invalid_key"


@pytest.mark.parametrize("prefix", ["a", "/", "../", "a//"])
def test_a_prefix_that_is_no_folder_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(InvalidInput):
        store.list(prefix)
