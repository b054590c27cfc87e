"""Which variable is bound where, and to what type.

A variable belongs to the outermost block that binds it or hops over it. What `optional` binds is visible around the
block, but not in its sibling optional blocks; what `not` binds stays inside. Types come from bindings first and then
from the edges. Nothing here depends on the order of the clauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.query.language.check_context import CheckContext, did_you_mean, edge_word, entity_type, listed
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
class Var:
    """A variable while its type is being found. `broken`: an error was reported, say no more about it."""

    name: str
    span: SourceSpan
    optional: bool
    type: TypeDef | None = None
    broken: bool = False


@dataclass
class Scope:
    """One block. `own` are the variables it introduces, `lent` those its optional blocks lend it."""

    kind: Literal["match", "optional", "not"]
    clauses: tuple[ClauseSyntax, ...]
    parent: Scope | None
    span: SourceSpan
    own: dict[str, Var] = field(default_factory=dict)
    lent: dict[str, Var] = field(default_factory=dict)
    optionals: list[Scope] = field(default_factory=list)
    nots: list[Scope] = field(default_factory=list)

    def find(self, name: str) -> Var | None:
        return self.own.get(name) or self.lent.get(name) or self.find_outside(name)

    def find_outside(self, name: str) -> Var | None:
        """The variable as seen around this block, sibling optional blocks excluded for an optional block."""
        if self.parent is None:
            return None
        if self.kind == "optional":
            return self.parent.own.get(name) or self.parent.find_outside(name)
        return self.parent.find(name)

    @property
    def children(self) -> list[Scope]:
        return [*self.optionals, *self.nots]

    @property
    def may_be_empty(self) -> bool:
        """Whether an optional block around here can leave its variables empty, seen from the return."""
        return self.kind == "optional" or (self.parent is not None and self.kind != "not" and self.parent.may_be_empty)


def build_scopes(ctx: CheckContext, body: ReadSyntax) -> Scope:
    """The scopes of a match with all variables typed; variables without a type are `broken`."""
    root = Scope("match", body.clauses, None, body.span)
    _collect(ctx, root)
    _infer(ctx, root)
    return root


# ---- who binds what --------------------------------------------------------------------------------------------------


def _collect(ctx: CheckContext, scope: Scope) -> None:
    for name, clause in _introduced(scope.clauses):
        _introduce(ctx, scope, name, clause)
    for block in scope.clauses:
        if isinstance(block, OptionalSyntax):
            _collect_optional(ctx, scope, block)
    for block in scope.clauses:
        if isinstance(block, NotSyntax):
            inner = Scope("not", block.clauses, scope, block.span)
            scope.nots.append(inner)
            _collect(ctx, inner)


def _collect_optional(ctx: CheckContext, scope: Scope, clause: OptionalSyntax) -> None:
    inner = Scope("optional", clause.clauses, scope, clause.span)
    scope.optionals.append(inner)
    _collect(ctx, inner)
    for name, var in {**inner.own, **inner.lent}.items():
        if name in scope.lent:
            ctx.fail(
                "T6",
                var.span,
                f"`${name}` is bound by two optional blocks",
                "Nest the second block in the first if both mean the same, or use another name",
            )
        else:
            scope.lent[name] = var


def _introduced(
    clauses: tuple[ClauseSyntax, ...],
) -> Iterator[tuple[NameSyntax, BindingSyntax | TraversalSyntax]]:
    """Bindings first: a hop may use what a later clause binds."""
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
        scope.own.setdefault(name.text, Var(name.text, name.span, False, broken=True))
        return
    if scope.own.get(name.text) or scope.find_outside(name.text):
        if binds:
            advice = f"Use another name, or write conditions as filters: `${name.text}.property = …`"
            ctx.fail("T5", name.span, f"`${name.text}` is bound already", advice)
        return
    var = Var(name.text, name.span, scope.may_be_empty)
    scope.own[name.text] = var
    if isinstance(clause, BindingSyntax):
        var.type = _node_type(ctx, clause.type)
        var.broken = var.type is None
    elif binds:
        var.type = ctx.catalog.edge(clause.edge.text)
        var.broken = var.type is None


def _node_type(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    found = ctx.catalog.node(name.text)
    if found is not None:
        return found
    nodes = [one.name for one in ctx.catalog.types if one.kind == "node"]
    advice = did_you_mean(name.text, nodes) or f"The schema has {listed(nodes)}"
    if name.text in ctx.catalog.interfaces:
        advice = "It is an interface; bind one of the types that implement it"
    elif ctx.catalog.edge(name.text) is not None:
        advice = f"It is an edge; write a hop: `$a $e: {edge_word(name.text)} $b`"
    ctx.fail("T1", name.span, f"there is no node type `{name.text}`", advice)
    return None


# ---- types from edges ------------------------------------------------------------------------------------------------


@dataclass
class _Ends:
    """A hop that may still tell the types of its ends."""

    clause: TraversalSyntax
    edge: TypeDef
    left: Var
    right: Var

    @property
    def ways(self) -> list[tuple[str | None, str | None]]:
        """The types of (left, right) that the edge allows and the known types do not exclude."""
        forward, backward = (self.edge.source, self.edge.target), (self.edge.target, self.edge.source)
        both = [forward] if forward == backward else [forward, backward]
        return [way for way in both if _agrees(self.left, way[0]) and _agrees(self.right, way[1])]


def _agrees(var: Var, type_id: str | None) -> bool:
    return var.type is None or var.type.id == type_id


def _infer(ctx: CheckContext, scope: Scope) -> None:
    """Outer blocks first, so that a block never decides the type of a variable around it."""
    hops = [
        ends for clause in scope.clauses if isinstance(clause, TraversalSyntax) if (ends := _ends(ctx, scope, clause))
    ]
    while hops:
        settled = [ends for ends in hops if _settle(ctx, ends)]
        if not settled:
            _left_is_source(ctx, hops)
        hops = [ends for ends in hops if ends not in settled]
    for var in scope.own.values():
        var.broken = var.broken or var.type is None
    for inner in scope.children:
        _infer(ctx, inner)


def _ends(ctx: CheckContext, scope: Scope, clause: TraversalSyntax) -> _Ends | None:
    edge = find_edge(ctx, clause.edge)
    left, right = scope.find(clause.left.text), scope.find(clause.right.text)
    if edge is None or left is None or right is None:
        return None
    return _Ends(clause, edge, left, right)


def find_edge(ctx: CheckContext, name: NameSyntax) -> TypeDef | None:
    found = ctx.catalog.edge(name.text)
    if found is None:
        edges = [edge_word(one.name) for one in ctx.catalog.types if one.kind == "edge"]
        known = f"The schema has {listed(edges)}" if edges else "The schema has no edges"
        ctx.fail("T2", name.span, f"there is no edge `{name.text}`", did_you_mean(name.text, edges) or known)
    return found


def _settle(ctx: CheckContext, ends: _Ends) -> bool:
    """Take what the hop tells; False if it tells nothing yet."""
    if ends.left.broken or ends.right.broken:
        return True
    ways = ends.ways
    if len(ways) == 2:
        return False
    if not ways:
        _refuse_ends(ctx, ends)
        for var in (ends.left, ends.right):
            var.broken = var.broken or var.type is None
        return True
    for var, type_id in zip((ends.left, ends.right), ways[0], strict=True):
        assert type_id is not None
        var.type = ctx.catalog.by_id[type_id]
    return True


def _refuse_ends(ctx: CheckContext, ends: _Ends) -> None:
    edge = ends.edge
    source, target = ctx.catalog.by_id[edge.source or ""], ctx.catalog.by_id[edge.target or ""]
    shown = [f"`${var.name}` ({var.type.table_key})" for var in (ends.left, ends.right) if var.type is not None]
    ctx.fail(
        "T12",
        ends.clause.span,
        f"`{edge_word(edge.name)}` does not connect {' and '.join(shown)}",
        f"It goes from {source.name} to {target.name}",
    )


def _left_is_source(ctx: CheckContext, hops: list[_Ends]) -> None:
    """Nothing else tells: all hops that are left read from left to right, at once, so that their order is no matter."""
    votes: dict[str, tuple[Var, set[str]]] = {}
    for ends in hops:
        for var, type_id in ((ends.left, ends.edge.source), (ends.right, ends.edge.target)):
            if var.type is None:
                votes.setdefault(var.name, (var, set()))[1].add(type_id or "")
    for var, types in votes.values():
        if len(types) == 1:
            var.type = ctx.catalog.by_id[next(iter(types))]
            continue
        names = " or ".join(sorted(ctx.catalog.by_id[one].name for one in types))
        advice = f"Bind it: `${var.name}: Type`"
        ctx.fail("T13", var.span, f"the type of `${var.name}` cannot be told: {names}", advice)
        var.broken = True


# ---- use -------------------------------------------------------------------------------------------------------------


def look_up(ctx: CheckContext, scope: Scope, name: str, span: SourceSpan) -> Var | None:
    """The variable as seen in this block; a finding if it is not visible, None also if it is broken."""
    var = scope.find(name)
    if var is None:
        _refuse_unbound(ctx, scope, name, span)
        return None
    return None if var.broken or var.type is None else var


def _refuse_unbound(ctx: CheckContext, scope: Scope, name: str, span: SourceSpan) -> None:
    around: Scope | None = scope
    while around is not None:
        if around.kind == "optional" and around.parent is not None and name in around.parent.lent:
            advice = "Nest this block in the one that binds it"
            ctx.fail("T6", span, f"`${name}` is bound by another optional block", advice)
            return
        around = around.parent
    root = scope
    while root.parent is not None:
        root = root.parent
    if any(name in inner.own for inner in _all_scopes(root)):
        advice = "It is bound inside a `not` block and means nothing outside; bind it here as well"
    else:
        known = [f"${one}" for inner in _all_scopes(root) for one in inner.own] + [f"${one}" for one in ctx.params]
        advice = did_you_mean(f"${name}", known) or f"Bind it in match: `${name}: Type`, or declare a parameter"
    ctx.fail("T4", span, f"`${name}` is not bound here", advice)


def _all_scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for inner in scope.children:
        yield from _all_scopes(inner)


def bound(var: Var) -> BoundVariable:
    assert var.type is not None
    return BoundVariable(var.name, entity_type(var.type), var.optional)
