"""One record after the other: what a record means. The fast ways must give the same, and fall back to this."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn

from omnigraph.load.records.model import Problem
from omnigraph.load.records.texts import column_of_key
from omnigraph.schema.catalog import Catalog, EntityKind, Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, ValueRefused, convert, derive_id, shown

_ID = Property("id", "id", PropType(Scalar.STRING))
_ENDS = {"src": Property("src", "from", PropType(Scalar.STRING)), "dst": Property("dst", "to", PropType(Scalar.STRING))}
_WORDS = {"src": "from", "dst": "to"}
_NODE_FIELDS = frozenset({"type", "data"})
_EDGE_FIELDS = frozenset({"edge", "from", "to", "data"})
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
        return _STRICT.decode(text)
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


_STRICT = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant, parse_float=_number)


# --- records -----------------------------------------------------------------------------------------------------


def mixed_draft(catalog: Catalog, text: str) -> Draft:
    """A record that names its type: `{"type": …, "data": {…}}` or `{"edge": …, "from": …, "to": …, "data": {…}}`."""
    record = _object(decode_json(text))
    one = _named_type(catalog, record, text)
    is_edge = one.kind == "edge"
    known = _EDGE_FIELDS if is_edge else _NODE_FIELDS
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
    name = record[word]
    if not isinstance(name, str):
        reason = f'"{word}" must be text, got {shown(name)}'
        raise BadRecord(Problem("OG-V-002", reason, word, column_of_key(text, word)))
    found = catalog.edge(name) if word == "edge" else catalog.node(name)
    if found is None:
        what = "edge type" if word == "edge" else "node type"
        reason = f"there is no {what} {shown(name)}"
        raise BadRecord(Problem("type_not_found", reason, word, column_of_key(text, word)))
    return found


def _draft(
    one: TypeDef, ends: Mapping[str, Any], data: Mapping[str, Any], text: str | None, path: tuple[str, ...]
) -> Draft:
    problems: list[Problem] = []
    found_ends: dict[str, str] = {}
    for column, value in ends.items():
        word = _WORDS[column]
        if value is None:
            problems.append(Problem("missing_end", f"{one.table_key}: {word!r} must name a node", word))
        else:
            _keep(problems, found_ends, _ENDS[column], value)
    of_ends = len(problems)
    given: dict[str, Any] = {}
    for name, value in data.items():
        prop = _ID if name == "id" else one.by_name.get(name)
        if prop is None:
            problems.append(_unknown_property(one, name))
        else:
            _keep(problems, given, prop, value)
    named = given.pop("id", None)
    if problems:
        placed = [_placed(problem, text) for problem in problems[:of_ends]]
        placed += [_placed(problem, text, *path) for problem in problems[of_ends:]]
        raise BadRecord(*placed, type_key=one.table_key, row_id=named)
    try:
        return Draft(one, _row_id(one, given, named), found_ends, given)
    except BadRecord as bad:
        raise BadRecord(
            *(_placed(problem, text, *path) for problem in bad.problems), type_key=one.table_key, row_id=named
        ) from None


def _placed(problem: Problem, text: str | None, *path: str) -> Problem:
    """The problem with its column. Only looked for where there is a problem: it takes longer than all the rest."""
    if text is None or problem.property is None:
        return problem
    return replace(problem, column=column_of_key(text, *path, problem.property))


def _keep(problems: list[Problem], into: dict[str, Any], prop: Property, value: Any) -> None:
    try:
        into[prop.id] = convert(prop, value)
    except ValueRefused as refused:
        problems.append(Problem(refused.code, refused.message, prop.name))


def _unknown_property(one: TypeDef, name: str) -> Problem:
    known = ", ".join(sorted([*one.by_name, "id"]))
    return Problem("unknown_property", f"{one.table_key} has no property {name!r}; it has {known}", name)


def _row_id(one: TypeDef, given: Mapping[str, Any], named: str | None) -> str | None:
    if not one.key:
        return named or None
    try:
        derived = derive_id(one, given)
    except ValueRefused as refused:
        raise BadRecord(Problem(refused.code, refused.message, refused.property)) from None
    if named not in (None, derived):
        reason = f"{one.table_key}: id {named!r} does not agree with the key, which gives {derived!r}"
        raise BadRecord(Problem("id_mismatch", reason, "id"))
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
