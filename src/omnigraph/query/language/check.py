"""Checks a syntax tree against a schema: the result is a checked query, or an error with every finding."""

from __future__ import annotations

from omnigraph.errors import TypeCheckError
from omnigraph.query.language.check_context import CheckContext, did_you_mean
from omnigraph.query.language.check_mutations import check_mutation
from omnigraph.query.language.check_reads import check_read
from omnigraph.query.language.checked import CheckedMutation, CheckedQuery, CheckedRead, Parameter
from omnigraph.query.language.parse import error_with_findings
from omnigraph.query.language.syntax import ParamSyntax, QuerySyntax, ReadSyntax
from omnigraph.schema.catalog import Catalog, PropType, Scalar
from omnigraph.schema.diagnostics import Diagnostics

#: Lance and the result formats take vectors of this many numbers at most.
MAX_VECTOR_SIZE = 65_536


def check_query(query: QuerySyntax, catalog: Catalog) -> CheckedQuery:
    """The checked query. Raises `TypeCheckError` with all findings (`T1` …) in `details["diagnostics"]`."""
    diagnostics = Diagnostics(query.source, query.file)
    checked = check_into(query, catalog, diagnostics)
    if checked is None or diagnostics:
        raise error_with_findings(TypeCheckError, diagnostics)
    return checked


def check_into(query: QuerySyntax, catalog: Catalog, diagnostics: Diagnostics) -> CheckedQuery | None:
    """The checked query, or None if it has errors; every finding goes into `diagnostics`."""
    ctx = CheckContext(catalog, diagnostics)
    before = len(diagnostics)
    declare_params(ctx, query.params)
    body: CheckedRead | CheckedMutation | None
    written: tuple[str, ...] = ()
    if isinstance(query.body, ReadSyntax):
        body = check_read(ctx, query.body)
    else:
        body, written = check_mutation(ctx, query.body)
    if body is None or len(diagnostics) > before:
        return None
    params = tuple(parameter for parameter in ctx.params.values() if parameter is not None)
    unused = tuple(parameter.name for parameter in params if parameter.name not in ctx.used_params)
    return CheckedQuery(query.name.text, params, ctx.slots, body, ctx.reads, written, unused)


def declare_params(ctx: CheckContext, params: tuple[ParamSyntax, ...]) -> None:
    """Declare the parameters of the head. One with a wrong type is declared too, so that its uses are not reported."""
    for param in params:
        name = param.name.text
        if name in ctx.params:
            ctx.fail("T32", param.name.span, f"two parameters are named `${name}`", "Rename one of them")
            continue
        type_ = _param_type(ctx, param)
        ctx.params[name] = None if type_ is None else Parameter(name, type_, param.nullable)


def _param_type(ctx: CheckContext, param: ParamSyntax) -> PropType | None:
    word = param.type.text
    if param.size is not None:
        if word == "Vector" and isinstance(param.size, int) and 1 <= param.size <= MAX_VECTOR_SIZE:
            return PropType(Scalar.F32, vector_size=param.size)
        advice = f"Write `Vector(n)` with n from 1 to {MAX_VECTOR_SIZE}"
        ctx.fail("T33", param.type.span, f"`{word}({param.size})` is no type", advice)
        return None
    names = [scalar.value for scalar in Scalar]
    if word not in names:
        hint = "Say its size: `Vector(n)`" if word == "Vector" else did_you_mean(word, names)
        if ctx.catalog.node(word) is not None:
            hint = "Pass the id of the entity as a String"
        ctx.fail("T33", param.type.span, f"`{word}` is no type of a parameter", hint or f"There are {', '.join(names)}")
        return None
    if word == "Blob" and param.is_list:
        ctx.fail("T33", param.type.span, "there are no lists of Blob", "Declare one parameter for each")
        return None
    return PropType(Scalar(word), is_list=param.is_list)
