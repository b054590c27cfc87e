"""Builds the plan of a checked query exactly as the language defines its meaning; speed is left to the rewrite rules.

A block (`optional`, `not`) is planned on its own and joined on the variables that it shares with the outer pattern, if
its nested blocks use only the keys of those; conditions on outer columns become conditions of the join. Any other
block is planned on top of the outer rows, reduced to the variables that the block uses, and joined back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.query.language.checked import (
    STRING,
    BoundVariable,
    CheckedRead,
    Const,
    Entity,
    EntityType,
    Expr,
    Hop,
    ListOf,
    Now,
    OrderBy,
    Param,
    Pattern,
    Predicate,
    Prop,
    ReturnColumn,
    Rrf,
)
from omnigraph.query.plan.expressions import conjuncts, operands, references, rename_condition, rename_variables
from omnigraph.query.plan.nodes import (
    Aggregation,
    AntiJoin,
    DistinctVariables,
    Edges,
    HopLeaf,
    LeftJoin,
    Limit,
    NaturalJoin,
    Pairs,
    Plan,
    Project,
    RankFusion,
    Reach,
    Scan,
    Selection,
    Sort,
    provides,
)

PlanNames = dict[str, str]
"""The name of a variable in the query → its name in the plan."""


def build_plan(read: CheckedRead) -> Plan:
    """Returns the plan that follows the text of the query step by step."""
    builder = _Builder()
    body, names = builder.plan_pattern(read.pattern, None, {})
    columns = tuple(ReturnColumn(column.name, rename_variables(column.value, names)) for column in read.columns)
    order = tuple(OrderBy(rename_variables(key.value, names), key.descending, key.column) for key in read.order)
    values = [*(column.value for column in columns), *(key.value for key in order)]
    fused_ranks = tuple(dict.fromkeys(value for value in values if isinstance(value, Rrf)))
    if fused_ranks:
        body = RankFusion(body, fused_ranks)
    plan: Plan
    if read.grouping is not None or read.distinct:
        keys = read.grouping if read.grouping is not None else tuple(range(len(columns)))
        plan = Aggregation(body, columns, keys)
        ties = _group_ties([columns[position].value for position in keys])
    else:
        plan = Project(body, columns)
        ties = tuple(_id_of(builder.types[var], var) for var in names.values())
    if order:
        plan = Sort(plan, order, ties)
    if read.limit is not None or read.offset is not None:
        plan = Limit(plan, read.limit, read.offset)
    return plan


def _id_of(type_: EntityType, var: str) -> Prop:
    return Prop(var, type_.type_id, "id", "id", STRING, False)


def _group_ties(keys: list[Expr]) -> tuple[Expr, ...]:
    """Returns what orders groups whose sort keys are equal: ids of whole entities, then the other grouping values."""
    ids = [_id_of(key.type, key.var) for key in keys if isinstance(key, Entity)]
    constants = (Entity, Const, Param, Now, ListOf)
    return (*ids, *(key for key in keys if not isinstance(key, constants)))


@dataclass
class _Builder:
    """Plans patterns and keeps plan names unique: two sibling `not` blocks may bind the same name."""

    types: dict[str, EntityType] = field(default_factory=dict)

    def plan_pattern(self, pattern: Pattern, base: Plan | None, outer: PlanNames) -> tuple[Plan, PlanNames]:
        """Returns the rows of one scope on top of `base`, and the names visible in it, including optional ones."""
        bound = {**outer, **{variable.name: self._new_name(variable) for variable in pattern.variables}}
        plan = self._join_pattern(pattern, base, bound)
        visible = dict(bound)
        for block in pattern.optionals:
            plan, optional_names = self._attach_block(plan, block, bound, LeftJoin)
            visible.update(optional_names)
        where = tuple(rename_condition(condition, visible) for condition in (*pattern.filters, *pattern.texts))
        if where:
            plan = Selection(plan, tuple(conjuncts(where)))
        for block in pattern.nots:
            plan, _ = self._attach_block(plan, block, visible, AntiJoin)
        return plan, visible

    def _new_name(self, variable: BoundVariable) -> str:
        name, number = variable.name, 2
        while name in self.types:
            name, number = f"{variable.name}#{number}", number + 1
        self.types[name] = variable.type
        return name

    def _join_pattern(self, pattern: Pattern, base: Plan | None, names: PlanNames) -> Plan:
        nodes = [variable for variable in pattern.variables if variable.type.kind == "node"]
        inputs: list[Plan] = [] if base is None else [base]
        inputs += [Scan(names[variable.name], variable.type) for variable in nodes]
        inputs += [self._plan_hop(hop, names) for hop in pattern.hops]
        return inputs[0] if len(inputs) == 1 else NaturalJoin(tuple(inputs))

    def _plan_hop(self, hop: Hop, names: PlanNames) -> HopLeaf:
        left, right = names[hop.left], names[hop.right]
        if hop.var is not None:
            var = names[hop.var]
            return Edges(var, self.types[var], left, right, hop.direction)
        if hop.is_plain:
            return Pairs(left, right, hop.edge, hop.direction)
        return Reach(left, right, hop.edge, hop.direction, hop.low, hop.high)

    def _attach_block(
        self, plan: Plan, block: Pattern, names: PlanNames, join: type[LeftJoin] | type[AntiJoin]
    ) -> tuple[Plan, PlanNames]:
        """Returns `plan` joined with the block, and the names that the block adds."""
        if _stands_alone(block, names):
            filters = tuple(predicate for predicate in block.filters if not _reads_outer_columns(predicate, names))
            texts = tuple(text for text in block.texts if text.prop.var not in names)
            inner = Pattern(block.variables, block.hops, filters, texts, block.optionals, block.nots)
            right, block_names = self.plan_pattern(inner, None, names)
            join_conditions = (
                *(predicate for predicate in block.filters if predicate not in filters),
                *(text for text in block.texts if text not in texts),
            )
            renamed = tuple(rename_condition(condition, block_names) for condition in join_conditions)
            on = tuple(var for var in provides(right) if var in provides(plan))
            return join(plan, right, on, tuple(conjuncts(renamed))), _new_names(block_names, names)
        used = tuple(dict.fromkeys(names[name] for name, _ in _variable_uses(block) if name in names))
        right, block_names = self.plan_pattern(block, DistinctVariables(plan, used), names)
        return join(plan, right, used, (), null_safe=True), _new_names(block_names, names)


def _new_names(names: PlanNames, outer: Mapping[str, str]) -> PlanNames:
    return {name: var for name, var in names.items() if name not in outer}


# ---- what a block uses of the outer pattern --------------------------------------------------------------------------


def _stands_alone(block: Pattern, outer: Mapping[str, str]) -> bool:
    """Whether the block's rows do not depend on the outer rows: only keys of its own hops connect it to them."""
    if not block.variables and not block.hops:
        return False
    hop_ends = {end for hop in block.hops for end in (hop.left, hop.right)}
    for inner in (*block.optionals, *block.nots):
        for name, needs_column in _variable_uses(inner):
            if name in outer and (needs_column or name not in hop_ends):
                return False
    return True


def _reads_outer_columns(predicate: Predicate, outer: Mapping[str, str]) -> bool:
    return any(ref.var in outer for value in operands(predicate) for ref in references(value))


def _variable_uses(block: Pattern) -> Iterator[tuple[str, bool]]:
    """Yields every variable that the block or a nested block uses, and whether the use needs more than its key."""
    for hop in block.hops:
        yield hop.left, False
        yield hop.right, False
    for condition in (*block.filters, *block.texts):
        for value in operands(condition):
            for ref in references(value):
                yield ref.var, isinstance(ref, Prop)
    for inner in (*block.optionals, *block.nots):
        inner_names = {variable.name for variable in inner.variables}
        yield from ((name, needs_column) for name, needs_column in _variable_uses(inner) if name not in inner_names)
