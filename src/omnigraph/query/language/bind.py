"""Parameter values for one call, converted for each of their uses, before any I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.query.language import checked as c
from omnigraph.query.language.check_context import did_you_mean
from omnigraph.schema.catalog import Property
from omnigraph.schema.values import ValueRefused, convert

ValueResolver = Callable[[c.Value], Any]
"""The value of a literal, a parameter or now() in this run."""


def bind_params(checked: c.CheckedQuery, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every slot of the query, in stored form.

    Raises `InvalidInput`: `P1` for a required parameter that is not given, `P2` for one that does not exist, `P3` for a
    value that does not fit the declared type or one of the uses. A `?` parameter that is not given is null.
    """
    declared = {one.name: one for one in checked.params}
    for name in values:
        if name not in declared:
            raise _unknown(checked, str(name))
    bound = {name: _converted(checked, one, values.get(name)) for name, one in declared.items()}
    for slot in checked.slots:
        bound[slot.name] = _for_use(checked, slot, values.get(slot.param))
    return bound


def _unknown(checked: c.CheckedQuery, name: str) -> InvalidInput:
    known = [one.name for one in checked.params]
    listed = f"It has {', '.join(known)}" if known else "It has none"
    return InvalidInput(
        f"query `{checked.name}` has no parameter `{name}`",
        code="P2",
        advice=did_you_mean(name, known) or listed,
        query=checked.name,
        parameter=name,
    )


def _converted(checked: c.CheckedQuery, one: c.Parameter, value: Any) -> Any:
    if value is None:
        if one.nullable:
            return None
        raise InvalidInput(
            f"query `{checked.name}` needs the parameter `{one.name}` ({one.type})",
            code="P1",
            advice=f"Give it a value, or declare it as `{one.type}?`",
            query=checked.name,
            parameter=one.name,
        )
    return _convert(checked, one.name, Property("", one.name, one.type), value)


def _for_use(checked: c.CheckedQuery, slot: c.Slot, value: Any) -> Any:
    done = _convert(checked, slot.param, Property("", slot.param, slot.type), value)
    if slot.at_least is not None and done is not None and done < slot.at_least:
        raise _misfit(checked, slot.param, f"{done} is less than {slot.at_least}", None)
    return done


def _convert(checked: c.CheckedQuery, param: str, prop: Property, value: Any) -> Any:
    try:
        return convert(prop, value)
    except ValueRefused as refused:
        raise _misfit(checked, param, refused.reason, refused.advice) from refused


def _misfit(checked: c.CheckedQuery, param: str, reason: str, advice: str | None) -> InvalidInput:
    return InvalidInput(
        f"parameter `{param}` of query `{checked.name}`: {reason}",
        code="P3",
        advice=advice,
        query=checked.name,
        parameter=param,
    )


def value_resolver(bound: Mapping[str, Any], now: datetime) -> ValueResolver:
    """How the literals, parameters and now() of one run are read."""
    # Moments are stored in milliseconds: storage would cut `now` where the statement does not.
    instant = now.replace(microsecond=now.microsecond // 1000 * 1000)

    def given(value: c.Value) -> Any:
        match value:
            case c.Const():
                return list(value.value) if isinstance(value.value, tuple) else value.value
            case c.Param():
                return bound[value.slot]
            case c.Now():
                return instant
            case c.ListOf():
                return [given(one) for one in value.items]

    return given
