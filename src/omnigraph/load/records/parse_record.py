"""Parses one record into a draft. This module defines what a record means and which records are bad.

`parse_columns` and `parse_lines` must give the same results, and leave to this module whatever they do not recognise.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NoReturn

from omnigraph.load.records.batches import RecordProblem
from omnigraph.load.records.record_text import column_of_key
from omnigraph.schema.catalog import Catalog, EntityKind, Property, PropType, Scalar, TypeDef
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, ValueRefused, convert, derive_id, quote_value

_ID = Property("id", "id", PropType(Scalar.STRING))
_ENDS = {"src": Property("src", "from", PropType(Scalar.STRING)), "dst": Property("dst", "to", PropType(Scalar.STRING))}
_WORDS = {"src": "from", "dst": "to"}
_NODE_FIELDS = frozenset({"type", "data"})
_EDGE_FIELDS = frozenset({"edge", "from", "to", "data"})
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)


class BadRecord(Exception):
    """Raised for a text that is not a record of this graph, with everything that is wrong with it."""

    def __init__(self, *problems: RecordProblem, type_key: str | None = None, row_id: str | None = None) -> None:
        super().__init__(problems[0].reason)
        self.problems = problems
        self.type_key = type_key
        self.row_id = row_id


@dataclass(frozen=True, slots=True)
class RecordDraft:
    """A record as parsed: the stored values of the properties that it mentions, by column id.

    `id` is None if the record has none and its type has no key; a fresh id is generated for it.
    """

    type: TypeDef
    id: str | None
    ends: Mapping[str, str]
    mentioned: Mapping[str, Any]


# --- JSON --------------------------------------------------------------------------------------------------------


def decode_json(text: str) -> Any:
    """Decodes JSON strictly: raises `BadRecord` for a repeated key, for NaN, and for a number beyond a double."""
    try:
        return _STRICT.decode(text)
    except BadRecord as bad:
        problem = bad.problems[0]
        offset = text.find(f'"{problem.property}"') if problem.property is not None else -1
        raise BadRecord(replace(problem, column=offset + 1 if offset >= 0 else None)) from None
    except json.JSONDecodeError as error:
        raise BadRecord(RecordProblem("not_json", f"not JSON: {error.msg}", column=error.pos + 1)) from None
    except RecursionError:
        raise BadRecord(RecordProblem("not_json", "not JSON of this graph: nested too deeply")) from None
    except ValueError as error:
        raise BadRecord(RecordProblem("not_json", f"not JSON: {error}")) from None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        earlier_names: set[str] = set()
        for name, _ in pairs:
            if name in earlier_names:
                raise BadRecord(RecordProblem("duplicate_field", f"the field {quote_value(name)} is there twice", name))
            earlier_names.add(name)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise BadRecord(RecordProblem("not_json", f'not JSON: {name} is no number; write "{name}" in quotes for a float'))


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadRecord(RecordProblem("OG-V-003", f"{quote_value(text)} is too large for a number"))
    return value


_STRICT = json.JSONDecoder(
    object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant, parse_float=_parse_float
)


# --- records -----------------------------------------------------------------------------------------------------


def parse_mixed_record(catalog: Catalog, text: str) -> RecordDraft:
    """Parses a record that names its type.

    `{"type": …, "data": {…}}` is a node, `{"edge": …, "from": …, "to": …, "data": {…}}` an edge.
    """
    record = _require_object(decode_json(text))
    type_def = _resolve_type(catalog, record, text)
    is_edge = type_def.kind == "edge"
    field_names = _EDGE_FIELDS if is_edge else _NODE_FIELDS
    for name in record:
        if name not in field_names:
            raise BadRecord(
                RecordProblem("unknown_field", f"a record of {type_def.table_key} has no field {quote_value(name)}; "
                        f"it has {', '.join(sorted(field_names))}", name, column_of_key(text, name)),
                type_key=type_def.table_key,
            )  # fmt: skip
    data = record.get("data", {} if is_edge else None)
    if not isinstance(data, dict):
        is_missing = "data" not in record
        reason = "the record has no data" if is_missing else f'"data" must be an object, got {quote_value(data)}'
        code = "missing_data" if is_missing else "bad_data"
        raise BadRecord(RecordProblem(code, reason, "data", column_of_key(text, "data")), type_key=type_def.table_key)
    ends = {"src": record.get("from"), "dst": record.get("to")} if is_edge else {}
    return _build_draft(type_def, ends, data, text, ("data",))


def parse_typed_record(type_def: TypeDef, text: str) -> RecordDraft:
    """Parses a record of a file of one type: an object of properties, for edges with `from` and `to` among them."""
    record = _require_object(decode_json(text))
    ends = {
        column: record.pop(end_field_name(type_def, record, column), None) for column in _end_columns(type_def.kind)
    }
    return _build_draft(type_def, ends, record, text, ())


def parse_row_values(type_def: TypeDef, names: Mapping[str, str], values: Mapping[str, Any]) -> RecordDraft:
    """Parses a row of a table: `names` maps its columns to stored columns, as `match_columns` found them."""
    ends = {names[name]: value for name, value in values.items() if names[name] in ("src", "dst")}
    data = {name: value for name, value in values.items() if names[name] not in ("src", "dst")}
    return _build_draft(type_def, ends, data, None, ())


def end_field_name(type_def: TypeDef, names: Any, column: str) -> str:
    """Returns the field name of an edge's `src` or `dst`: `from` or `to` is accepted unless a property is called so."""
    word = _WORDS[column]
    return word if column not in names and word in names and word not in type_def.by_name else column


