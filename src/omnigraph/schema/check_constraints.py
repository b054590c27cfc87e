"""Checks the constraints of a type against its properties: the names exist, and the constraint fits their types."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.schema.catalog import PropType, Scalar
from omnigraph.schema.drafts import (
    CheckDraft,
    ConstraintDraft,
    IndexDraft,
    KeyDraft,
    PropertyDraft,
    RangeDraft,
    TypeDraft,
    UniqueDraft,
)
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import Number, WrittenName
from omnigraph.schema.values import FLOATS, INTEGER_BOUNDS, round_to_f32

METRICS = ("cosine", "l2", "dot")


@dataclass(slots=True)
class TypeConstraints:
    """The checked constraints of one type, by column names."""

    key: tuple[str, ...] = ()
    uniques: list[frozenset[str]] = field(default_factory=list)
    indexes: dict[str, str | None] = field(default_factory=dict)
    ranges: dict[str, tuple[Number | None, Number | None]] = field(default_factory=dict)
    checks: dict[tuple[str, str], None] = field(default_factory=dict)


def check_constraints(draft: TypeDraft, problems: Problems) -> TypeConstraints:
    """Return every valid constraint of the type; the others are reported to `problems`."""
    constraints = TypeConstraints()
    for constraint in draft.constraints:
        match constraint:
            case KeyDraft():
                _check_key(draft, constraint, constraints, problems)
            case UniqueDraft():
                _check_unique(draft, constraint, constraints, problems)
            case IndexDraft():
                _check_index(draft, constraint, constraints, problems)
            case RangeDraft():
                _check_range(draft, constraint, constraints, problems)
            case CheckDraft():
                _check_pattern(draft, constraint, constraints, problems)
    return constraints


def _check_key(draft: TypeDraft, constraint: KeyDraft, constraints: TypeConstraints, problems: Problems) -> None:
    if draft.kind == "edge":
        advice = "Use @unique to forbid repetitions; edges get an id of their own"
        problems.add("OG-S-052", constraint.at, f"{draft.title} cannot have a key", advice)
        return
    if constraints.key:
        names = dict.fromkeys((*constraints.key, *(word.text for word in constraint.members)))
        advice = f"Write one @key({', '.join(names)})"
        problems.add("OG-S-051", constraint.at, f"{draft.title} has a key already", advice)
        return
    members = _find_members(draft, constraint, constraint.members, problems)
    for word, prop in members:
        if prop is None or prop.type is None:
            continue
        if prop.nullable:
            advice = "Remove the ? from its type, or leave it out of the key"
            problems.add("OG-S-053", word.at, f"key member '{word.text}' may be null", advice)
        if not _is_comparable(prop.type):
            advice = "Key members are scalars or enums, not lists, vectors or blobs"
            problems.add("OG-S-054", word.at, f"key member '{word.text}' has type {prop.type}", advice)
    constraints.key = tuple(word.text for word, _ in members)


def _check_unique(draft: TypeDraft, constraint: UniqueDraft, constraints: TypeConstraints, problems: Problems) -> None:
    members = _find_members(draft, constraint, constraint.members, problems)
    for word, prop in members:
        if prop is not None and prop.type is not None and not _is_comparable(prop.type):
            advice = "@unique takes scalars and enums, not lists, vectors or blobs"
            problems.add("OG-S-056", word.at, f"'{word.text}' has type {prop.type}", advice)
    names = frozenset(word.text for word, _ in members)
    if names in constraints.uniques:
        problems.add("OG-S-055", constraint.at, "the same @unique is given twice", "Remove one of them")
    elif len(members) == len(constraint.members):
        constraints.uniques.append(names)


def _check_index(draft: TypeDraft, constraint: IndexDraft, constraints: TypeConstraints, problems: Problems) -> None:
    prop = _find_property(draft, constraint.member, "index", problems)
    if prop is None or prop.type is None:
        return
    kind = prop.type
    metric = constraint.metric.value if constraint.metric else None
    if kind.is_list or kind.scalar is Scalar.BLOB:
        advice = "Scalars, enums, Strings and vectors can be indexed"
        problems.add("OG-S-057", constraint.at, f"'{prop.name.text}' has type {kind}, which cannot be indexed", advice)
    elif constraint.metric and kind.vector_size is None:
        advice = "Only the index of a vector has a metric"
        problems.add("OG-S-057", constraint.metric.at, f"'{prop.name.text}' has type {kind}", advice)
    elif constraint.metric and metric not in METRICS:
        advice = f"Metrics are {', '.join(METRICS)}"
        problems.add("OG-S-057", constraint.metric.at, f"unknown metric {metric!r}", advice)
    elif prop.name.text in constraints.indexes:
        problems.add("OG-S-055", constraint.at, f"'{prop.name.text}' is indexed twice", "Remove one of them")
    else:
        constraints.indexes[prop.name.text] = str(metric) if metric is not None else None


def _check_range(draft: TypeDraft, constraint: RangeDraft, constraints: TypeConstraints, problems: Problems) -> None:
    prop = _find_property(draft, constraint.member, "range", problems)
    if prop is None or prop.type is None:
        return
    name, kind = prop.name.text, prop.type
    if kind.is_list or kind.vector_size is not None or kind.scalar not in (*INTEGER_BOUNDS, *FLOATS):
        problems.add(
            "OG-S-060", constraint.at, f"'{name}' has type {kind}, not a number", "@range takes integers and floats"
        )
        return
    if name in constraints.ranges:
        problems.add("OG-S-055", constraint.at, f"'{name}' has a @range already", "Keep one of them")
        return
    low, high = constraint.limits.low, constraint.limits.high
    for end in (low, high):
        if end is not None and _to_stored_bound(end, kind.scalar) is None:
            advice = _advise_on_bound(kind.scalar)
            problems.add("OG-S-061", constraint.limits.at, f"{end} is not a value of {kind}", advice)
            return
    if low is not None and high is not None and low > high:
        problems.add("OG-S-061", constraint.limits.at, f"{low} is more than {high}", "Swap the ends")
        return
    constraints.ranges[name] = (_to_stored_bound(low, kind.scalar), _to_stored_bound(high, kind.scalar))


def _to_stored_bound(end: Number | None, scalar: Scalar) -> Number | None:
    """The bound as a value of the type, so that comparing needs no conversion; None if the type has no such value."""
    if end is None:
        return None
    if scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[scalar]
        return end if isinstance(end, int) and low <= end <= high else None
    try:
        return round_to_f32(float(end)) if scalar is Scalar.F32 else float(end)
    except OverflowError:
        return None


def _advise_on_bound(scalar: Scalar) -> str:
    if scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[scalar]
        return f"Use a whole number from {low} to {high}, or leave that end open"
    return "Use a smaller number, or leave that end open"


def _check_pattern(draft: TypeDraft, constraint: CheckDraft, constraints: TypeConstraints, problems: Problems) -> None:
    pattern = str(constraint.pattern.value)
    reason = explain_bad_regex(pattern)
    if reason:
        advice = "Expressions are RE2: no look-around, no back-references"
        if "\b" in pattern:
            advice = r"Write a word boundary as \\b; \b in a text is a backspace"
        problems.add("OG-S-063", constraint.pattern.at, reason, advice)
    prop = _find_property(draft, constraint.member, "check", problems)
    if prop is None or prop.type is None:
        return
    name, kind = prop.name.text, prop.type
    if kind.is_list or kind.enum_values or kind.scalar is not Scalar.STRING:
        problems.add(
            "OG-S-062", constraint.at, f"'{name}' has type {kind}, not a String", "@check takes a String property"
        )
    elif (name, pattern) in constraints.checks:
        problems.add("OG-S-055", constraint.at, f"the same @check of '{name}' is given twice", "Remove one of them")
    elif not reason:
        constraints.checks[name, pattern] = None


def explain_bad_regex(pattern: str) -> str | None:
    """Why the expression is not usable, or None. Arrow's RE2 engine also evaluates the constraint."""
    if "\b" in pattern:
        return "the expression holds a backspace"
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        return f"not an RE2 expression: {str(error).removeprefix('Invalid regular expression: ')}"
    return None


