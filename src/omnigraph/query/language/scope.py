"""Finds which variable is bound in which block, and its type.

A variable belongs to the outermost block that binds it or hops over it. What `optional` binds is visible around the
block, but not in its sibling optional blocks; what `not` binds stays inside. Types come from bindings first and then
from the edges. Nothing here depends on the order of the clauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.query.language.check_context import CheckContext, did_you_mean, edge_word, entity_type, list_words
from omnigraph.query.language.checked import BoundVariable
from omnigraph.query.language.syntax import (
    BindingSyntax,
    ClauseSyntax,
    NameSyntax,
    NotSyntax,
    OptionalSyntax,
    ReadSyntax,
    SourceSpan,
    TraversalSyntax,
)
from omnigraph.schema.catalog import TypeDef


@dataclass
class ScopeVariable:
    """A variable while its type is inferred. `is_broken`: it has a finding, so its uses are not reported."""

    name: str
    span: SourceSpan
    optional: bool
    type: TypeDef | None = None
    is_broken: bool = False


@dataclass
class Scope:
    """One block. `variables` are those it introduces; `lent_variables` those of its optional blocks, visible here."""

    kind: Literal["match", "optional", "not"]
    clauses: tuple[ClauseSyntax, ...]
    parent: Scope | None
    span: SourceSpan
    variables: dict[str, ScopeVariable] = field(default_factory=dict)
    lent_variables: dict[str, ScopeVariable] = field(default_factory=dict)
    optionals: list[Scope] = field(default_factory=list)
    nots: list[Scope] = field(default_factory=list)

    def find(self, name: str) -> ScopeVariable | None:
        return self.variables.get(name) or self.lent_variables.get(name) or self.find_outside(name)

    def find_outside(self, name: str) -> ScopeVariable | None:
        """The variable as seen around this block, sibling optional blocks excluded for an optional block."""
        if self.parent is None:
            return None
        if self.kind == "optional":
            return self.parent.variables.get(name) or self.parent.find_outside(name)
        return self.parent.find(name)

    @property
    def children(self) -> list[Scope]:
        return [*self.optionals, *self.nots]

    @property
    def may_be_empty(self) -> bool:
        """Whether a result row may lack the variables of this block: it is optional, or in an optional block."""
        return self.kind == "optional" or (self.parent is not None and self.kind != "not" and self.parent.may_be_empty)


def build_scopes(ctx: CheckContext, body: ReadSyntax) -> Scope:
    """The scopes of a match with all variables typed; a variable without a type is broken."""
    root = Scope("match", body.clauses, None, body.span)
    _collect_variables(ctx, root)
    _infer_types(ctx, root)
    return root


# ---- who binds what --------------------------------------------------------------------------------------------------


def _collect_variables(ctx: CheckContext, scope: Scope) -> None:
    for name, clause in _names_to_introduce(scope.clauses):
        _introduce(ctx, scope, name, clause)
    for block in scope.clauses:
        if isinstance(block, OptionalSyntax):
            _collect_optional_block(ctx, scope, block)
    for block in scope.clauses:
        if isinstance(block, NotSyntax):
            inner = Scope("not", block.clauses, scope, block.span)
            scope.nots.append(inner)
            _collect_variables(ctx, inner)


def _collect_optional_block(ctx: CheckContext, scope: Scope, clause: OptionalSyntax) -> None:
    inner = Scope("optional", clause.clauses, scope, clause.span)
    scope.optionals.append(inner)
    _collect_variables(ctx, inner)
    for name, var in {**inner.variables, **inner.lent_variables}.items():
        if name in scope.lent_variables:
            ctx.fail(
                "T6",
                var.span,
                f"`${name}` is bound by two optional blocks",
                "Nest the second block in the first if both mean the same, or use another name",
            )
        else:
            scope.lent_variables[name] = var


def _names_to_introduce(
    clauses: tuple[ClauseSyntax, ...],
) -> Iterator[tuple[NameSyntax, BindingSyntax | TraversalSyntax]]:
    """Names that clauses may introduce. Bindings come first: a hop may use a variable that a later clause binds."""
    for clause in clauses:
        if isinstance(clause, BindingSyntax):
            yield clause.variable, clause
    for clause in clauses:
        if isinstance(clause, TraversalSyntax):
            if clause.variable is not None:
                yield clause.variable, clause
            yield clause.left, clause
            yield clause.right, clause


def _introduce(ctx: CheckContext, scope: Scope, name: NameSyntax, clause: BindingSyntax | TraversalSyntax) -> None:
    binds = isinstance(clause, BindingSyntax) or name is clause.variable
    if name.text in ctx.params:
        ctx.fail("T5", name.span, f"`${name.text}` is a parameter", "Give the variable another name")
        scope.variables.setdefault(name.text, ScopeVariable(name.text, name.span, False, is_broken=True))
        return
    if scope.variables.get(name.text) or scope.find_outside(name.text):
        if binds:
            advice = f"Use another name, or write conditions as filters: `${name.text}.property = …`"
            ctx.fail("T5", name.span, f"`${name.text}` is bound already", advice)
        return
    var = ScopeVariable(name.text, name.span, scope.may_be_empty)
    scope.variables[name.text] = var
    if isinstance(clause, BindingSyntax):
        var.type = _node_type(ctx, clause.type)
        var.is_broken = var.type is None
    elif binds:
        var.type = ctx.catalog.edge(clause.edge.text)
        var.is_broken = var.type is None


def _node_type(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    type_def = ctx.catalog.node(name.text)
    if type_def is not None:
        return type_def
    nodes = [node_type.name for node_type in ctx.catalog.types if node_type.kind == "node"]
    advice = did_you_mean(name.text, nodes) or f"The schema has {list_words(nodes)}"
    if name.text in ctx.catalog.interfaces:
        advice = "It is an interface; bind one of the types that implement it"
    elif ctx.catalog.edge(name.text) is not None:
        advice = f"It is an edge; write a hop: `$a $e: {edge_word(name.text)} $b`"
    ctx.fail("T1", name.span, f"there is no node type `{name.text}`", advice)
    return None


# ---- types from edges ------------------------------------------------------------------------------------------------


@dataclass
class _HopEnds:
    """A hop and the variables at its ends, whose types may not be known yet."""

    clause: TraversalSyntax
    edge: TypeDef
    left: ScopeVariable
    right: ScopeVariable

    @property
    def possible_ends(self) -> list[tuple[str | None, str | None]]:
        """Pairs of types for (left, right) that the edge allows and that agree with the types known so far."""
        forward, backward = (self.edge.source, self.edge.target), (self.edge.target, self.edge.source)
        both = [forward] if forward == backward else [forward, backward]
        return [way for way in both if _may_have_type(self.left, way[0]) and _may_have_type(self.right, way[1])]


def _may_have_type(var: ScopeVariable, type_id: str | None) -> bool:
    return var.type is None or var.type.id == type_id


def _infer_types(ctx: CheckContext, scope: Scope) -> None:
    """Infer the types of variables from hops. Outer blocks first: a block never types a variable of an outer block."""
    hops = [
        ends
        for clause in scope.clauses
        if isinstance(clause, TraversalSyntax)
        if (ends := _hop_ends(ctx, scope, clause))
    ]
    while hops:
        inferred = [ends for ends in hops if _infer_from_hop(ctx, ends)]
        if not inferred:
            _assume_left_is_source(ctx, hops)
        hops = [ends for ends in hops if ends not in inferred]
    for var in scope.variables.values():
        var.is_broken = var.is_broken or var.type is None
    for inner in scope.children:
        _infer_types(ctx, inner)


def _hop_ends(ctx: CheckContext, scope: Scope, clause: TraversalSyntax) -> _HopEnds | None:
    edge = find_edge(ctx, clause.edge)
    left_end, right_end = scope.find(clause.left.text), scope.find(clause.right.text)
    if edge is None or left_end is None or right_end is None:
        return None
    return _HopEnds(clause, edge, left_end, right_end)


def find_edge(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    edge = ctx.catalog.edge(name.text)
    if edge is None:
        edges = [edge_word(edge_type.name) for edge_type in ctx.catalog.types if edge_type.kind == "edge"]
        all_edges = f"The schema has {list_words(edges)}" if edges else "The schema has no edges"
        ctx.fail("T2", name.span, f"there is no edge `{name.text}`", did_you_mean(name.text, edges) or all_edges)
    return edge


def _infer_from_hop(ctx: CheckContext, ends: _HopEnds) -> bool:
    """Type the ends of a hop if only one direction is possible; False if both still are."""
    if ends.left.is_broken or ends.right.is_broken:
        return True
    ways = ends.possible_ends
    if len(ways) == 2:
        return False
    if not ways:
        _refuse_ends(ctx, ends)
        for var in (ends.left, ends.right):
            var.is_broken = var.is_broken or var.type is None
        return True
    for var, type_id in zip((ends.left, ends.right), ways[0], strict=True):
        assert type_id is not None
        var.type = ctx.catalog.by_id[type_id]
    return True


def _refuse_ends(ctx: CheckContext, ends: _HopEnds) -> None:
    edge = ends.edge
    source, target = ctx.catalog.by_id[edge.source or ""], ctx.catalog.by_id[edge.target or ""]
    ends_text = [f"`${var.name}` ({var.type.table_key})" for var in (ends.left, ends.right) if var.type is not None]
    ctx.fail(
        "T12",
        ends.clause.span,
        f"`{edge_word(edge.name)}` does not connect {' and '.join(ends_text)}",
        f"It goes from {source.name} to {target.name}",
    )


def _assume_left_is_source(ctx: CheckContext, hops: list[_HopEnds]) -> None:
    """Read all undecided hops from left to right, all at once, so that the order of the clauses does not matter."""
    votes: dict[str, tuple[ScopeVariable, set[str]]] = {}
    for ends in hops:
        for var, type_id in ((ends.left, ends.edge.source), (ends.right, ends.edge.target)):
            if var.type is None:
                votes.setdefault(var.name, (var, set()))[1].add(type_id or "")
    for var, types in votes.values():
        if len(types) == 1:
            var.type = ctx.catalog.by_id[next(iter(types))]
            continue
        names = " or ".join(sorted(ctx.catalog.by_id[type_id].name for type_id in types))
        advice = f"Bind it: `${var.name}: Type`"
        ctx.fail("T13", var.span, f"the type of `${var.name}` cannot be told: {names}", advice)
        var.is_broken = True


# ---- use -------------------------------------------------------------------------------------------------------------


def look_up(ctx: CheckContext, scope: Scope, name: str, span: SourceSpan) -> ScopeVariable | None:
    """The variable as seen in this block; a finding if it is not visible, None also if it is broken."""
    var = scope.find(name)
    if var is None:
        _refuse_unbound(ctx, scope, name, span)
        return None
    return None if var.is_broken or var.type is None else var


def _refuse_unbound(ctx: CheckContext, scope: Scope, name: str, span: SourceSpan) -> None:
    around: Scope | None = scope
    while around is not None:
        if around.kind == "optional" and around.parent is not None and name in around.parent.lent_variables:
            advice = "Nest this block in the one that binds it"
            ctx.fail("T6", span, f"`${name}` is bound by another optional block", advice)
            return
        around = around.parent
    root = scope
    while root.parent is not None:
        root = root.parent
    if any(name in inner.variables for inner in _all_scopes(root)):
        advice = "It is bound inside a `not` block and means nothing outside; bind it here as well"
    else:
        candidates = [f"${variable}" for inner in _all_scopes(root) for variable in inner.variables] + [
            f"${variable}" for variable in ctx.params
        ]
        advice = did_you_mean(f"${name}", candidates) or f"Bind it in match: `${name}: Type`, or declare a parameter"
    ctx.fail("T4", span, f"`${name}` is not bound here", advice)


def _all_scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for inner in scope.children:
        yield from _all_scopes(inner)


def to_bound_variable(var: ScopeVariable) -> BoundVariable:
    assert var.type is not None
    return BoundVariable(var.name, entity_type(var.type), var.optional)
