"""One record after the other: what a record means. The fast ways must give the same, and fall back to this."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from omnigraph.lang.records.model import Problem
from omnigraph.lang.records.texts import column_of_key
from omnigraph.lang.schema.model import Catalog, EntityKind, Property, PropType, Scalar, TypeDef
from omnigraph.lang.schema.values import FLOATS, INTEGER_BOUNDS, ValueRefused, convert, derive_id, shown

_ID = Property("id", "id", PropType(Scalar.STRING))
_ENDS = {"src": Property("src", "from", PropType(Scalar.STRING)), "dst": Property("dst", "to", PropType(Scalar.STRING))}
_WORDS = {"src": "from", "dst": "to"}
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


class BadRecord(Exception):
    """Why a text is no record of this graph."""

    def __init__(self, *problems: Problem, type_key: str | None = None, row_id: str | None = None) -> None:
        super().__init__(problems[0].reason)
        self.problems = problems
        self.type_key = type_key
        self.row_id = row_id


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that was understood: stored values of what it mentions, by column id. `id` None asks for a fresh one."""

    type: TypeDef
    id: str | None
    ends: Mapping[str, str]
    given: Mapping[str, Any]


# --- JSON --------------------------------------------------------------------------------------------------------


def decode_json(text: str) -> Any:
    """The JSON value of a text, strictly: no key twice, no NaN, no number that a double cannot hold."""
    try:
        return json.loads(text, object_pairs_hook=_members, parse_constant=_constant, parse_float=_number)
    except BadRecord as bad:
        problem = bad.problems[0]
        at = text.find(f'"{problem.property}"') if problem.property is not None else -1
        raise BadRecord(Problem(problem.code, problem.reason, problem.property, at + 1 if at >= 0 else None)) from None
    except json.JSONDecodeError as error:
        raise BadRecord(Problem("not_json", f"not JSON: {error.msg}", column=error.pos + 1)) from None
    except RecursionError:
        raise BadRecord(Problem("not_json", "not JSON of this graph: nested too deeply")) from None
    except ValueError as error:
        raise BadRecord(Problem("not_json", f"not JSON: {error}")) from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadRecord(Problem("duplicate_field", f"the field {shown(twice)} is there twice", twice))
    return found


def _constant(name: str) -> NoReturn:
    raise BadRecord(Problem("not_json", f'not JSON: {name} is no number; write "{name}" in quotes for a float'))


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadRecord(Problem("OG-V-003", f"{shown(text)} is too large for a number"))
    return value


# --- records -----------------------------------------------------------------------------------------------------


def mixed_draft(catalog: Catalog, text: str) -> Draft:
    """A record that names its type: `{"type": …, "data": {…}}` or `{"edge": …, "from": …, "to": …, "data": {…}}`."""
    record = _object(decode_json(text))
    one = _named_type(catalog, record, text)
    is_edge = one.kind == "edge"
    known = {"edge", "from", "to", "data"} if is_edge else {"type", "data"}
    for name in record:
        if name not in known:
            raise BadRecord(
                Problem("unknown_field", f"a record of {one.table_key} has no field {shown(name)}; "
                        f"it has {', '.join(sorted(known))}", name, column_of_key(text, name)),
                type_key=one.table_key,
            )  # fmt: skip
    data = record.get("data", {} if is_edge else None)
    if not isinstance(data, dict):
        missing = "data" not in record
        reason = "the record has no data" if missing else f'"data" must be an object, got {shown(data)}'
        code = "missing_data" if missing else "bad_data"
        raise BadRecord(Problem(code, reason, "data", column_of_key(text, "data")), type_key=one.table_key)
    ends = {"src": record.get("from"), "dst": record.get("to")} if is_edge else {}
    return _draft(one, ends, data, text, ("data",))


def plain_draft(one: TypeDef, text: str) -> Draft:
    """A record of a file that is about one type: an object of properties; edges have `from` and `to` among them."""
    record = _object(decode_json(text))
    ends = {column: record.pop(end_name(one, record, column), None) for column in _ends_of(one.kind)}
    return _draft(one, ends, record, text, ())


def values_draft(one: TypeDef, names: Mapping[str, str], values: Mapping[str, Any]) -> Draft:
    """A row of a table: `names` maps its columns to system columns or properties, by `column_plan`."""
    ends = {names[name]: value for name, value in values.items() if names[name] in ("src", "dst")}
    data = {name: value for name, value in values.items() if names[name] not in ("src", "dst")}
    return _draft(one, ends, data, None, ())


