"""Reading requests and counting what waits, without any server."""

from __future__ import annotations

import pytest

from tests.support.traffic import Target, classify, fit, longest_chain, parse_target


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("g/graph.json", "graph"),
        ("graph.json", "graph"),
        ("a/b/schemas/0f.json", "schema"),
        ("g/__manifest/01h/9999999999999998.rec", "record"),
        ("g/__manifest/01h/", "record"),
        ("g/__branches/feature/x/00000001.json", "registry"),
        ("g/__recovery/01h/plan", "intent"),
        ("g/__archive/01h/1", "archive"),
        ("g/__tags/v1", "tag"),
        ("g/__leases/1", "lease"),
        ("g/__trash/tables/n-1/data/x.lance", "trash"),
        ("g/__locks/cleanup", "lock"),
        ("g/tables/n-1/data/x.lance", "table-data"),
        ("g/tables/n-1/_versions/d1.manifest", "table-manifest"),
        ("g/tables/n-1/_versions/", "table-manifest"),
        ("g/tables/n-1/_versions/latest_version_hint.json", "table-hint"),
        ("g/tables/n-1/_transactions/1-x.txn", "table-txn"),
        ("g/tables/n-1/_deletions/0-1-2.arrow", "table-deletion"),
        ("g/tables/n-1/_indices/u/page_data.lance", "table-index"),
        ("g/tables/n-1/", "table-other"),
        ("g/t.lance/data/x.lance", "table-data"),
        ("t/_versions/1.manifest", "table-manifest"),
        ("g/", "other"),
        ("", "other"),
    ],
)
def test_keys_belong_to_a_part_of_the_layout(key: str, expected: str) -> None:
    assert classify(key) == expected


@pytest.mark.parametrize(
    ("line", "method", "key"),
    [
        ("GET /b/g/graph.json", "GET", "g/graph.json"),
        ("GET /b/a%20b/c%2Bd", "GET", "a b/c+d"),
        ("HEAD /b/k", "HEAD", "k"),
        ("GET /b?list-type=2&prefix=g%2F__manifest%2Fs%2F&max-keys=1", "LIST", "g/__manifest/s/"),
        ("GET /b/?list-type=2", "LIST", ""),
        ("GET /b/?prefix=x", "LIST", "x"),
        ("GET /b?location", "BUCKET", ""),
        ("PUT /b", "BUCKET", ""),
        ("PUT /b/k", "PUT", "k"),
        ("PUT /b/k?partNumber=1&uploadId=x", "PART", "k"),
        ("POST /b/k?uploads", "PART_START", "k"),
        ("POST /b/k?uploadId=x", "PART_END", "k"),
        ("DELETE /b/k?uploadId=x", "PART_ABORT", "k"),
        ("DELETE /b/k", "DELETE", "k"),
        ("POST /b?delete", "DELETE_MANY", "first"),
        ("POST /b/k?select", "OTHER", "k"),
        ("OPTIONS /b/k", "OTHER", "k"),
    ],
)
def test_kinds_of_request(line: str, method: str, key: str) -> None:
    http_method, target = line.split(" ")
    body = b"<Delete><Object><Key>first</Key></Object><Object><Key>second</Key></Object></Delete>"
    assert parse_target(http_method, target, {}, body) == Target(method, "b", key, classify(key))


def test_a_copy_is_a_put_with_a_source() -> None:
    assert parse_target("PUT", "/b/k", {"x-amz-copy-source": "/b/j"}).method == "COPY"


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 1), (0.5, 1.5)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 10), (0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (0.2, 1.2), (1.2, 2), (1.1, 2.4), (2.4, 3)], 3),
    ],
)
def test_hops_are_the_longest_chain(intervals: list[tuple[float, float]], expected: int) -> None:
    assert longest_chain(intervals) == expected


def test_the_fit_finds_hops_and_compute() -> None:
    slope = fit({latency_s: 0.2 + 3 * latency_s for latency_s in (0.0, 0.05, 0.15)})
    assert slope.hops == pytest.approx(3)
    assert slope.compute_s == pytest.approx(0.2)
    with pytest.raises(ValueError, match="two latencies"):
        fit({0.0: 1.0})
