"""Rules with their lookups as functions, made once for a schema and the images that a change has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from omnigraph.constraints.compile import Images, Rule, rules_of
from omnigraph.constraints.evaluate import Evaluate, Evaluators
from omnigraph.constraints.lookups import Lookup, lookups_of
from omnigraph.constraints.relations import Rows, columns_of
from omnigraph.schema.catalog import Catalog

#: Shapes of changes, of which a program has few: each statement of a program makes one.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class PreparedLookup:
    """Which committed rows a rule needs: those of `table` with a key in `column`; `key_at` is its place in a row."""

    table: str
    column: str
    columns: tuple[str, ...]
    keys: Evaluate
    key_at: int


@dataclass(frozen=True, slots=True)
class PreparedRule:
    """`looked_up_by` names the column by which the rows of a `kept` image are found."""

    rule: Rule
    evaluate: Evaluate
    lookups: tuple[PreparedLookup, ...]
    looked_up_by: Mapping[Rows, str]


def prepared_rules(catalog: Catalog, images: Mapping[str, Images], strict: bool) -> tuple[PreparedRule, ...]:
    return _prepared(_Schema(catalog), tuple(images.items()), strict)


class _Schema:
    """A catalog that is compared by its hash: cheap, and the same for every copy of it."""

    __slots__ = ("catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def __hash__(self) -> int:
        return hash(self.catalog.hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Schema) and self.catalog.hash == other.catalog.hash


@lru_cache(maxsize=_REMEMBERED)
def _prepared(schema: _Schema, images: tuple[tuple[str, Images], ...], strict: bool) -> tuple[PreparedRule, ...]:
    return tuple(_prepare(schema.catalog, rule) for rule in rules_of(schema.catalog, dict(images), strict=strict))


def _prepare(catalog: Catalog, rule: Rule) -> PreparedRule:
    evaluators = Evaluators(catalog.by_id[rule.type_id])
    lookups = lookups_of(rule.query)
    by = {lookup.image: lookup.column for lookup in lookups}
    assert all(by[lookup.image] == lookup.column for lookup in lookups), rule
    made = tuple(_lookup(lookup, evaluators) for lookup in lookups)
    return PreparedRule(rule, evaluators.of(rule.query), made, by)


def _lookup(lookup: Lookup, evaluators: Evaluators) -> PreparedLookup:
    at = columns_of(lookup.keys).index(lookup.key)
    return PreparedLookup(lookup.image.table, lookup.column, lookup.image.columns, evaluators.of(lookup.keys), at)
