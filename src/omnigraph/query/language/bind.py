"""Values of one call: parameters converted for each of their uses before any I/O, and the reading of checked values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.query.language.check_context import did_you_mean
from omnigraph.query.language.checked import (
    CheckedOverwrite,
    CheckedQuery,
    CheckedStatement,
    Const,
    ListOf,
    Now,
    Param,
    Parameter,
    Slot,
    Value,
)
from omnigraph.schema.catalog import Property
from omnigraph.schema.values import ValueRefused, convert

ValueResolver = Callable[[Value], Any]
"""Gives the value of a constant, a parameter or `now()` in one call."""


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A checked statement with the values of one call: all that executing it needs besides the data.

    `is_strict` makes an insert of an existing id a key conflict instead of an update.
    """

    statement: CheckedStatement | CheckedOverwrite
    resolve_value: ValueResolver
    is_strict: bool = False


def bind_params(checked: CheckedQuery, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every slot of the query, in stored form.

    Raises `InvalidInput`: `P1` for a required parameter without a value, `P2` for a value without a parameter, `P3` for
    a value that does not fit the declared type or one of the uses. A `?` parameter without a value is null.
    """
    parameters = {parameter.name: parameter for parameter in checked.params}
    for name in values:
        if name not in parameters:
            raise _unknown_parameter(checked, str(name))
    bound = {name: _convert_declared(checked, parameter, values.get(name)) for name, parameter in parameters.items()}
    for slot in checked.slots:
        bound[slot.name] = _convert_for_slot(checked, slot, values.get(slot.param))
    return bound


def _unknown_parameter(checked: CheckedQuery, name: str) -> InvalidInput:
    names = [parameter.name for parameter in checked.params]
    all_names = f"It has {', '.join(names)}" if names else "It has none"
    return InvalidInput(
        f"query `{checked.name}` has no parameter `{name}`",
        code="P2",
        advice=did_you_mean(name, names) or all_names,
        query=checked.name,
        parameter=name,
    )


def _convert_declared(checked: CheckedQuery, parameter: Parameter, value: Any) -> Any:
    """The value as the declared type; also of a parameter that the query never uses."""
    if value is None:
        if parameter.nullable:
            return None
        raise InvalidInput(
            f"query `{checked.name}` needs the parameter `{parameter.name}` ({parameter.type})",
            code="P1",
            advice=f"Give it a value, or declare it as `{parameter.type}?`",
            query=checked.name,
            parameter=parameter.name,
        )
    return _convert_param(checked, parameter.name, Property("", parameter.name, parameter.type), value)


def _convert_for_slot(checked: CheckedQuery, slot: Slot, value: Any) -> Any:
    stored = _convert_param(checked, slot.param, Property("", slot.param, slot.type), value)
    if slot.at_least is not None and stored is not None and stored < slot.at_least:
        raise _misfit(checked, slot.param, f"{stored} is less than {slot.at_least}", None)
    return stored


def _convert_param(checked: CheckedQuery, param: str, prop: Property, value: Any) -> Any:
    try:
        return convert(prop, value)
    except ValueRefused as refused:
        raise _misfit(checked, param, refused.reason, refused.advice) from refused


def _misfit(checked: CheckedQuery, param: str, reason: str, advice: str | None) -> InvalidInput:
    return InvalidInput(
        f"parameter `{param}` of query `{checked.name}`: {reason}",
        code="P3",
        advice=advice,
        query=checked.name,
        parameter=param,
    )


def value_resolver(bound: Mapping[str, Any], now: datetime) -> ValueResolver:
    """How one call reads checked values: slots from `bound` (see `bind_params`), `now()` as the instant `now`."""
    # DateTimes are stored in milliseconds. Comparing stored values with a finer `now` would never find them equal.
    instant = now.replace(microsecond=now.microsecond // 1000 * 1000)

    def resolve(value: Value) -> Any:
        match value:
            case Const():
                return list(value.value) if isinstance(value.value, tuple) else value.value
            case Param():
                return bound[value.slot]
            case Now():
                return instant
            case ListOf():
                return [resolve(item) for item in value.items]

    return resolve


CONSTANTS_ONLY: ValueResolver = value_resolver({}, datetime.min)
"""Reads the values of statements from Python, which are all constants."""
