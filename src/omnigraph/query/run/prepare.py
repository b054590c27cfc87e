"""Plans and their SQL, kept for queries that come again."""

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

_KEPT = 256


@dataclass(frozen=True)
class PreparedQuery:
    """A query ready to run on any snapshot whose tables have about these sizes."""

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


def prepare(checked: CheckedQuery, facts: Facts) -> PreparedQuery:
    """The plan of the query, from memory if it was planned before for the same schema and similar sizes."""
    assert isinstance(checked.body, CheckedRead)
    sizes = tuple(facts.rows.get(type_id, 0).bit_length() for type_id in checked.reads)
    # By identity: hashing a whole tree costs more than planning a small one. The tree is kept, so the id stays taken.
    key = (id(checked), facts.catalog.hash, sizes)
    with _LOCK:
        found = _CACHE.get(key)
        if found is not None:
            _CACHE.move_to_end(key)
            return found[0]
    plan = rewrite_plan(build_plan(checked.body), facts)
    statement = to_sql(plan, facts.catalog)
    shape = ResultShape.of(checked.body.columns, statement.outputs, facts.catalog)
    made = PreparedQuery(plan, statement, statement.text(), find_join_tree(plan, facts.catalog), shape)
    with _LOCK:
        _CACHE[key] = (made, checked)
        while len(_CACHE) > _KEPT:
            _CACHE.popitem(last=False)
    return made
