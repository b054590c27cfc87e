"""Checks calls of text filters, ranks and aggregates: their arguments and the types of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from omnigraph.query.language.check_context import CheckContext, did_you_mean, list_words
from omnigraph.query.language.checked import (
    F64,
    I64,
    STRING,
    U64,
    AggregateCall,
    Bm25,
    Const,
    Entity,
    Expr,
    Nearest,
    Param,
    Prop,
    Rank,
    Rrf,
    TextFilter,
    TextFn,
)
from omnigraph.query.language.coerce import is_assignable, is_integer, type_family, use_param
from omnigraph.query.language.syntax import (
    AGGREGATES,
    AggregateFn,
    AggregateSyntax,
    CallSyntax,
    ExprSyntax,
    ListSyntax,
    LiteralSyntax,
    PropertySyntax,
    SourceSpan,
    VariableSyntax,
)
from omnigraph.schema.catalog import DEFAULT_METRIC, Property, PropType, TypeDef
from omnigraph.schema.values import FLOATS, ValueRefused, convert

TEXT_FUNCTIONS = ("search", "match_text", "fuzzy")
RANK_FUNCTIONS = ("bm25", "nearest", "rrf")
VALUE_FUNCTIONS = ("now", "date", "datetime")
FUNCTIONS = (*TEXT_FUNCTIONS, *RANK_FUNCTIONS, *VALUE_FUNCTIONS, *AGGREGATES)

_USAGE = {
    "search": 'search($v.property, "terms")',
    "match_text": 'match_text($v.property, "phrase")',
    "fuzzy": 'fuzzy($v.property, "terms", edits=1)',
    "bm25": 'bm25($v.property, "terms")',
    "nearest": "nearest($v.vector, $query)",
    "rrf": "rrf(bm25(…), nearest(…), k=60)",
    "now": "now()",
    "date": 'date("2026-01-31")',
    "datetime": 'datetime("2026-01-31T12:00:00Z")',
    "count": "count($v)",
    "sum": "sum($v.property)",
    "avg": "avg($v.property)",
    "min": "min($v.property)",
    "max": "max($v.property)",
}

DEFAULT_EDITS = 1
DEFAULT_K = 60

#: Resolves `$v.p` in the scope of the caller.
PropertyResolver = Callable[[PropertySyntax], "Prop | None"]


def refuse_call(ctx: CheckContext, call: CallSyntax) -> None:
    """Report an unknown function, or arguments that the function does not take."""
    name = call.function.text
    if name in FUNCTIONS:
        ctx.fail("T20", call.span, f"`{name}` does not take these arguments", f"Write `{_USAGE[name]}`")
        return
    advice = did_you_mean(name, FUNCTIONS) or f"There are {list_words(FUNCTIONS, 20)}"
    ctx.fail("T19", call.function.span, f"there is no function `{name}`", advice)


def _match_arguments(
    ctx: CheckContext, call: CallSyntax, names: tuple[str, ...], required: int
) -> dict[str, ExprSyntax] | None:
    """Arguments by name, positional ones first; a finding if there are too few, too many or unknown ones."""
    if call.distinct:
        ctx.fail("T23", call.span, f"`distinct` has no meaning in {call.function.text}()", "Leave it out")
        return None
    arguments: dict[str, ExprSyntax] = {}
    for position, argument in enumerate(call.arguments):
        key = argument.name.text if argument.name is not None else (names[position] if position < len(names) else None)
        if key not in names or key in arguments:
            break
        arguments[key] = argument.value
    if len(arguments) == len(call.arguments) and all(name in arguments for name in names[:required]):
        return arguments
    refuse_call(ctx, call)
    return None


def _refuse_argument(ctx: CheckContext, call: CallSyntax, span: SourceSpan, message: str) -> None:
    ctx.fail("T20", span, message, f"Write `{_USAGE[call.function.text]}`")


# ---- text ------------------------------------------------------------------------------------------------------------


def check_text_filter(ctx: CheckContext, call: CallSyntax, resolve: PropertyResolver) -> TextFilter | None:
    """Check `search`, `match_text` or `fuzzy` as a clause."""
    name = cast(TextFn, call.function.text)
    names = ("field", "query", "edits") if name == "fuzzy" else ("field", "query")
    arguments = _match_arguments(ctx, call, names, 2)
    if arguments is None:
        return None
    prop = _check_text_property(ctx, call, arguments["field"], resolve)
    query = _check_text_query(ctx, call, arguments["query"])
    edits: Const | Param | None = None
    if name == "fuzzy":
        edits = Const(DEFAULT_EDITS, I64)
        if "edits" in arguments:
            edits = check_whole_number(ctx, arguments["edits"], 0, "T20", "the number of edits")
        if edits is None:
            return None
    return None if prop is None or query is None else TextFilter(name, prop, query, edits)


def _check_text_property(
    ctx: CheckContext, call: CallSyntax, node: ExprSyntax, resolve: PropertyResolver
) -> Prop | None:
    if not isinstance(node, PropertySyntax):
        _refuse_argument(ctx, call, node.span, "the first argument is a property: `$v.property`")
        return None
    prop = resolve(node)
    if prop is not None and (prop.type != STRING or prop.column in {"id", "src", "dst"}):
        kind = prop.type if prop.type != STRING else "an id"
        _refuse_argument(ctx, call, node.span, f"text is searched in String properties, `{prop.name}` is {kind}")
        return None
    return prop


def _check_text_query(ctx: CheckContext, call: CallSyntax, node: ExprSyntax) -> Const | Param | None:
    if isinstance(node, LiteralSyntax) and isinstance(node.value, str):
        return Const(node.value, STRING)
    if isinstance(node, VariableSyntax) and node.name in ctx.params:
        param = use_param(ctx, node)
        if param is None:
            return None
        if param.type == STRING and not param.nullable:
            return ctx.slot(param, STRING)
    _refuse_argument(ctx, call, node.span, "what to look for is a text or a required String parameter")
    return None


def check_whole_number(
    ctx: CheckContext, node: ExprSyntax, at_least: int, code: str, noun: str
) -> Const | Param | None:
    """Check a literal or parameter that counts something; `noun` names it in messages."""
    if isinstance(node, VariableSyntax) and node.name in ctx.params:
        param = use_param(ctx, node)
        if param is None:
            return None
        if is_integer(param.type) and not param.nullable:
            return ctx.slot(param, I64, at_least)
        message = f"{noun} is a whole number, `${param.name}` is {param.type_text}"
        ctx.fail(code, node.span, message, "Declare it as I64")
        return None
    value = node.value if isinstance(node, LiteralSyntax) else None
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < 2**63:
        advice = None if isinstance(node, LiteralSyntax) else "Write a number or a parameter"
        ctx.fail(code, node.span, f"{noun} is a whole number, {at_least} or more", advice)
        return None
    return Const(value, I64)


# ---- ranks -----------------------------------------------------------------------------------------------------------


def check_rank(ctx: CheckContext, call: CallSyntax, resolve: PropertyResolver) -> Rank | None:
    """Check `bm25`, `nearest` or `rrf`."""
    match call.function.text:
        case "bm25":
            return _check_bm25(ctx, call, resolve)
        case "nearest":
            return _check_nearest(ctx, call, resolve)
    return _check_rrf(ctx, call, resolve)


def _check_bm25(ctx: CheckContext, call: CallSyntax, resolve: PropertyResolver) -> Bm25 | None:
    arguments = _match_arguments(ctx, call, ("field", "query"), 2)
    if arguments is None:
        return None
    prop = _check_text_property(ctx, call, arguments["field"], resolve)
    query = _check_text_query(ctx, call, arguments["query"])
    return None if prop is None or query is None else Bm25(prop, query)


def _check_nearest(ctx: CheckContext, call: CallSyntax, resolve: PropertyResolver) -> Nearest | None:
    arguments = _match_arguments(ctx, call, ("field", "query"), 2)
    if arguments is None:
        return None
    node = arguments["field"]
    if not isinstance(node, PropertySyntax):
        _refuse_argument(ctx, call, node.span, "the first argument is a vector: `$v.property`")
        return None
    prop = resolve(node)
    if prop is None:
        return None
    if prop.type.vector_size is None:
        _refuse_argument(ctx, call, node.span, f"nearest ranks vectors, `{prop.name}` is {prop.type}")
        return None
    query = _check_vector_query(ctx, call, arguments["query"], prop.type)
    if query is None:
        return None
    owner = ctx.catalog.by_id[prop.type_id]
    return Nearest(prop, query, _index_metric(owner, prop.column), _embedding_model(owner.by_id[prop.column]))


def _check_vector_query(ctx: CheckContext, call: CallSyntax, node: ExprSyntax, type_: PropType) -> Const | Param | None:
    if isinstance(node, LiteralSyntax) and isinstance(node.value, str):
        return Const(node.value, STRING)
    if isinstance(node, ListSyntax):
        numbers = [item.value if isinstance(item, LiteralSyntax) else None for item in node.items]
        try:
            return Const(tuple(convert(Property("", "", type_), numbers)), type_)
        except ValueRefused as refused:
            _refuse_argument(ctx, call, node.span, refused.reason)
            return None
    if isinstance(node, VariableSyntax) and node.name in ctx.params:
        param = use_param(ctx, node)
        if param is None:
            return None
        if not param.nullable and (param.type == STRING or is_assignable(param.type, type_)):
            return ctx.slot(param, STRING if param.type == STRING else type_)
        _refuse_argument(ctx, call, node.span, f"`${param.name}` is {param.type_text}, needed is {type_} or String")
        return None
    _refuse_argument(ctx, call, node.span, f"what to look for is a text or a {type_}, as a literal or a parameter")
    return None


def _index_metric(owner: TypeDef, column: str) -> str:
    return next((index.metric for index in owner.indexes if index.column == column and index.metric), DEFAULT_METRIC)


def _embedding_model(prop: Property) -> str | None:
    """The model that `@embed` records for the vector."""
    for annotation in prop.annotations:
        if annotation.name == "embed":
            model = dict(annotation.named).get("model")
            return None if model is None else str(model)
    return None


def _check_rrf(ctx: CheckContext, call: CallSyntax, resolve: PropertyResolver) -> Rrf | None:
    arguments = _match_arguments(ctx, call, ("first", "second", "k"), 2)
    if arguments is None:
        return None
    ranks: list[Bm25 | Nearest] = []
    for node in (arguments["first"], arguments["second"]):
        if not isinstance(node, CallSyntax) or node.function.text not in {"bm25", "nearest"}:
            _refuse_argument(ctx, call, node.span, "rrf fuses two ranks, each bm25(…) or nearest(…)")
            return None
        inner = check_rank(ctx, node, resolve)
        if inner is None or isinstance(inner, Rrf):
            return None
        ranks.append(inner)
    k = check_whole_number(ctx, arguments["k"], 1, "T20", "k") if "k" in arguments else Const(DEFAULT_K, I64)
    return None if k is None else Rrf(ranks[0], ranks[1], k)


def uses_nearest(value: Expr) -> bool:
    if isinstance(value, Rrf):
        return uses_nearest(value.first) or uses_nearest(value.second)
    return isinstance(value, Nearest)


# ---- aggregates ------------------------------------------------------------------------------------------------------


def check_aggregate(ctx: CheckContext, node: AggregateSyntax, argument: Expr) -> AggregateCall | None:
    """Check an aggregate whose argument is resolved."""
    name = node.function
    if not isinstance(argument, (Prop, Entity)):
        advice = f"Write `{_USAGE[name]}`"
        ctx.fail("T22", node.argument.span, f"{name}() takes a variable or a property", advice)
        return None
    if node.distinct and name != "count":
        ctx.fail("T23", node.span, f"`distinct` has no meaning in {name}()", "Only count(distinct …) exists")
        return None
    type_ = _aggregate_type(name, argument, node.distinct)
    if type_ is None:
        ctx.fail("T22", node.argument.span, f"{name}() does not take {argument.type}", _aggregate_advice(name))
        return None
    return AggregateCall(name, argument, node.distinct, type_, name != "count" and argument.nullable)


def _aggregate_type(name: AggregateFn, argument: Prop | Entity, distinct: bool) -> PropType | None:
    if name == "count":
        single = isinstance(argument, Entity) or type_family(argument.type) not in {"list", "vector"}
        return I64 if single or not distinct else None
    if isinstance(argument, Entity):
        return None
    kind = type_family(argument.type)
    if name in {"min", "max"}:
        has_order = kind in {"number", "text", "date", "datetime"} and not argument.type.enum_values
        return argument.type if has_order else None
    if kind != "number":
        return None
    if name == "avg" or argument.type.scalar in FLOATS:
        return F64
    return U64 if argument.type.scalar.value.startswith("U") else I64


def _aggregate_advice(name: AggregateFn) -> str:
    if name == "count":
        return "Lists and vectors cannot be counted by their value"
    return "It takes numbers" if name in {"sum", "avg"} else "It takes numbers, String, Date and DateTime"
