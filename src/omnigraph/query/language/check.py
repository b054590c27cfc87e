"""A syntax tree and a schema give a query that can be planned, or every reason why not."""

from __future__ import annotations

from omnigraph.errors import TypeCheckError
from omnigraph.query.language.check_context import CheckContext, did_you_mean
from omnigraph.query.language.check_mutations import check_mutation
from omnigraph.query.language.check_reads import check_read
from omnigraph.query.language.checked import CheckedMutation, CheckedQuery, CheckedRead, Parameter
from omnigraph.query.language.parse import summary
from omnigraph.query.language.syntax import ParamSyntax, QuerySyntax, ReadSyntax
from omnigraph.schema.catalog import Catalog, PropType, Scalar
from omnigraph.schema.diagnostics import Diagnostics

#: Lance and the result formats take vectors of this many numbers at most.
MAX_VECTOR_SIZE = 65_536


def check_query(query: QuerySyntax, catalog: Catalog) -> CheckedQuery:
    """The resolved query. Raises `TypeCheckError` with all findings (`T1` …) in `details["diagnostics"]`."""
    found = Diagnostics(query.source, query.file)
    checked = check_into(query, catalog, found)
    if checked is None or found:
        raise type_error(found)
    return checked


def type_error(found: Diagnostics) -> TypeCheckError:
    """The error that carries these findings."""
    code, text, details = summary(found)
    return TypeCheckError(text, code=code, **details)


def check_into(query: QuerySyntax, catalog: Catalog, found: Diagnostics) -> CheckedQuery | None:
    """The resolved query, if it could be resolved; everything wrong goes into `found`."""
    ctx = CheckContext(catalog, found)
    before = len(found)
    declare(ctx, query.params)
    body: CheckedRead | CheckedMutation | None
    written: tuple[str, ...] = ()
    if isinstance(query.body, ReadSyntax):
        body = check_read(ctx, query.body)
    else:
        body, written = check_mutation(ctx, query.body)
    if body is None or len(found) > before:
        return None
    params = tuple(one for one in ctx.params.values() if one is not None)
    unused = tuple(one.name for one in params if one.name not in ctx.used)
    return CheckedQuery(query.name.text, params, ctx.slots, body, ctx.reads, written, unused)


def declare(ctx: CheckContext, params: tuple[ParamSyntax, ...]) -> None:
    """Take the parameters of the head; one with a wrong type is known, so that its uses are not reported again."""
    for one in params:
        name = one.name.text
        if name in ctx.params:
            ctx.fail("T32", one.name.span, f"two parameters are named `${name}`", "Rename one of them")
            continue
        type_ = _param_type(ctx, one)
        ctx.params[name] = None if type_ is None else Parameter(name, type_, one.nullable)


def _param_type(ctx: CheckContext, one: ParamSyntax) -> PropType | None:
    word = one.type.text
    if one.size is not None:
        if word == "Vector" and isinstance(one.size, int) and 1 <= one.size <= MAX_VECTOR_SIZE:
            return PropType(Scalar.F32, vector_size=one.size)
        advice = f"Write `Vector(n)` with n from 1 to {MAX_VECTOR_SIZE}"
        ctx.fail("T33", one.type.span, f"`{word}({one.size})` is no type", advice)
        return None
    names = [scalar.value for scalar in Scalar]
    if word not in names:
        hint = "Say its size: `Vector(n)`" if word == "Vector" else did_you_mean(word, names)
        if ctx.catalog.node(word) is not None:
            hint = "Pass the id of the entity as a String"
        ctx.fail("T33", one.type.span, f"`{word}` is no type of a parameter", hint or f"There are {', '.join(names)}")
        return None
    if word == "Blob" and one.is_list:
        ctx.fail("T33", one.type.span, "there are no lists of Blob", "Declare one parameter for each")
        return None
    return PropType(Scalar(word), is_list=one.is_list)
