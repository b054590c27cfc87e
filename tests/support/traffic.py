"""What went over the wire: S3 requests by kind and by part of the graph's layout, and how many had to wait in turn.

Pure: the proxy fills these values, tests read them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

_CLASS_OF_FOLDER = {
    "graph.json": "graph",
    "schemas": "schema",
    "__manifest": "record",
    "__branches": "registry",
    "__recovery": "intent",
    "__archive": "archive",
    "__tags": "tag",
    "__leases": "lease",
    "__trash": "trash",
    "__locks": "lock",
}
_CLASS_OF_LANCE_FOLDER = {
    "data": "table-data",
    "_versions": "table-manifest",
    "_transactions": "table-txn",
    "_deletions": "table-deletion",
    "_indices": "table-index",
}
_HINT = "latest_version_hint.json"

KEY_CLASSES = frozenset(
    {*_CLASS_OF_FOLDER.values(), *_CLASS_OF_LANCE_FOLDER.values(), "table-hint", "table-other", "other"}
)
METHODS = frozenset(
    {"GET", "HEAD", "LIST", "PUT", "COPY", "DELETE", "DELETE_MANY", "BUCKET", "OTHER"}
    | {"PART_START", "PART", "PART_END", "PART_ABORT"}
)


def classify(key: str) -> str:
    """Which part of the layout a key, or the prefix of a listing, belongs to; whatever the graph's own prefix is."""
    segments = key.split("/")
    for number, segment in enumerate(segments):
        if segment in _CLASS_OF_FOLDER:
            return _CLASS_OF_FOLDER[segment]
        if segment == "tables" or segment.endswith(".lance"):
            return _classify_in_table(segments[number + 1 :])
        if segment in _CLASS_OF_LANCE_FOLDER:
            return _classify_in_table(segments[number:])
    return "other"


def _classify_in_table(segments: Sequence[str]) -> str:
    if segments and segments[-1] == _HINT:
        return "table-hint"
    return next((_CLASS_OF_LANCE_FOLDER[part] for part in segments if part in _CLASS_OF_LANCE_FOLDER), "table-other")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about: its kind (`METHODS`), its bucket, and its key or listed prefix."""

    method: str
    bucket: str
    key: str
    key_class: str


def parse_target(http_method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Target:
    """Read a path-style request line. `headers` have lower-case names; `body` only matters for batch deletes."""
    path, _, query_text = target.partition("?")
    query = parse_qs(query_text, keep_blank_values=True)
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    method = _kind(http_method, bool(key), query, "x-amz-copy-source" in headers)
    if method == "LIST":
        key = query.get("prefix", [""])[0]
    elif method == "DELETE_MANY":
        first = re.search(rb"<Key>([^<]*)</Key>", body)
        key = first[1].decode() if first else ""
    return Target(method, bucket, key, classify(key))


def _kind(http_method: str, has_key: bool, query: Mapping[str, object], is_copy: bool) -> str:
    if http_method == "POST":
        return next((kind for mark, kind in _POSTS.items() if mark in query), "OTHER")
    if not has_key:
        lists = http_method == "GET" and not any(mark in query for mark in ("location", "versioning", "uploads"))
        return "LIST" if lists else "BUCKET"
    if "uploadId" in query:
        return {"PUT": "PART", "DELETE": "PART_ABORT"}.get(http_method, "OTHER")
    if http_method == "PUT" and is_copy:
        return "COPY"
    return http_method if http_method in METHODS else "OTHER"


_POSTS = {"delete": "DELETE_MANY", "uploads": "PART_START", "uploadId": "PART_END"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the proxy saw it. Times are seconds of one monotonic clock; a queued request starts when admitted.

    `status` is what the client was told, 0 if its connection was cut; `fault` names the fault that hit it.
    """

    method: str
    bucket: str
    key: str
    key_class: str
    conditional: bool
    status: int
    fault: str | None
    sent_bytes: int
    answered_bytes: int
    arrived_s: float
    started_s: float
    ended_s: float


@dataclass(slots=True)
class Traffic:
    """The requests of one measured stretch; complete once the `with` block that yielded it has ended."""

    requests: list[Request] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.requests)

    def select(self, method: str | None = None, key_class: str | None = None) -> list[Request]:
        """The requests of one kind, of one part of the layout, or both; a wrong name is an error, not zero requests."""
        check_names(method, key_class)
        return [
            request
            for request in self.requests
            if method in (None, request.method) and key_class in (None, request.key_class)
        ]

    def count(self, method: str | None = None, key_class: str | None = None) -> int:
        return len(self.select(method, key_class))

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Requests by (method, key class)."""
        return dict(sorted(Counter((request.method, request.key_class) for request in self.requests).items()))

    @property
    def hops(self) -> int:
        """The longest chain of requests of which each began after the one before had been answered.

        Exact only if the latency is well above the time between parallel requests: 30 ms and more.
        """
        return longest_chain((request.started_s, request.ended_s) for request in self.requests)

    @property
    def peak_concurrent(self) -> int:
        """The greatest number of admitted requests at one instant."""
        steps = sorted(step for request in self.requests for step in ((request.started_s, 1), (request.ended_s, -1)))
        peak = now = 0
        for _, change in steps:
            now += change
            peak = max(peak, now)
        return peak

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {method} {part}" for (method, part), count in self.counts.items())
        return f"{len(self)} requests in {self.hops} hops: {parts or 'none'}"


def check_names(method: str | None, key_class: str | None) -> None:
    if method is not None and method not in METHODS:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(sorted(METHODS))}")
    if key_class is not None and key_class not in KEY_CLASSES:
        raise ValueError(f"unknown key class {key_class!r}; known: {', '.join(sorted(KEY_CLASSES))}")


def longest_chain(intervals: Iterable[tuple[float, float]]) -> int:
    """The greatest number of intervals that do not overlap: always taking the one that ends first is optimal."""
    count, free_from_s = 0, float("-inf")
    for started_s, ended_s in sorted(intervals, key=lambda interval: interval[1]):
        if started_s >= free_from_s:
            count, free_from_s = count + 1, ended_s
    return count


@dataclass(frozen=True, slots=True)
class Slope:
    """`wall = compute + hops × latency`, fitted to measured wall times."""

    hops: float
    compute_s: float
    walls_s: tuple[tuple[float, float], ...]


def fit(walls_s: Mapping[float, float]) -> Slope:
    """Least squares through (latency, wall time)."""
    if len(walls_s) < 2:
        raise ValueError("a slope needs at least two latencies")
    mean_x = sum(walls_s) / len(walls_s)
    mean_y = sum(walls_s.values()) / len(walls_s)
    spread = sum((x - mean_x) ** 2 for x in walls_s)
    hops = sum((x - mean_x) * (y - mean_y) for x, y in walls_s.items()) / spread
    return Slope(hops, mean_y - hops * mean_x, tuple(walls_s.items()))


def wall_s(op: Callable[[], object], repeat: int) -> float:
    """The shortest of `repeat` runs: other work on the machine only ever adds time."""
    walls = []
    for _ in range(repeat):
        begun_s = time.perf_counter()
        op()
        walls.append(time.perf_counter() - begun_s)
    return min(walls)
