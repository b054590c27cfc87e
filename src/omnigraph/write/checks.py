"""The rules that need other rows: uniqueness, endpoints, cardinality. Only what a change can break is looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from omnigraph.errors import ConstraintViolation
from omnigraph.lang.schema.model import Cardinality, Catalog, TypeDef
from omnigraph.lang.schema.rules import Violation, row_violations
from omnigraph.lang.schema.values import to_output
from omnigraph.storage.backend import Backend
from omnigraph.write.claims import unique_key
from omnigraph.write.plan import TableAction
from omnigraph.write.table_state import RowChange, TableState

VIOLATIONS_MAX = 100

Changes = Mapping[str, Sequence[RowChange]]
StateOf = Callable[[TypeDef], TableState]
_Probe = Callable[[], list[Violation]]


def check_changes(
    backend: Backend, catalog: Catalog, state_of: StateOf, changes: Changes, actions: Sequence[TableAction]
) -> None:
    """Raise ConstraintViolation with everything the changes would break, up to a hundred. All probes run at once."""
    probes: list[_Probe] = [
        partial(row_violations, catalog.by_id[action.table], action.rows, limit=VIOLATIONS_MAX)
        for action in actions
        if action.rows is not None
    ]
    for table, rows in changes.items():
        one, state = catalog.by_id[table], state_of(catalog.by_id[table])
        after = [change for change in rows if change.after is not None]
        if after:
            probes += [partial(_unique, one, columns, state, after) for columns in one.uniques]
        gone = [change.id for change in rows if change.after is None]
        if one.kind == "node" and gone and state.must_leave_no_edges:
            probes += [partial(_inbound, one, edge, state_of, gone) for edge in catalog.edges_at(one.id)]
        if one.kind == "edge":
            ends = dict.fromkeys(end for end in (one.source, one.target) if end is not None)
            probes += [partial(_endpoints, one, catalog.by_id[end], state_of, after) for end in ends]
    probes += _cardinality_probes(catalog, state_of, changes)
    found = [violation for part in backend.in_parallel(lambda probe: probe(), probes) for violation in part]
    if found:
        raise violations_error(found)


def violations_error(found: Sequence[Violation], code: str | None = None) -> ConstraintViolation:
    ordered = sorted(found, key=lambda one: (one.type, one.id, one.rule, one.property or ""))
    first = ordered[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return ConstraintViolation(
        f"{first.message}{more}",
        code=code,
        advice="Nothing was written; fix the change and send it again",
        violations=[one.to_json() for one in ordered[:VIOLATIONS_MAX]],
        violation_count=len(found),
    )


def _unique(one: TypeDef, columns: Sequence[str], state: TableState, after: Sequence[RowChange]) -> list[Violation]:
    """Duplicates inside the change, and against committed rows that the change leaves alone."""
    holders: defaultdict[str, list[RowChange]] = defaultdict(list)
    for change in after:
        key = unique_key(one, columns, change.after)
        if key is not None:
            holders[key].append(change)
    found = [
        duplicate_violation(one, columns, change, sharers[0].id)
        for sharers in holders.values()
        for change in sharers[1:]
    ]
    moved = {key: sharers[0] for key, sharers in holders.items() if unique_key(one, columns, sharers[0].before) != key}
    values = list(dict.fromkeys(change.after[columns[0]] for change in moved.values() if change.after is not None))
    for row in state.committed_by(columns[0], values, columns) if values else ():
        owner = moved.get(unique_key(one, columns, row) or "")
        if owner is not None:
            found.append(duplicate_violation(one, columns, owner, row["id"]))
    return found


def duplicate_violation(one: TypeDef, columns: Sequence[str], change: RowChange, other_id: str) -> Violation:
    assert change.after is not None
    names = ", ".join(one.column_name(column) for column in columns)
    shown = {one.column_name(column): _shown(one, column, change.after[column]) for column in columns}
    value = next(iter(shown.values())) if len(shown) == 1 else shown
    return Violation(
        "unique",
        one.table_key,
        change.id,
        names,
        value,
        f"{one.table_key} {change.id!r}: {names} is not unique, {other_id!r} has it too",
    )


def _endpoints(one: TypeDef, node: TypeDef, state_of: StateOf, after: Sequence[RowChange]) -> list[Violation]:
    """The ends of inserted and moved edges at this node type must be alive: one read for all of them."""
    state = state_of(node)
    wanted: list[tuple[RowChange, str, str]] = []
    for word, column, end in (("from", "src", one.source), ("to", "dst", one.target)):
        if end == node.id:
            wanted += [
                (change, word, change.after[column])
                for change in after
                if change.after and (change.before is None or change.before[column] != change.after[column])
            ]
    state.fetch_alive(end for _, _, end in wanted)
    return [
        Violation(
            "endpoint",
            one.table_key,
            change.id,
            word,
            end,
            f"{one.table_key} {change.id!r}: there is no {node.table_key} {end!r} to go {word}",
        )
        for change, word, end in wanted
        if not state.is_alive(end)
    ]


def _inbound(node: TypeDef, edge: TypeDef, state_of: StateOf, gone: Sequence[str]) -> list[Violation]:
    """Edges that still need a removed node. A delete has taken them along; an overwrite does not."""
    edges = state_of(edge)
    found = []
    for column, end in (("src", edge.source), ("dst", edge.target)):
        if end == node.id:
            for row in edges.select_by(column, gone):
                message = f"{edge.table_key} {row['id']!r} needs {node.table_key} {row[column]!r}, which is removed"
                word = "from" if column == "src" else "to"
                found.append(Violation("orphan_edge", edge.table_key, row["id"], word, row[column], message))
    return found


def _cardinality_probes(catalog: Catalog, state_of: StateOf, changes: Changes) -> list[_Probe]:
    probes: list[_Probe] = []
    for edge in catalog.types:
        if edge.kind != "edge" or not edge.cardinality.binds:
            continue
        sources = _touched_sources(edge, changes)
        if sources:
            probes.append(partial(_cardinality, edge, catalog, state_of, changes, sources))
    return probes


def _touched_sources(edge: TypeDef, changes: Changes) -> list[str]:
    """Sources that gain, lose or move an edge, and new nodes that need one."""
    ends = [row["src"] for change in changes.get(edge.id, ()) for row in (change.before, change.after) if row]
    if edge.cardinality.low > 0:
        assert edge.source is not None
        ends += [change.id for change in changes.get(edge.source, ()) if change.before is None and change.after]
    return list(dict.fromkeys(ends))


def _cardinality(
    edge: TypeDef, catalog: Catalog, state_of: StateOf, changes: Changes, sources: Sequence[str]
) -> list[Violation]:
    assert edge.source is not None
    node = catalog.by_id[edge.source]
    nodes = state_of(node)
    counts = Counter(row["src"] for row in state_of(edge).committed_by("src", sources, ["src"]))
    nodes.fetch_alive(sources)
    counts.update(change.after["src"] for change in changes.get(edge.id, ()) if change.after)
    return [
        cardinality_violation(edge, node, source, counts[source])
        for source in sources
        if nodes.is_alive(source) and not within(edge.cardinality, counts[source])
    ]


def cardinality_violation(edge: TypeDef, node: TypeDef, source: str, count: int) -> Violation:
    limits = edge.cardinality
    allowed = f"{limits.low}..{'' if limits.high is None else limits.high}"
    message = f"{node.table_key} {source!r} would have {count} {edge.name} edges, allowed are {allowed}"
    return Violation("cardinality", edge.table_key, source, None, count, message)


def within(limits: Cardinality, count: int) -> bool:
    return limits.low <= count and (limits.high is None or count <= limits.high)


def _shown(one: TypeDef, column: str, value: Any) -> Any:
    prop = one.by_id.get(column)
    return to_output(prop, value) if prop is not None else value
