"""What annotations say: known ones are checked and read, all others are kept as metadata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.schema.drafts import CheckDraft, Hint, IndexDraft, KeyDraft, RangeDraft, RuleDraft, UniqueDraft
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import AnnotationNode, Literal, Range, Word

_MAX_COUNT = 2**63 - 1
_ONCE = frozenset({"key", "unique", "index", "range", "card", "default", "embed", "rename_from"}) | {
    "description",
    "instruction",
}
_HOW = {
    "key": "Write @key on a property, or @key(a, b)",
    "unique": "Write @unique on a property, or @unique(a, b)",
    "index": 'Write @index on a property, @index(p), or @index(metric="l2") on a vector',
    "range": "Write @range(p, low..high), or @range(low..high) on a property; either end may be open",
    "check": 'Write @check(p, "expression"), or @check("expression") on a property',
}


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of one annotation, taken apart."""

    positional: tuple[Word | Literal | Range, ...]
    named: tuple[tuple[Word, Word | Literal | Range], ...]

    def one_text(self) -> str | None:
        """The only argument, if it is a text."""
        if len(self.positional) == 1 and not self.named:
            value = self.positional[0]
            if isinstance(value, Literal) and isinstance(value.value, str):
                return value.value
        return None


def take_apart(node: AnnotationNode, problems: Problems) -> Given:
    """Positional arguments first, then named ones, each once."""
    positional: list[Word | Literal | Range] = []
    named: dict[str, tuple[Word, Word | Literal | Range]] = {}
    for argument in node.arguments:
        if argument.name is None:
            if named:
                problems.add("OG-S-071", argument.value.at, f"@{node.name.text}: a plain argument after a named one")
            positional.append(argument.value)
        elif argument.name.text in named:
            problems.add("OG-S-071", argument.name.at, f"@{node.name.text}: '{argument.name.text}' is given twice")
        else:
            named[argument.name.text] = (argument.name, argument.value)
    return Given(tuple(positional), tuple(named.values()))


def plain(value: Word | Literal | Range) -> Any:
    """The JSON value that is kept."""
    if isinstance(value, Word):
        return value.text
    return value.value if isinstance(value, Literal) else str(value)


def keep(node: AnnotationNode, given: Given) -> Annotation:
    return Annotation(
        node.name.text,
        tuple(plain(one) for one in given.positional),
        tuple((name.text, plain(value)) for name, value in given.named),
    )


def once(nodes: Iterable[AnnotationNode], problems: Problems) -> list[AnnotationNode]:
    """Annotations of one thing, without repetitions of those that mean something; metadata may come in numbers."""
    seen: dict[str, AnnotationNode] = {}
    result = []
    for node in nodes:
        name = node.name.text
        if name in seen and name in _ONCE:
            problems.add("OG-S-070", node.at, f"@{name} is given twice", "Keep one of them")
            continue
        seen[name] = node
        result.append(node)
    return result


# --- annotations of anything ---------------------------------------------------------------------------------------


def read_hint(node: AnnotationNode, given: Given, own: Word, problems: Problems) -> Hint | None:
    """`@rename_from("Old")`; a bare name is as good."""
    value = given.positional[0] if len(given.positional) == 1 and not given.named else None
    old = value.text if isinstance(value, Word) else given.one_text()
    if value is None or not old:
        problems.add("OG-S-071", node.at, "@rename_from takes the old name", 'Write @rename_from("Old")')
        return None
    if old == own.text:
        problems.add("OG-S-075", value.at, f"'{old}' is renamed from itself", "Name the old one, or remove the hint")
        return None
    return Hint(old, value.at)


def check_text(node: AnnotationNode, given: Given, problems: Problems) -> None:
    """`@description` and `@instruction` take one text."""
    if given.one_text() is None:
        name = node.name.text
        problems.add("OG-S-071", node.at, f"@{name} takes one text", f'Write @{name}("…")')


def misplaced(node: AnnotationNode, where: str, advice: str | None, problems: Problems) -> None:
    problems.add("OG-S-072", node.at, f"@{node.name.text} has no meaning on {where}", advice)


# --- rules ---------------------------------------------------------------------------------------------------------


def read_rule(node: AnnotationNode, owner: Word | None, problems: Problems) -> RuleDraft | None:
    """A rule of a type, or with `owner` a mark on that property."""
    given = take_apart(node, problems)
    rule = _rule_of(node, given, owner)
    if rule is None:
        problems.add("OG-S-064", node.at, f"@{node.name.text} has the wrong arguments", _HOW[node.name.text])
    return rule


def _rule_of(node: AnnotationNode, given: Given, owner: Word | None) -> RuleDraft | None:
    match node.name.text:
        case "key" | "unique" as name:
            members = _members(node, given, owner)
            draft = KeyDraft if name == "key" else UniqueDraft
            return draft(members, node.at) if members else None
        case "index":
            return _index(node, given, owner)
        case "range" | "check":
            return _pair(node, given, owner)
    raise AssertionError(node.name.text)


def _members(node: AnnotationNode, given: Given, owner: Word | None) -> tuple[Word, ...]:
    if given.named:
        return ()
    if owner is not None:
        return () if node.called else (owner,)
    words = tuple(one for one in given.positional if isinstance(one, Word))
    return words if len(words) == len(given.positional) else ()


def _index(node: AnnotationNode, given: Given, owner: Word | None) -> IndexDraft | None:
    positional = list(given.positional)
    member = owner if owner is not None else positional.pop(0) if positional else None
    if positional or not isinstance(member, Word) or (node.called and not node.arguments):
        return None
    metric: Literal | None = None
    for name, value in given.named:
        if name.text != "metric" or not isinstance(value, Literal):
            return None
        metric = value
    return IndexDraft(member, metric, node.at)


def _pair(node: AnnotationNode, given: Given, owner: Word | None) -> RangeDraft | CheckDraft | None:
    values = given.positional if owner is None else (owner, *given.positional)
    if given.named or len(values) != 2:
        return None
    match node.name.text, values:
        case "range", (Word() as member, Range(star=False) as limits):
            return RangeDraft(member, limits, node.at)
        case "check", (Word() as member, Literal(value=str()) as pattern):
            return CheckDraft(member, pattern, node.at)
    return None


def read_cardinality(node: AnnotationNode, given: Given, problems: Problems) -> Cardinality:
    """`@card(min..max)`; either end may be open."""
    limits = given.positional[0] if len(given.positional) == 1 and not given.named else None
    if not isinstance(limits, Range):
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
