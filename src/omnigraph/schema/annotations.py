"""Reads annotations: known ones are checked, all others are stored as metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.drafts import (
    CheckDraft,
    ConstraintDraft,
    IndexDraft,
    KeyDraft,
    RangeDraft,
    RenameHint,
    UniqueDraft,
)
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import CONSTRAINT_NAMES, AnnotationNode, LiteralNode, RangeNode, WrittenName

_MAX_COUNT = 2**63 - 1
_NOT_REPEATABLE = CONSTRAINT_NAMES - {"check"} | {
    "card",
    "default",
    "embed",
    "rename_from",
    "description",
    "instruction",
}
_USAGE = {
    "key": "Write @key on a property, or @key(a, b)",
    "unique": "Write @unique on a property, or @unique(a, b)",
    "index": 'Write @index on a property, @index(p), or @index(metric="l2") on a vector',
    "range": "Write @range(p, low..high), or @range(low..high) on a property; either end may be open",
    "check": 'Write @check(p, "expression"), or @check("expression") on a property',
}


@dataclass(frozen=True, slots=True)
class AnnotationArgs:
    """The positional and named arguments of one annotation."""

    positional: tuple[WrittenName | LiteralNode | RangeNode, ...]
    named: tuple[tuple[WrittenName, WrittenName | LiteralNode | RangeNode], ...]

    def single_text(self) -> str | None:
        """The only argument if it is a text, else None."""
        if len(self.positional) == 1 and not self.named:
            value = self.positional[0]
            if isinstance(value, LiteralNode) and isinstance(value.value, str):
                return value.value
        return None


def read_arguments(node: AnnotationNode, problems: Problems) -> AnnotationArgs:
    """Split the arguments; positional ones must come first, a named one only once."""
    positional: list[WrittenName | LiteralNode | RangeNode] = []
    named_args: dict[str, tuple[WrittenName, WrittenName | LiteralNode | RangeNode]] = {}
    for argument in node.arguments:
        if argument.name is None:
            if named_args:
                problems.add("OG-S-071", argument.value.at, f"@{node.name.text}: a plain argument after a named one")
            positional.append(argument.value)
        elif argument.name.text in named_args:
            problems.add("OG-S-071", argument.name.at, f"@{node.name.text}: '{argument.name.text}' is given twice")
        else:
            named_args[argument.name.text] = (argument.name, argument.value)
    return AnnotationArgs(tuple(positional), tuple(named_args.values()))


def to_json_value(value: WrittenName | LiteralNode | RangeNode) -> Any:
    """The value as JSON, as the catalog stores it."""
    if isinstance(value, WrittenName):
        return value.text
    return value.value if isinstance(value, LiteralNode) else str(value)


def to_annotation(node: AnnotationNode, args: AnnotationArgs) -> Annotation:
    return Annotation(
        node.name.text,
        tuple(to_json_value(value) for value in args.positional),
        tuple((name.text, to_json_value(value)) for name, value in args.named),
    )


def drop_repetitions(nodes: Iterable[AnnotationNode], problems: Problems) -> list[AnnotationNode]:
    """Report and drop repetitions of known annotations of one declaration; metadata may be repeated."""
    first_by_name: dict[str, AnnotationNode] = {}
    result = []
    for node in nodes:
        name = node.name.text
        if name in first_by_name and name in _NOT_REPEATABLE:
            problems.add("OG-S-070", node.at, f"@{name} is given twice", "Keep one of them")
            continue
        first_by_name[name] = node
        result.append(node)
    return result


# --- annotations of types and properties -----------------------------------------------------------------------------


def read_hint(
    node: AnnotationNode, args: AnnotationArgs, new_name: WrittenName, problems: Problems
) -> RenameHint | None:
    """Read `@rename_from("Old")` or `@rename_from(Old)`."""
    value = args.positional[0] if len(args.positional) == 1 and not args.named else None
    old = value.text if isinstance(value, WrittenName) else args.single_text()
    if value is None or not old:
        problems.add("OG-S-071", node.at, "@rename_from takes the old name", 'Write @rename_from("Old")')
        return None
    if old == new_name.text:
        problems.add("OG-S-075", value.at, f"'{old}' is renamed from itself", "Name the old one, or remove the hint")
        return None
    return RenameHint(old, value.at)


def check_text(node: AnnotationNode, args: AnnotationArgs, problems: Problems) -> None:
    """Check that `@description` or `@instruction` has one text."""
    if args.single_text() is None:
        name = node.name.text
        problems.add("OG-S-071", node.at, f"@{name} takes one text", f'Write @{name}("…")')


def refuse_misplaced(node: AnnotationNode, where: str, advice: str | None, problems: Problems) -> None:
    problems.add("OG-S-072", node.at, f"@{node.name.text} has no meaning on {where}", advice)


# --- constraints ---------------------------------------------------------------------------------------------------


def read_constraint(node: AnnotationNode, owner: WrittenName | None, problems: Problems) -> ConstraintDraft | None:
    """Read a constraint of a type, or with `owner` a constraint written on that property."""
    args = read_arguments(node, problems)
    constraint = _read_known_constraint(node, args, owner)
    if constraint is None:
        problems.add("OG-S-064", node.at, f"@{node.name.text} has the wrong arguments", _USAGE[node.name.text])
    return constraint


def _read_known_constraint(
    node: AnnotationNode, args: AnnotationArgs, owner: WrittenName | None
) -> ConstraintDraft | None:
    match node.name.text:
        case "key" | "unique" as name:
            members = _read_members(node, args, owner)
            draft = KeyDraft if name == "key" else UniqueDraft
            return draft(members, node.at) if members else None
        case "index":
            return _read_index(node, args, owner)
        case "range" | "check":
            return _read_range_or_check(node, args, owner)
    raise AssertionError(node.name.text)


def _read_members(node: AnnotationNode, args: AnnotationArgs, owner: WrittenName | None) -> tuple[WrittenName, ...]:
    if args.named:
        return ()
    if owner is not None:
        return () if node.has_parentheses else (owner,)
    words = tuple(value for value in args.positional if isinstance(value, WrittenName))
    return words if len(words) == len(args.positional) else ()


def _read_index(node: AnnotationNode, args: AnnotationArgs, owner: WrittenName | None) -> IndexDraft | None:
    positional = list(args.positional)
    member = owner if owner is not None else positional.pop(0) if positional else None
    if positional or not isinstance(member, WrittenName) or (node.has_parentheses and not node.arguments):
        return None
    metric: LiteralNode | None = None
    for name, value in args.named:
        if name.text != "metric" or not isinstance(value, LiteralNode):
            return None
        metric = value
    return IndexDraft(member, metric, node.at)


def _read_range_or_check(
    node: AnnotationNode, args: AnnotationArgs, owner: WrittenName | None
) -> RangeDraft | CheckDraft | None:
    values = args.positional if owner is None else (owner, *args.positional)
    if args.named or len(values) != 2:
        return None
    match node.name.text, values:
        case "range", (WrittenName() as member, RangeNode(has_star=False) as limits):
            return RangeDraft(member, limits, node.at)
        case "check", (WrittenName() as member, LiteralNode(value=str()) as pattern):
            return CheckDraft(member, pattern, node.at)
    return None


def read_cardinality(node: AnnotationNode, args: AnnotationArgs, problems: Problems) -> Cardinality:
    """Read `@card(min..max)`; either end may be open."""
    limits = args.positional[0] if len(args.positional) == 1 and not args.named else None
    if not isinstance(limits, RangeNode):
        problems.add("OG-S-041", node.at, "@card takes a range", "Write @card(0..5), @card(1..) or @card(..1)")
        return Cardinality(0, None)
    for end in (limits.low, limits.high):
        if end is not None and (not isinstance(end, int) or not 0 <= end <= _MAX_COUNT):
            problems.add("OG-S-041", limits.at, f"@card: {end} is not a count", "Use whole numbers from 0")
            return Cardinality(0, None)
    low, high = int(limits.low or 0), None if limits.high is None else int(limits.high)
    if high is not None and low > high:
        problems.add("OG-S-041", limits.at, f"@card: {low} is more than {high}", "Swap the ends")
    return Cardinality(low, high)


def refuse_cardinality(node: AnnotationNode, where: str, problems: Problems) -> None:
    advice = "Write it before the '{' of the edge type whose sources it counts"
    problems.add("OG-S-042", node.at, f"@card has no meaning {where}", advice)
