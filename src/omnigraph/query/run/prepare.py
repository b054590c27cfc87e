"""Plans and their SQL, kept for queries that come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.query.language import checked as c
from omnigraph.query.language.check import check_query
from omnigraph.query.language.script import pick_query
from omnigraph.query.plan import nodes as n
from omnigraph.query.plan.build_plan import build
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.join_tree import JoinTree, join_tree
from omnigraph.query.plan.rules import optimise
from omnigraph.query.plan.sql import Statement, to_sql
from omnigraph.query.run.result import ResultShape
from omnigraph.schema.catalog import Catalog

_KEPT = 256


@dataclass(frozen=True)
class Prepared:
    """A query ready to run on any snapshot whose tables have about these sizes."""

    plan: n.Plan
    statement: Statement
    sql: str
    tree: JoinTree | None
    shape: ResultShape

    @property
    def leaves(self) -> tuple[n.Leaf, ...]:
        return self.statement.leaves

    @property
    def parameters(self) -> Mapping[str, c.Value]:
        return self.statement.parameters

    @property
    def outputs(self) -> tuple[tuple[str, ...], ...]:
        return self.statement.outputs


_CHECKED: OrderedDict[tuple[str, str | None, str], c.CheckedQuery] = OrderedDict()
_CACHE: OrderedDict[Any, tuple[Prepared, c.CheckedQuery]] = OrderedDict()
_LOCK = threading.Lock()


def checked_query(source: str, name: str | None, catalog: Catalog) -> c.CheckedQuery:
    """The query of this text under this schema, parsed and checked once as long as it is remembered."""
    key = (source, name, catalog.hash)
    with _LOCK:
        found = _CHECKED.get(key)
        if found is not None:
            _CHECKED.move_to_end(key)
            return found
    made = check_query(pick_query(source, name), catalog)
    with _LOCK:
        made = _CHECKED.setdefault(key, made)
        while len(_CHECKED) > _KEPT:
            _CHECKED.popitem(last=False)
    return made


def prepare(checked: c.CheckedQuery, facts: Facts) -> Prepared:
    """The plan of the query, from memory if it was planned before for the same schema and similar sizes."""
    assert isinstance(checked.body, c.CheckedRead)
    sizes = tuple(facts.rows.get(type_id, 0).bit_length() for type_id in checked.reads)
    # By identity: hashing a whole tree costs more than planning a small one. The tree is kept, so the id stays taken.
    key = (id(checked), facts.catalog.hash, sizes)
    with _LOCK:
        found = _CACHE.get(key)
        if found is not None:
            _CACHE.move_to_end(key)
            return found[0]
    plan = optimise(build(checked.body), facts)
    statement = to_sql(plan, facts.catalog)
    shape = ResultShape.of(checked.body.columns, statement.outputs, facts.catalog)
    made = Prepared(plan, statement, statement.text(), join_tree(plan, facts.catalog), shape)
    with _LOCK:
        _CACHE[key] = (made, checked)
        while len(_CACHE) > _KEPT:
            _CACHE.popitem(last=False)
    return made
