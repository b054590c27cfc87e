"""Which rules are worth asking after a load, given what staging and screening have found out already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.constraints.compile import Images, Rule, RuleCode, accused, rules_of
from omnigraph.constraints.relations import Anti, Relation
from omnigraph.schema.catalog import Catalog, EntityKind
from omnigraph.spark.table_frames import ADDRESS

RULES: frozenset[RuleCode] = frozenset({"unique", "endpoint", "orphan_edge", "cardinality"})
REPEATED: frozenset[RuleCode] = frozenset({"duplicate_key"})
TAKEN: frozenset[RuleCode] = frozenset({"key_exists"})
"""What is asked first, one after the other, since the rules are about what is left then."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one table of a load, without a look at its rows."""

    kind: EntityKind
    has_rows: bool  # the input brings some
    there: bool  # the graph has some
    overwrite: bool
    replaces: bool  # an id of the input may be in the graph already
    repeats: bool  # an id may come twice in the input

    @property
    def images(self) -> Images:
        if self.overwrite:
            return Images(new=self.has_rows, old=self.there, gone=self.there, kept=False)
        return Images(new=self.has_rows, old=self.replaces and self.there, kept=self.there)


@dataclass(frozen=True, slots=True)
class Question:
    """A rule to be evaluated; `relation` returns its violations with the address of the row to blame in `table`.

    If `is_nobodys` it returns those that no row of the input is to blame for, without an address.
    """

    rule: Rule
    table: str
    relation: Relation
    is_nobodys: bool = False


@dataclass(frozen=True)
class Asking:
    """All that decides which rules are asked. `there` says of every table whether the graph has rows in it."""

    catalog: Catalog
    known: Mapping[str, Known]
    there: Mapping[str, bool]
    codes: frozenset[RuleCode] = RULES

    @property
    def needs_screen(self) -> bool:
        """Whether keys must be looked at first: an id that the graph has is found without."""
        return self.codes != TAKEN

    @property
    def changed(self) -> dict[str, Images]:
        """Every table of the schema: one that no row is in must not be asked for."""
        untouched = {one.id: Images(kept=self.there[one.id]) for one in self.catalog.types}
        return {**untouched, **{table: one.images for table, one in self.known.items()}}

    @property
    def may_repeat_nodes(self) -> bool:
        return any(one.repeats and one.kind == "node" for one in self.known.values())

    def questions(self, suspected: frozenset[str]) -> Iterator[Question]:
        """The rules that can be broken; `suspected` are the node types of which the screening picked ids out."""
        changed = self.changed
        rules = rules_of(
            self.catalog,
            changed,
            strict="key_exists" in self.codes,
            ordinal=ADDRESS if "duplicate_key" in self.codes else None,
            screened=bool(suspected),
        )
        for rule in rules:
            if rule.code not in self.codes or self._is_settled(rule, suspected):
                continue
            blamed = {table: one for table, one in accused(rule, self.catalog, ADDRESS).items() if changed[table].new}
            for table, relation in blamed.items():
                yield Question(rule, table, relation)
            if rule.code in ("orphan_edge", "cardinality"):
                rest: Relation = rule.query
                for relation in blamed.values():
                    rest = Anti(rest, relation, (("id", "id"),))
                yield Question(rule, rule.type_id, rest, is_nobodys=True)

    def _is_settled(self, rule: Rule, suspected: frozenset[str]) -> bool:
        """What the screening, or what is known of the input, has answered already."""
        one = self.known.get(rule.type_id)
        if rule.code == "duplicate_key":
            assert one is not None
            return not one.repeats or (one.kind == "node" and rule.type_id not in suspected)
        if rule.code == "key_exists":
            return one is None or not one.replaces
        return not suspected and rule.code in ("endpoint", "cardinality")

    def repeating(self, suspected: frozenset[str]) -> list[str]:
        """Tables in which an id may be more than once."""
        return [
            table
            for table, one in self.known.items()
            if one.repeats and one.has_rows and (one.kind == "edge" or table in suspected)
        ]