def end_name(one: TypeDef, names: Any, column: str) -> str:
    """What a file calls the end `src` or `dst` of an edge: that, or `from`/`to` unless a property has this name."""
    word = _WORDS[column]
    return word if column not in names and word in names and word not in one.by_name else column


def _ends_of(kind: EntityKind) -> tuple[str, ...]:
    return ("src", "dst") if kind == "edge" else ()


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord(Problem("not_an_object", f"a record is a JSON object, got {shown(value)}", column=1))
    return value


def _named_type(catalog: Catalog, record: dict[str, Any], text: str) -> TypeDef:
    if "type" in record and "edge" in record:
        raise BadRecord(Problem("ambiguous_type", 'the record has both "type" and "edge"', "edge",
                                column_of_key(text, "edge")))  # fmt: skip
    word = "edge" if "edge" in record else "type"
    if word not in record:
        raise BadRecord(Problem("missing_type", 'the record has neither "type" nor "edge"', column=1))
    name, column = record[word], column_of_key(text, word)
    if not isinstance(name, str):
        raise BadRecord(Problem("OG-V-002", f'"{word}" must be text, got {shown(name)}', word, column))
    found = catalog.edge(name) if word == "edge" else catalog.node(name)
    if found is None:
        what = "edge type" if word == "edge" else "node type"
        raise BadRecord(Problem("type_not_found", f"there is no {what} {shown(name)}", word, column))
    return found


def _draft(
    one: TypeDef, ends: Mapping[str, Any], data: Mapping[str, Any], text: str | None, path: tuple[str, ...]
) -> Draft:
    problems: list[Problem] = []

    def place(*names: str) -> int | None:
        return column_of_key(text, *names) if text is not None else None

    found_ends: dict[str, str] = {}
    for column, value in ends.items():
        word = _WORDS[column]
        if value is None:
            problems.append(Problem("missing_end", f"{one.table_key}: {word!r} must name a node", word, place(word)))
        else:
            _keep(problems, found_ends, _ENDS[column], value, place(word))
    given: dict[str, Any] = {}
    for name, value in data.items():
        prop = _ID if name == "id" else one.by_name.get(name)
        if prop is None:
            problems.append(_unknown_property(one, name, place(*path, name)))
        else:
            _keep(problems, given, prop, value, place(*path, name) if text is not None else None)
    named = given.pop("id", None)
    if problems:
        raise BadRecord(*problems, type_key=one.table_key, row_id=named)
    return Draft(one, _row_id(one, given, named, place(*path, "id")), found_ends, given)


def _keep(problems: list[Problem], into: dict[str, Any], prop: Property, value: Any, column: int | None) -> None:
    try:
        into[prop.id] = convert(prop, value)
    except ValueRefused as refused:
        problems.append(Problem(refused.code, refused.message, prop.name, column))


def _unknown_property(one: TypeDef, name: str, column: int | None) -> Problem:
    known = ", ".join(sorted([*one.by_name, "id"]))
    return Problem("unknown_property", f"{one.table_key} has no property {name!r}; it has {known}", name, column)


def _row_id(one: TypeDef, given: Mapping[str, Any], named: str | None, column: int | None) -> str | None:
    if not one.key:
        return named or None
    try:
        derived = derive_id(one, given)
    except ValueRefused as refused:
        raise BadRecord(Problem(refused.code, refused.message, refused.property), type_key=one.table_key) from None
    if named not in (None, derived):
        reason = f"{one.table_key}: id {named!r} does not agree with the key, which gives {derived!r}"
        raise BadRecord(Problem("id_mismatch", reason, "id", column), type_key=one.table_key, row_id=named)
    return derived


# --- fields of CSV, cells of typed files -------------------------------------------------------------------------


def value_of_text(prop: Property, text: str | None) -> Any:
    """What a CSV field means for this property; text that means nothing stays text, which `convert` then refuses."""
    if text is None:
        return None
    kind = prop.type
    if kind.vector_size is not None or kind.is_list:
        try:
            return json.loads(text, parse_constant=_constant)
        except (ValueError, RecursionError, BadRecord):
            return text
    if kind.scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind.scalar in INTEGER_BOUNDS or kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return int(text) if _INTEGER.match(text) and len(text) < 100 else text
    if kind.scalar in FLOATS and _NUMBER.match(text):
        value = float(text)
        return text if math.isinf(value) else value
    return text


def value_of_cell(prop: Property, value: Any) -> Any:
    """A cell of a typed file: whole decimals are integers, as Spark keeps U64."""
    if isinstance(value, Decimal) and value.is_finite():
        if prop.type.scalar in FLOATS:
            return float(value)
        return int(value) if value == value.to_integral_value() else value
    return value
