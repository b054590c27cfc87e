"""Declarations to drafts: names, bodies, interfaces injected, ends resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.schema import annotations as notes
from omnigraph.schema.drafts import RuleDraft, TypeDraft
from omnigraph.schema.problems import Problems
from omnigraph.schema.properties import check_type_name, read_property
from omnigraph.schema.syntax import RULES, AnnotationNode, DeclarationKind, SchemaTree, Word


@dataclass(slots=True)
class Declared:
    """All drafts in the order of the text, and the names they may refer to."""

    types: list[TypeDraft] = field(default_factory=list)
    interfaces: dict[str, TypeDraft] = field(default_factory=dict)
    nodes: dict[str, TypeDraft] = field(default_factory=dict)
    edges: dict[str, TypeDraft] = field(default_factory=dict)
    broken: Mapping[DeclarationKind, frozenset[str]] = field(default_factory=dict)

    @property
    def everything(self) -> list[TypeDraft]:
        return [*self.interfaces.values(), *self.types]


def declare(tree: SchemaTree, problems: Problems) -> Declared:
    """The drafts of a schema. Interfaces are read first, since a type may stand before the interface it implements."""
    found = Declared(broken=tree.broken)
    for declaration in tree.declarations:
        check_type_name(declaration.name, problems)
        draft = TypeDraft(declaration.kind, declaration.name, declaration)
        _enter(draft, found, problems)
    for draft in found.interfaces.values():
        _read_body(draft, problems)
    for draft in found.types:
        _inject(draft, found, problems)
        _read_header(draft, problems)
        _read_body(draft, problems)
        if draft.kind == "edge":
            _check_ends(draft, found, problems)
    for draft in found.everything:
        draft.rules.extend(mark for prop in draft.properties.values() for mark in prop.marks)
        draft.rules.sort(key=lambda rule: rule.at.offset)  # of two that clash, the later one is reported
    return found


def _enter(draft: TypeDraft, found: Declared, problems: Problems) -> None:
    name = draft.name
    if draft.kind == "edge":
        other = found.edges.get(name.text.lower())
        if other is not None:
            text = f"edge {other.name.text} (line {other.name.at.line}) has the same name but for its case"
            same = f"edge {name.text} is declared in line {other.name.at.line} already"
            advice = "Queries find edges whatever the case; rename one of them"
            problems.add("OG-S-015", name.at, same if other.name.text == name.text else text, advice)
            return
        found.edges[name.text.lower()] = draft
    else:
        other = found.nodes.get(name.text) or found.interfaces.get(name.text)
        if other is not None:
            text = f"{other.kind} {name.text} is declared in line {other.name.at.line} already"
            problems.add("OG-S-014", name.at, text, "Node types and interfaces share one set of names; rename one")
            return
        (found.interfaces if draft.kind == "interface" else found.nodes)[name.text] = draft
    if draft.kind != "interface":
        found.types.append(draft)


# --- interfaces and ends -------------------------------------------------------------------------------------------


def _inject(draft: TypeDraft, found: Declared, problems: Problems) -> None:
    seen: set[str] = set()
    for word in draft.declaration.implements:
        interface = found.interfaces.get(word.text)
        if interface is None:
            draft.complete = False
            if word.text not in found.broken["interface"]:
                _unknown_interface(word, found, problems)
        elif word.text in seen:
            problems.add("OG-S-031", word.at, f"{draft.title} implements {word.text} twice", "Remove one of them")
        else:
            seen.add(word.text)
            _inject_one(draft, word, interface, problems)
    draft.injected = frozenset(draft.properties)


def _inject_one(draft: TypeDraft, word: Word, interface: TypeDraft, problems: Problems) -> None:
    for name, prop in interface.properties.items():
        present = draft.properties.setdefault(name, prop)
        if present is not prop and prop.type and present.type and not present.agrees_with(prop):
            text = f"property '{name}' of interface {word.text} differs from that of another interface"
            problems.add("OG-S-032", word.at, text, "Let both declare it exactly alike")


def _unknown_interface(word: Word, found: Declared, problems: Problems) -> None:
    if word.text in found.nodes:
        problems.add("OG-S-030", word.at, f"{word.text} is a node type, not an interface", "Declare an interface")
        return
    known = ", ".join(found.interfaces)
    advice = f"Interfaces are {known}" if known else f"Declare it: interface {word.text} {{ … }}"
    problems.add("OG-S-030", word.at, f"unknown interface '{word.text}'", advice)


def _check_ends(draft: TypeDraft, found: Declared, problems: Problems) -> None:
    for word in (draft.declaration.source, draft.declaration.target):
        assert word is not None
        if word.text in found.nodes or word.text in found.broken["node"]:
            continue
        if word.text in found.interfaces or word.text in found.broken["interface"]:
            advice = "Declare one edge type per node type"
            problems.add("OG-S-040", word.at, f"{word.text} is an interface; edges join node types", advice)
        else:
            known = ", ".join(found.nodes)
            advice = f"Node types are {known}" if known else f"Declare it: node {word.text} {{ … }}"
            problems.add("OG-S-040", word.at, f"unknown node type '{word.text}'", advice)


# --- headers and bodies --------------------------------------------------------------------------------------------


def _read_header(draft: TypeDraft, problems: Problems) -> None:
    nodes = draft.declaration.annotations
    draft.rules.extend(_rules_among(draft, nodes, problems))
    kept = []
    for node in notes.once((one for one in nodes if one.name.text not in RULES), problems):
        given = notes.take_apart(node, problems)
        match node.name.text:
            case "card" if draft.kind == "edge":
                draft.cardinality = notes.read_cardinality(node, given, problems)
                continue
            case "card":
                notes.refuse_cardinality(node, f"on a {draft.kind}", problems)
                continue
            case "default" | "embed":
                notes.misplaced(node, draft.title, "Write it on a property", problems)
                continue
            case "description" | "instruction":
                notes.check_text(node, given, problems)
            case "rename_from":
                draft.hint = notes.read_hint(node, given, draft.name, problems)
        kept.append(notes.keep(node, given))
    draft.annotations = tuple(kept)


def _read_body(draft: TypeDraft, problems: Problems) -> None:
    declaration = draft.declaration
    draft.rules.extend(_rules_among(draft, declaration.rules, problems))
    for node in declaration.rules:
        if node.name.text == "card":
            notes.refuse_cardinality(node, "inside a body", problems)
        elif node.name.text not in RULES:
            advice = "Write it behind a property, or before the '{' for the type"
            problems.add("OG-S-072", node.at, f"@{node.name.text} belongs to nothing", advice)
    own: dict[str, Word] = {}
    for written in declaration.properties:
        prop = read_property(written, problems)
        lifted = [one for one in written.annotations if one.names_properties]
        draft.rules.extend(_rules_among(draft, lifted, problems))
        name = written.name.text
        if name in own:
            text = f"property '{name}' is declared in line {own[name].at.line} already"
            problems.add("OG-S-016", written.name.at, text, "Remove or rename one of them")
            continue
        own[name] = written.name
        inherited = draft.properties.get(name)
        if inherited and inherited.type and prop.type and not prop.agrees_with(inherited):
            text = f"property '{name}' differs from that of the interface (line {inherited.name.at.line})"
            problems.add("OG-S-032", written.name.at, text, "Remove it here, or declare it exactly alike")
        draft.properties[name] = prop
    draft.injected -= own.keys()


def _rules_among(
    draft: TypeDraft, nodes: tuple[AnnotationNode, ...] | list[AnnotationNode], problems: Problems
) -> list[RuleDraft]:
    """The rules of the type among some annotations; marks on single properties are read with the property."""
    rules = []
    for node in nodes:
        if node.name.text not in RULES:
            continue
        if draft.kind == "interface":
            advice = f"Write @{node.name.text} on a property, or in the types that implement it"
            problems.add("OG-S-033", node.at, "an interface holds properties only", advice)
        elif rule := notes.read_rule(node, None, problems):
            rules.append(rule)
    return rules
