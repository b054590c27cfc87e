"""Measures lookups of one row by key, and of its neighbours: a query beside the bare Lance lookups that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

from bench.timing import medians_s
from omnigraph.log.snapshot import Snapshot
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.query_cache import get_checked_query
from omnigraph.query.run.run_query import prepare_run

POINT = "query q($n: I64) { match { $p: Person { number: $n } } return { $p.name, $p.age } }"
HOP = "query q($n: I64) { match { $p: Person { number: $n } $p follows $q } return { $q.name } }"


def compare(snapshot: Snapshot, repeat: int) -> list[dict[str, Any]]:
    """Measures milliseconds with a new key every time. Both sides use the same keys and must find the same rows."""
    rows = []
    for title, source, bare in (("by key", POINT, _bare_point), ("one hop from a key", HOP, _bare_hop)):
        if sorted(_query(snapshot, source, 17)) != sorted(bare(snapshot, 17)):
            raise AssertionError(title)
        spent = medians_s(
            {"omnigraph": _turning(snapshot, source, _query), "pylance": _turning(snapshot, "", _wrap_bare(bare))},
            repeat,
        )
        ms = {name: round(seconds * 1000, 2) for name, seconds in spent.items()}
        rows.append({"lookup": title, **ms, "ratio": round(spent["omnigraph"] / spent["pylance"], 2)})
    return rows


def _turning(snapshot: Snapshot, source: str, ask: Callable[[Snapshot, str, int], object]) -> Callable[[], object]:
    keys: Iterator[int] = cycle(range(1, 1_000, 7))
    return lambda: ask(snapshot, source, next(keys))


def _wrap_bare(bare: Callable[[Snapshot, int], object]) -> Callable[[Snapshot, str, int], object]:
    return lambda snapshot, _, key: bare(snapshot, key)


def _query(snapshot: Snapshot, source: str, key: int) -> list[tuple[Any, ...]]:
    checked = get_checked_query(source, None, snapshot.catalog)
    run = prepare_run(snapshot, checked, bind_params(checked, {"n": key}), now=snapshot.backend.clock.now())
    result = run.result()
    return [tuple(row.values()) for row in result.rows]


def _lance(snapshot: Snapshot, name: str) -> Any:
    type_def = snapshot.type(name)
    pin = snapshot.record.pins[type_def.id]
    assert pin.version is not None
    return snapshot.backend.tables.open(type_def.id, pin.version).lance()


def _column(snapshot: Snapshot, name: str) -> str:
    return snapshot.type("Person").by_name[name].id


def _bare_point(snapshot: Snapshot, key: int) -> list[tuple[Any, ...]]:
    columns = [_column(snapshot, name) for name in ("name", "age")]
    rows = _lance(snapshot, "Person").to_table(columns=columns, filter=f"id = '{key}'")
    return [tuple(row.values()) for row in rows.to_pylist()]


def _bare_hop(snapshot: Snapshot, key: int) -> list[tuple[Any, ...]]:
    ends = _lance(snapshot, "Follows").to_table(columns=["dst"], filter=f"src = '{key}'")["dst"].to_pylist()
    if not ends:
        return []
    id_list = ", ".join(f"'{end}'" for end in ends)
    rows = _lance(snapshot, "Person").to_table(columns=[_column(snapshot, "name")], filter=f"id IN ({id_list})")
    return [tuple(row.values()) for row in rows.to_pylist()]