# --- members and properties ------------------------------------------------------------------------------------------


def _is_comparable(kind: PropType) -> bool:
    return not kind.is_list and kind.vector_size is None and kind.scalar is not Scalar.BLOB


def _find_members(
    draft: TypeDraft, constraint: ConstraintDraft, words: tuple[WrittenName, ...], problems: Problems
) -> list[tuple[WrittenName, PropertyDraft | None]]:
    """(name, property) of every existing member, without repetitions.

    The property is None for `src` and `dst`, which only @unique may name.
    """
    members: dict[str, tuple[WrittenName, PropertyDraft | None]] = {}
    name = "key" if isinstance(constraint, KeyDraft) else "unique"
    for word in words:
        if word.text in members:
            problems.add("OG-S-055", word.at, f"@{name} names '{word.text}' twice", "Remove one of them")
        elif name == "unique" and draft.kind == "edge" and word.text in ("src", "dst"):
            members[word.text] = (word, None)
        elif prop := _find_property(draft, word, name, problems):
            members[word.text] = (word, prop)
    return list(members.values())


def _find_property(draft: TypeDraft, word: WrittenName, constraint: str, problems: Problems) -> PropertyDraft | None:
    prop = draft.properties.get(word.text)
    if prop is None and draft.has_all_interfaces:
        advice = f"Its properties are {', '.join(draft.properties)}" if draft.properties else "It has no properties"
        if word.text == "id":
            advice = "Every id is unique and indexed already"
        elif draft.kind == "edge" and word.text in ("src", "dst"):
            advice = "The ends of an edge are indexed already; @unique may name them"
        problems.add("OG-S-050", word.at, f"@{constraint}: {draft.title} has no property '{word.text}'", advice)
    return prop
