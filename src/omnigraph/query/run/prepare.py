"""Plans and SQL of queries, cached by query, schema and table sizes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.query.language.checked import CheckedQuery, CheckedRead, Value
from omnigraph.query.plan.build_plan import build_plan
from omnigraph.query.plan.facts import Facts
from omnigraph.query.plan.join_tree import JoinTree, find_join_tree
from omnigraph.query.plan.nodes import Leaf, Plan
from omnigraph.query.plan.rules import rewrite_plan
from omnigraph.query.plan.sql import Statement, to_sql
from omnigraph.query.run.result import ResultShape

_CACHE_SIZE = 256


@dataclass(frozen=True)
class PreparedQuery:
    """A query ready to run on any snapshot whose tables have about the same sizes."""

    plan: Plan
    statement: Statement
    sql: str
    tree: JoinTree | None
    shape: ResultShape

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return self.statement.leaves

    @property
    def parameters(self) -> Mapping[str, Value]:
        return self.statement.parameters

    @property
    def outputs(self) -> tuple[tuple[str, ...], ...]:
        return self.statement.outputs


_CACHE: OrderedDict[Any, tuple[PreparedQuery, CheckedQuery]] = OrderedDict()
_LOCK = threading.Lock()


def prepare_query(checked: CheckedQuery, facts: Facts) -> PreparedQuery:
    """Returns the plan of a reading query, from the cache if the schema is the same and the table sizes are similar."""
    assert isinstance(checked.body, CheckedRead)
    sizes = tuple(facts.rows.get(type_id, 0).bit_length() for type_id in checked.reads)
    # By identity: hashing a whole tree costs more than planning a small one. The entry holds the tree, so its id stays.
    key = (id(checked), facts.catalog.hash, sizes)
    with _LOCK:
        entry = _CACHE.get(key)
        if entry is not None:
            _CACHE.move_to_end(key)
            return entry[0]
    plan = rewrite_plan(build_plan(checked.body), facts)
    statement = to_sql(plan, facts.catalog)
    shape = ResultShape.of(checked.body.columns, statement.outputs, facts.catalog)
    prepared = PreparedQuery(plan, statement, statement.text(), find_join_tree(plan, facts.catalog), shape)
    with _LOCK:
        _CACHE[key] = (prepared, checked)
        while len(_CACHE) > _CACHE_SIZE:
            _CACHE.popitem(last=False)
    return prepared
