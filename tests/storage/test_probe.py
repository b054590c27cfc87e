"""The start-up probes refuse, by name, a store that the protocol cannot stand on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from omnigraph.errors import Forbidden, Unavailable, Unsupported
from omnigraph.storage.address import lists_in_order, open_store
from omnigraph.storage.local import LocalStore
from omnigraph.storage.metering import MeteredStore
from omnigraph.storage.open_backend import probe_conditional_put, probe_hard_links, probe_missing_key
from tests.storage.s3_double import CannedAnswer, S3Double
from tests.support.throttled_store import ThrottledStore


def test_a_good_store_passes(double: S3Double, local: LocalStore) -> None:
    for store in (open_store("s3://bucket/g", double.options), local):
        store.put("graph.json", b"{}")
        probe_conditional_put(store, "graph.json", b"{}")
        probe_missing_key(store, "__manifest/never")
        probe_hard_links(store)
        assert lists_in_order(store.root)
        assert store.get("graph.json") == b"{}"


def test_a_store_that_ignores_the_condition_is_refused_by_name(double: S3Double) -> None:
    double.ignores_conditions = True
    store = open_store("s3://bucket/g", double.options)
    store.put("graph.json", b"{}")
    with pytest.raises(Unsupported, match="conditional PUT") as caught:
        probe_conditional_put(store, "graph.json", b"{}")
    assert caught.value.code == "no_conditional_put"
    assert "s3://bucket/g" in str(caught.value)
    assert "If-None-Match" in str(caught.value)
    assert store.get("graph.json") == b"{}"


def test_a_store_that_does_not_know_the_header_is_refused_by_name(double: S3Double) -> None:
    store = open_store("s3://bucket/g", double.options)
    double.before = lambda method, key: CannedAnswer(501) if method == "PUT" else None
    with pytest.raises(Unsupported, match="conditional PUT"):
        probe_conditional_put(store, "graph.json", b"{}")


def test_an_unreachable_store_is_not_called_unsupported(double: S3Double) -> None:
    double.always(500)
    with pytest.raises(Unavailable):
        probe_conditional_put(open_store("s3://bucket/g", double.options), "graph.json", b"{}")


def test_403_for_a_missing_key_names_the_permission(double: S3Double) -> None:
    # H25: without s3:ListBucket a missing key answers 403, and 'absent' could never be believed.
    double.before = lambda method, key: CannedAnswer(403) if key not in double.objects else None
    with pytest.raises(Forbidden, match="s3:ListBucket") as caught:
        probe_missing_key(open_store("s3://bucket/g", double.options), "__manifest/never")
    assert caught.value.code == "list_permission_missing"
    assert caught.value.advice


def test_something_that_answers_everything_is_no_store(double: S3Double) -> None:
    double.always(200, b"<html>")
    headers = {"Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT", "ETag": '"1"'}
    double.before = lambda method, key: CannedAnswer(200, b"<html>", headers)
    with pytest.raises(Unsupported, match="never written"):
        probe_missing_key(open_store("s3://bucket/g", double.options), "__manifest/never")


def test_a_local_directory_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(Unsupported, match="hard links"):
        probe_hard_links(MeteredStore(ThrottledStore(LocalStore(tmp_path), 0.0)))
    assert os.listdir(tmp_path) == []


def test_a_local_directory_where_a_link_replaces_is_refused(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", os.replace)
    with pytest.raises(Unsupported, match="hard links"):
        probe_hard_links(local)


def test_the_probe_of_links_leaves_nothing_behind(local: LocalStore) -> None:
    probe_hard_links(local)
    assert os.listdir(local.root) == []