def _end_columns(kind: EntityKind) -> tuple[str, ...]:
    return ("src", "dst") if kind == "edge" else ()


def _require_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord(
            RecordProblem("not_an_object", f"a record is a JSON object, got {quote_value(value)}", column=1)
        )
    return value


def _resolve_type(catalog: Catalog, record: dict[str, Any], text: str) -> TypeDef:
    if "type" in record and "edge" in record:
        raise BadRecord(RecordProblem("ambiguous_type", 'the record has both "type" and "edge"', "edge",
                                column_of_key(text, "edge")))  # fmt: skip
    word = "edge" if "edge" in record else "type"
    if word not in record:
        raise BadRecord(RecordProblem("missing_type", 'the record has neither "type" nor "edge"', column=1))
    name = record[word]
    if not isinstance(name, str):
        reason = f'"{word}" must be text, got {quote_value(name)}'
        raise BadRecord(RecordProblem("OG-V-002", reason, word, column_of_key(text, word)))
    type_def = catalog.edge(name) if word == "edge" else catalog.node(name)
    if type_def is None:
        kind_words = "edge type" if word == "edge" else "node type"
        reason = f"there is no {kind_words} {quote_value(name)}"
        raise BadRecord(RecordProblem("type_not_found", reason, word, column_of_key(text, word)))
    return type_def


def _build_draft(
    type_def: TypeDef, ends: Mapping[str, Any], data: Mapping[str, Any], text: str | None, path: tuple[str, ...]
) -> RecordDraft:
    problems: list[RecordProblem] = []
    end_ids: dict[str, str] = {}
    for column, value in ends.items():
        word = _WORDS[column]
        if value is None:
            problems.append(RecordProblem("missing_end", f"{type_def.table_key}: {word!r} must name a node", word))
        else:
            _convert_into(problems, end_ids, _ENDS[column], value)
    end_problems = len(problems)
    mentioned: dict[str, Any] = {}
    for name, value in data.items():
        prop = _ID if name == "id" else type_def.by_name.get(name)
        if prop is None:
            problems.append(_unknown_property_problem(type_def, name))
        else:
            _convert_into(problems, mentioned, prop, value)
    named_id = mentioned.pop("id", None)
    if problems:
        located = [_locate_problem(problem, text) for problem in problems[:end_problems]]
        located += [_locate_problem(problem, text, *path) for problem in problems[end_problems:]]
        raise BadRecord(*located, type_key=type_def.table_key, row_id=named_id)
    try:
        return RecordDraft(type_def, _resolve_id(type_def, mentioned, named_id), end_ids, mentioned)
    except BadRecord as bad:
        raise BadRecord(
            *(_locate_problem(problem, text, *path) for problem in bad.problems),
            type_key=type_def.table_key,
            row_id=named_id,
        ) from None


def _locate_problem(problem: RecordProblem, text: str | None, *path: str) -> RecordProblem:
    """Adds the column to a problem. Finding it takes longer than parsing, so only bad records pay for it."""
    if text is None or problem.property is None:
        return problem
    return replace(problem, column=column_of_key(text, *path, problem.property))


def _convert_into(problems: list[RecordProblem], into: dict[str, Any], prop: Property, value: Any) -> None:
    try:
        into[prop.id] = convert(prop, value)
    except ValueRefused as refused:
        problems.append(RecordProblem(refused.code, refused.message, prop.name))


def _unknown_property_problem(type_def: TypeDef, name: str) -> RecordProblem:
    field_names = ", ".join(sorted([*type_def.by_name, "id"]))
    return RecordProblem(
        "unknown_property", f"{type_def.table_key} has no property {name!r}; it has {field_names}", name
    )


def _resolve_id(type_def: TypeDef, mentioned: Mapping[str, Any], named_id: str | None) -> str | None:
    if not type_def.key:
        return named_id or None
    try:
        derived = derive_id(type_def, mentioned)
    except ValueRefused as refused:
        raise BadRecord(RecordProblem(refused.code, refused.message, refused.property)) from None
    if named_id not in (None, derived):
        reason = f"{type_def.table_key}: id {named_id!r} does not agree with the key, which gives {derived!r}"
        raise BadRecord(RecordProblem("id_mismatch", reason, "id"))
    return derived


# --- fields of CSV, cells of typed files -------------------------------------------------------------------------


def parse_csv_value(prop: Property, text: str | None) -> Any:
    """Parses a CSV field by the type of its property. Text of no valid form stays text, which `convert` refuses."""
    if text is None:
        return None
    scalar = prop.type.scalar
    if prop.type.vector_size is not None or prop.type.is_list:
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError, BadRecord):
            return text
    if scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text.lower(), text)
    if scalar in INTEGER_BOUNDS or scalar in (Scalar.DATE, Scalar.DATETIME):
        return int(text) if _INTEGER.match(text) and len(text) < 100 else text
    if scalar in FLOATS and _NUMBER.match(text):
        value = float(text)
        return text if math.isinf(value) else value
    return text


def parse_cell_value(prop: Property, value: Any) -> Any:
    """Converts a cell of a typed file. Whole decimals become integers, since Spark writes U64 as a decimal."""
    if isinstance(value, Decimal) and value.is_finite():
        if prop.type.scalar in FLOATS:
            return float(value)
        return int(value) if value == value.to_integral_value() else value
    return value
