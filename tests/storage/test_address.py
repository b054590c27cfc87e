"""One place has one name, for obstore and for Lance alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.storage.address import Address, lists_in_order, open_store, parse_address
from omnigraph.storage.local import LocalStore
from tests.storage.s3_double import S3Double


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("s3://b/a/c", "s3://b/a/c"),
        ("s3://b/a/c/", "s3://b/a/c"),
        ("s3://b//a///c//", "s3://b/a/c"),
        ("S3://b", "s3://b"),
        ("s3a://b/a", "s3://b/a"),
        ("gs://b/a/", "gs://b/a"),
        ("gcs://b/a", "gs://b/a"),
        ("az://c/a", "az://c/a"),
        ("azure://c/a", "az://c/a"),
        ("abfss://c@acct.dfs.core.windows.net/a/", "abfs://c@acct.dfs.core.windows.net/a"),
    ],
)
def test_a_remote_place_has_one_name(written: str, normal: str) -> None:
    assert parse_address(written, environ={}).uri == normal


def test_a_local_place_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    real = str((tmp_path / "real").resolve())
    written = ["real", "./real/", "x/../real", "~/real", "link", str(tmp_path / "real"), f"file://{tmp_path}/real/"]
    assert {parse_address(spelling).uri for spelling in written} == {real}
    assert parse_address(f"file://localhost{tmp_path}/with%20blank").uri == f"{tmp_path.resolve()}/with blank"
    assert parse_address("real", {"ignored": "yes"}) == Address(real, "file", {})


@pytest.mark.parametrize(
    "written",
    ["", "  ", "ftp://h/x", "http://h/x", "memory://", "s3://", "s3:///a", "s3://b/../c", "s3://b/a?x=1", "s3://b/a%20b",
     "s3://b/a b", "s3://b/a#f", "file://host/x", "file://relative"],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_advice(written: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store(written)
    assert caught.value.code == "invalid_address"
    assert caught.value.advice


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(InvalidInput, match="'ftp'"):
        open_store("ftp://host/x")


def test_a_path_opens_a_local_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "g"), fsync=False)
    assert isinstance(store, LocalStore)
    assert not store.fsync
    assert open_store(f"file://{tmp_path}/g").root == store.root


@pytest.mark.parametrize(
    "name", ["aws_endpoint", "endpoint", "endpoint_url", "AWS_ENDPOINT_URL", "aws_endpoint_url_s3", "Endpoint"]
)
def test_options_have_one_spelling(name: str) -> None:
    address = parse_address(
        "s3://b", {name: "https://h", "region": "r", "TOKEN": "t"}, environ={"AWS_ENDPOINT": "x"}
    ).options
    assert address == {"aws_endpoint": "https://h", "aws_region": "r", "aws_session_token": "t"}


def test_an_http_endpoint_allows_http_unless_told_otherwise() -> None:
    assert parse_address("s3://b", {"endpoint": "http://h"}, environ={}).options["allow_http"] == "true"
    assert parse_address("s3://b", {"endpoint": "http://h", "aws_allow_http": "false"}).options["allow_http"] == "false"


def test_the_endpoint_of_the_environment_reaches_both_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h:1")
    assert parse_address("s3://b/g/").uri == "s3://b/g"
    assert parse_address("s3://b/g/").options == {"aws_endpoint": "http://h:1", "allow_http": "true"}
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://h:2")
    assert parse_address("s3://b").options["aws_endpoint"] == "http://h:2"


def test_a_store_is_reached_by_the_environment_alone(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", double.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    open_store("s3://bucket/g").put("k", b"1")
    assert double.objects == {"g/k": b"1"}


def test_options_of_the_client_and_of_lance_are_accepted(double: S3Double) -> None:
    more = {"timeout": "3s", "connect_timeout": "1s", "client_max_retries": "2", "user_agent": "omnigraph"}
    store = open_store("s3://bucket/g", {**double.options, **more})
    store.put("k", b"1")
    assert parse_address("s3://bucket/g", more).options["client_max_retries"] == "2"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("gs://bucket/g", {"google_skip_signature": "true"}),
        ("az://container/g", {"account_name": "a", "account_key": "aGk="}),
        ("abfss://container@a.dfs.core.windows.net/g", {"azure_storage_account_key": "aGk="}),
    ],
)
def test_the_other_clouds_open_by_address(uri: str, options: dict[str, str]) -> None:
    assert open_store(uri, options).root == parse_address(uri).uri


def test_express_buckets_do_not_list_in_order() -> None:
    express = "s3://logs--use1-az4--x-s3/g"
    assert not lists_in_order(express)
    assert parse_address(express, environ={}).options == {"aws_s3_express": "true"}
    assert all(lists_in_order(uri) for uri in ("s3://b/x--x-s3", "gs://b", "/tmp/g--x-s3"))


def test_a_graph_in_a_directory_does_not_import_the_cloud_clients(tmp_path: Path) -> None:
    code = (
        "import sys; from omnigraph.storage.address import open_store; "
        f"open_store({str(tmp_path)!r}); assert 'obstore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
