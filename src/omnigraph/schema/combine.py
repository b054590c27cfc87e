"""Merges two schemas that diverged: `merge_catalogs` decides, `combine_schemas` combines the texts.

Additions of one schema (the guest) since the base are copied, as they are written, into the text of the other (the
host). The combined text is compiled with the identities of both and compared: it must differ from the host only by
what the guest changed, and from the guest only by what the host changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from omnigraph.errors import Unsupported
from omnigraph.schema.catalog import Catalog, Property, TypeDef
from omnigraph.schema.change_steps import (
    AddIndex,
    AddProperty,
    AddType,
    ChangeMetadata,
    ChangeSource,
    DropIndex,
    RenameProperty,
    RenameType,
    SchemaStep,
    Tighten,
)
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.parse import LEXICAL, parse_schema, split_declarations
from omnigraph.schema.plan_change import plan_change
from omnigraph.schema.problems import Problems, SchemaError
from omnigraph.schema.syntax import Declaration, PropertyNode

_INDENT = "    "
#: Steps that keep every row of the other branch valid.
_MERGEABLE = (AddType, AddProperty, RenameType, RenameProperty, AddIndex, DropIndex, ChangeMetadata, ChangeSource)


def is_addition(step: SchemaStep) -> bool:
    """Whether the step only adds something and changes nothing that existed before."""
    return isinstance(step, (AddType, AddProperty, AddIndex, ChangeSource)) or (
        isinstance(step, Tighten) and step.vacuous
    )


def combine_schemas(base: Catalog, host: Catalog, guest: Catalog) -> Catalog | None:
    """The schema of the host with the guest's additions; None if the two cannot be combined."""
    text = _insert_additions(host, guest)
    try:
        merged = compile_schema(text, previous=_union(host, guest), mint=lambda: "new")
    except SchemaError:
        return None
    has_only_guest_changes = _is_subset(plan_change(host, merged), plan_change(base, guest))
    has_only_host_changes = _is_subset(plan_change(guest, merged), plan_change(base, host))
    return merged if has_only_guest_changes and has_only_host_changes else None


def _is_subset(steps: Iterable[SchemaStep], allowed_steps: Iterable[SchemaStep]) -> bool:
    return {_key(step) for step in steps} <= {_key(step) for step in allowed_steps} | {ChangeSource.step}


def _key(step: SchemaStep) -> object:
    """The effect of a step by identities: names may differ between host and guest."""
    if isinstance(step, ChangeSource):
        return step.step
    parts = ("property_id", "rule", "columns", "after", "metric", "what")
    return (step.step, step.type_id, *(getattr(step, name, None) for name in parts))


def _union(host: Catalog, guest: Catalog) -> Catalog:
    """A catalog with the identities of both, where the compiler finds them by name."""
    types = [replace(host_type, properties=_all_properties(host_type, guest)) for host_type in host.types]
    types += [guest_type for guest_type in guest.types if guest_type.id not in host.by_id]
    return Catalog(tuple(types), host.source, host.interfaces)


def _all_properties(host_type: TypeDef, guest: Catalog) -> tuple[Property, ...]:
    return (*host_type.properties, *_guest_additions(host_type, guest.by_id.get(host_type.id)))


def _guest_additions(host_type: TypeDef, guest_type: TypeDef | None) -> list[Property]:
    return [prop for prop in guest_type.properties if prop.id not in host_type.by_id] if guest_type is not None else []


# --- insertion into the text of the host ---------------------------------------------------------------------------


def _insert_additions(host: Catalog, guest: Catalog) -> str:
    guest_declarations = {
        (declaration.kind, declaration.name.text): (declaration, part)
        for declaration, part in _declarations(guest.source)
    }
    insertions: list[tuple[int, str]] = []
    for declaration, part in _declarations(host.source):
        host_type = host.node(declaration.name.text) if declaration.kind == "node" else host.edge(declaration.name.text)
        guest_type = (
            guest.by_id.get(host_type.id) if host_type is not None and declaration.kind != "interface" else None
        )
        if host_type is not None and guest_type is not None:
            written = guest_declarations[guest_type.kind, guest_type.name]
            new = [
                _property_text(guest.source, *written, prop.name) for prop in _guest_additions(host_type, guest_type)
            ]
            insertions += _insert_properties(host.source, part, [text for text in new if text is not None])
    text = host.source
    for offset, addition in sorted(insertions, reverse=True):
        text = text[:offset] + addition + text[offset:]
    new_types = [
        _type_text(guest.source, *guest_declarations[type_def.kind, type_def.name], type_def, host)
        for type_def in guest.types
        if type_def.id not in host.by_id
    ]
    return "\n".join([text.rstrip("\n"), *new_types, ""]) if new_types else text


