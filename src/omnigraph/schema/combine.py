"""Two schemas that grew apart, made one: what the guest added since the base goes into the text of the host.

Additions are taken over as they are written, then the whole is compiled with the identities of both and compared: it
must differ from the host by what the guest changed and from the guest by what the host changed, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from omnigraph.schema.catalog import Catalog, Property, TypeDef
from omnigraph.schema.change_steps import AddIndex, AddProperty, AddType, ChangeSource, Step, Tighten
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.parse import LEXICAL, parse_schema, pieces
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.problems import Problems, SchemaError
from omnigraph.schema.syntax import Declaration, PropertyNode

_INDENT = "    "


def is_addition(one: Step) -> bool:
    """Whether the step only adds something, and leaves all that was there before as it is."""
    return isinstance(one, (AddType, AddProperty, AddIndex, ChangeSource)) or (isinstance(one, Tighten) and one.vacuous)


def combined(base: Catalog, host: Catalog, guest: Catalog) -> Catalog | None:
    """The host with the guest's additions; None if the two do not fit together."""
    text = _host_text(host, guest)
    try:
        merged = compile_schema(text, previous=_union(host, guest), mint=lambda: "new")
    except SchemaError:
        return None
    fits = _within(plan_change(host, merged), plan_change(base, guest)) and _within(
        plan_change(guest, merged), plan_change(base, host)
    )
    return merged if fits else None


def _within(found: Iterable[Step], wanted: Iterable[Step]) -> bool:
    return {_key(one) for one in found} <= {_key(one) for one in wanted} | {ChangeSource.step}


def _key(one: Step) -> object:
    """What a step does, by identity: names may differ between the sides."""
    if isinstance(one, ChangeSource):
        return one.step
    parts = ("property_id", "rule", "columns", "after", "metric", "what")
    return (one.step, one.type_id, *(getattr(one, name, None) for name in parts))


def _union(host: Catalog, guest: Catalog) -> Catalog:
    """Every identity of both, for the compiler to find by name."""
    known = [replace(one, properties=(*one.properties, *_added(one, guest.by_id.get(one.id)))) for one in host.types]
    return Catalog((*known, *(one for one in guest.types if one.id not in host.by_id)), host.source, host.interfaces)


def _added(one: TypeDef, other: TypeDef | None) -> list[Property]:
    return [prop for prop in other.properties if prop.id not in one.by_id] if other is not None else []


# --- text ----------------------------------------------------------------------------------------------------------


def _host_text(host: Catalog, guest: Catalog) -> str:
    theirs = {(one.kind, one.name.text): (one, part) for one, part in _declarations(guest.source)}
    insertions: list[tuple[int, str]] = []
    for one, part in _declarations(host.source):
        known = host.node(one.name.text) if one.kind == "node" else host.edge(one.name.text)
        other = guest.by_id.get(known.id) if known is not None and one.kind != "interface" else None
        if known is not None and other is not None:
            written = theirs[other.kind, other.name]
            new = [_property_text(guest.source, *written, prop.name) for prop in _added(known, other)]
            insertions += _inserted(host.source, part, [text for text in new if text is not None])
    text = host.source
    for place, addition in sorted(insertions, reverse=True):
        text = text[:place] + addition + text[place:]
    new_types = [
        _type_text(guest.source, *theirs[one.kind, one.name], one, host)
        for one in guest.types
        if one.id not in host.by_id
    ]
    return "\n".join([text.rstrip("\n"), *new_types, ""]) if new_types else text


def _declarations(source: str) -> Iterator[tuple[Declaration, tuple[int, int]]]:
    """Every declaration, and where it begins and ends, comments after it left out."""
    problems = Problems(source, "<schema>")
    found = parse_schema(source, problems).declarations
    parts = [(one.start, _end(source, one.start, one.end)) for one in pieces(source, problems)]
    return zip(found, parts, strict=True)


def _end(source: str, start: int, end: int) -> int:
    """Where the last word or sign before `end` ends."""
    matches = (one for one in LEXICAL.finditer(source, start, end) if one.lastgroup != "comment")
    return max((one.end() for one in matches), default=start)


def _property_text(source: str, one: Declaration, part: tuple[int, int], name: str) -> str | None:
    """The property as written; None if the type has it from an interface."""
    for place, prop in enumerate(one.properties):
        if prop.name.text == name:
            rest = one.properties[place + 1 :]
            end = rest[0].name.at.offset if rest else part[1] - 1
            return source[prop.name.at.offset : _end(source, prop.name.at.offset, min([end, *_rules_after(prop)]))]
    return None


def _rules_after(prop: PropertyNode) -> list[int]:
    """Where rules about other properties begin that happen to stand behind this one."""
    return [
        note.at.offset
        for note in prop.annotations
        if note.names_properties and getattr(note.arguments[0].value, "text", None) != prop.name.text
    ]


def _inserted(source: str, part: tuple[int, int], new: list[str]) -> list[tuple[int, str]]:
    if not new:
        return []
    start, end = part
    if source[end - 1] != "}":
        return [(end, f" {{ {'  '.join(new)} }}")]
    closing = end - 1
    before = source[start:closing]
    if "\n" not in before:
        return [(closing, f"{'' if before.endswith(' ') else ' '}{'  '.join(new)} ")]
    # Behind a comment that ends a line nothing else may follow.
    line_break = "" if before.rstrip(" \t").endswith("\n") else "\n"
    return [(closing, line_break + "".join(f"{_INDENT}{text}\n" for text in new))]


def _type_text(source: str, one: Declaration, part: tuple[int, int], compiled: TypeDef, host: Catalog) -> str:
    """The declaration as written, its ends under the names that the host has for them."""
    text = source[part[0] : part[1]]
    ends = [(one.source, compiled.source), (one.target, compiled.target)]
    for word, identity in sorted(((w, i) for w, i in ends if w and i), key=lambda pair: -pair[0].at.offset):
        if identity in host.by_id:
            at = word.at.offset - part[0]
            text = text[:at] + host.by_id[identity].name + text[at + len(word.text) :]
    return text