def _declarations(source: str) -> Iterator[tuple[Declaration, tuple[int, int]]]:
    """Every declaration with its start and end offset, without the comments that follow it."""
    problems = Problems(source, "<schema>")
    declarations = parse_schema(source, problems).declarations
    texts = split_declarations(source, problems)
    return zip(
        declarations, [(text.start, _last_token_end(source, text.start, text.end)) for text in texts], strict=True
    )


def _last_token_end(source: str, start: int, end: int) -> int:
    """The end offset of the last word or sign before `end`."""
    matches = (match for match in LEXICAL.finditer(source, start, end) if match.lastgroup != "comment")
    return max((match.end() for match in matches), default=start)


def _property_text(source: str, declaration: Declaration, part: tuple[int, int], name: str) -> str | None:
    """The property as written; None if the type inherits it from an interface."""
    for index, prop in enumerate(declaration.properties):
        if prop.name.text == name:
            start, following = prop.name.at.offset, declaration.properties[index + 1 :]
            limit = following[0].name.at.offset if following else part[1] - 1
            return source[start : _last_token_end(source, start, min([limit, *_constraint_offsets(prop)]))]
    return None


def _constraint_offsets(prop: PropertyNode) -> list[int]:
    """Offsets of constraints on other properties that are written behind this property."""
    return [
        annotation.at.offset
        for annotation in prop.annotations
        if annotation.is_type_constraint and getattr(annotation.arguments[0].value, "text", None) != prop.name.text
    ]


def _insert_properties(source: str, part: tuple[int, int], new: list[str]) -> list[tuple[int, str]]:
    if not new:
        return []
    start, end = part
    if source[end - 1] != "}":
        return [(end, f" {{ {'  '.join(new)} }}")]
    closing = end - 1
    before = source[start:closing]
    if "\n" not in before:
        return [(closing, f"{'' if before.endswith(' ') else ' '}{'  '.join(new)} ")]
    # A line comment ends its line, so the first addition starts a new line.
    line_break = "" if before.rstrip(" \t").endswith("\n") else "\n"
    return [(closing, line_break + "".join(f"{_INDENT}{text}\n" for text in new))]


def _type_text(source: str, declaration: Declaration, part: tuple[int, int], compiled: TypeDef, host: Catalog) -> str:
    """The declaration as written, with the ends of an edge renamed to the host's names."""
    text = source[part[0] : part[1]]
    ends = [(declaration.source, compiled.source), (declaration.target, compiled.target)]
    for word, identity in sorted(((w, i) for w, i in ends if w and i), key=lambda pair: -pair[0].at.offset):
        if identity in host.by_id:
            at = word.at.offset - part[0]
            text = text[:at] + host.by_id[identity].name + text[at + len(word.text) :]
    return text


# --- a merge of two branches ---------------------------------------------------------------------------------------


def merge_catalogs(bases: Sequence[Catalog], source: Catalog, target: Catalog) -> Catalog:
    """The schema of the merged graph. Raises Unsupported, naming what changed on either side.

    Either branch may have changed the schema in ways that keep every row of the other branch valid. If both did, one
    of them may only have added types, properties or indexes: those are added to the schema of the other.
    """
    if source.hash == target.hash:
        return target
    # Of several bases, one with the schema of a branch counts: that branch has changed nothing since.
    base = next((catalog for catalog in bases if catalog.hash in (source.hash, target.hash)), bases[0])
    source_steps, target_steps = list(plan_change(base, source)), list(plan_change(base, target))
    changes = f"the source by {_describe_steps(source_steps)}, the target by {_describe_steps(target_steps)}"
    if not all(_is_mergeable(step) for step in (*source_steps, *target_steps)):
        raise _schema_merge_error(
            f"a merge carries over added types, added nullable properties and renames only: {changes}"
        )
    if base.hash in (source.hash, target.hash):
        return source if base.hash == target.hash else target
    for host, guest, steps in ((target, source, source_steps), (source, target, target_steps)):
        merged = combine_schemas(base, host, guest) if all(is_addition(step) for step in steps) else None
        if merged is not None:
            return merged
    raise _schema_merge_error(
        f"both branches changed the schema since they parted, and the two do not fit together: {changes}"
    )


def _is_mergeable(step: SchemaStep) -> bool:
    return isinstance(step, _MERGEABLE) or (isinstance(step, Tighten) and step.vacuous)


def _schema_merge_error(message: str) -> Unsupported:
    return Unsupported(
        message, code="schema_merge", advice="Bring both branches to one schema with `schema apply`, then merge"
    )


def _describe_steps(steps: Sequence[SchemaStep]) -> str:
    return ", ".join(f"{step.step} on {step.table}" if step.table else step.step for step in steps) or "nothing"
