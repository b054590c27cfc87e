"""Declarations to drafts: names, bodies, interfaces injected, ends resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.schema import annotations as notes
from omnigraph.schema.drafts import ConstraintDraft, TypeDraft
from omnigraph.schema.problems import Problems
from omnigraph.schema.properties import check_type_name, read_property
from omnigraph.schema.syntax import CONSTRAINT_NAMES, AnnotationNode, DeclarationKind, SchemaTree, WrittenName


@dataclass(slots=True)
class DeclaredTypes:
    """All drafts in the order of the text, and the names they may refer to."""

    types: list[TypeDraft] = field(default_factory=list)
    interfaces: dict[str, TypeDraft] = field(default_factory=dict)
    nodes: dict[str, TypeDraft] = field(default_factory=dict)
    edges: dict[str, TypeDraft] = field(default_factory=dict)
    unparsed_names: Mapping[DeclarationKind, frozenset[str]] = field(default_factory=dict)

    @property
    def all_drafts(self) -> list[TypeDraft]:
        return [*self.interfaces.values(), *self.types]


def declare(tree: SchemaTree, problems: Problems) -> DeclaredTypes:
    """The drafts of a schema. Interfaces are read first, since a type may stand before the interface it implements."""
    declared = DeclaredTypes(unparsed_names=tree.unparsed_names)
    for declaration in tree.declarations:
        check_type_name(declaration.name, problems)
        draft = TypeDraft(declaration.kind, declaration.name, declaration)
        _enter(draft, declared, problems)
    for draft in declared.interfaces.values():
        _read_body(draft, problems)
    for draft in declared.types:
        _inject(draft, declared, problems)
        _read_header(draft, problems)
        _read_body(draft, problems)
        if draft.kind == "edge":
            _check_ends(draft, declared, problems)
    for draft in declared.all_drafts:
        draft.constraints.extend(mark for prop in draft.properties.values() for mark in prop.constraints)
        draft.constraints.sort(key=lambda rule: rule.at.offset)  # of two that clash, the later one is reported
    return declared


def _enter(draft: TypeDraft, declared: DeclaredTypes, problems: Problems) -> None:
    name = draft.name
    if draft.kind == "edge":
        namesake = declared.edges.get(name.text.lower())
        if namesake is not None:
            text = f"edge {namesake.name.text} (line {namesake.name.at.line}) has the same name but for its case"
            same = f"edge {name.text} is declared in line {namesake.name.at.line} already"
            advice = "Queries find edges whatever the case; rename one of them"
            problems.add("OG-S-015", name.at, same if namesake.name.text == name.text else text, advice)
            return
        declared.edges[name.text.lower()] = draft
    else:
        namesake = declared.nodes.get(name.text) or declared.interfaces.get(name.text)
        if namesake is not None:
            text = f"{namesake.kind} {name.text} is declared in line {namesake.name.at.line} already"
            problems.add("OG-S-014", name.at, text, "Node types and interfaces share one set of names; rename one")
            return
        (declared.interfaces if draft.kind == "interface" else declared.nodes)[name.text] = draft
    if draft.kind != "interface":
        declared.types.append(draft)


# --- interfaces and ends -------------------------------------------------------------------------------------------


def _inject(draft: TypeDraft, declared: DeclaredTypes, problems: Problems) -> None:
    implemented: set[str] = set()
    for word in draft.declaration.implements:
        interface = declared.interfaces.get(word.text)
        if interface is None:
            draft.has_all_interfaces = False
            if word.text not in declared.unparsed_names["interface"]:
                _unknown_interface(word, declared, problems)
        elif word.text in implemented:
            problems.add("OG-S-031", word.at, f"{draft.title} implements {word.text} twice", "Remove one of them")
        else:
            implemented.add(word.text)
            _inject_one(draft, word, interface, problems)
    draft.interface_properties = frozenset(draft.properties)


def _inject_one(draft: TypeDraft, word: WrittenName, interface: TypeDraft, problems: Problems) -> None:
    for name, prop in interface.properties.items():
        present = draft.properties.setdefault(name, prop)
        if present is not prop and prop.type and present.type and not present.agrees_with(prop):
            text = f"property '{name}' of interface {word.text} differs from that of another interface"
            problems.add("OG-S-032", word.at, text, "Let both declare it exactly alike")


def _unknown_interface(word: WrittenName, declared: DeclaredTypes, problems: Problems) -> None:
    if word.text in declared.nodes:
        problems.add("OG-S-030", word.at, f"{word.text} is a node type, not an interface", "Declare an interface")
        return
    interface_names = ", ".join(declared.interfaces)
    advice = f"Interfaces are {interface_names}" if interface_names else f"Declare it: interface {word.text} {{ … }}"
    problems.add("OG-S-030", word.at, f"unknown interface '{word.text}'", advice)


def _check_ends(draft: TypeDraft, declared: DeclaredTypes, problems: Problems) -> None:
    for word in (draft.declaration.source, draft.declaration.target):
        assert word is not None
        if word.text in declared.nodes or word.text in declared.unparsed_names["node"]:
            continue
        if word.text in declared.interfaces or word.text in declared.unparsed_names["interface"]:
            advice = "Declare one edge type per node type"
            problems.add("OG-S-040", word.at, f"{word.text} is an interface; edges join node types", advice)
        else:
            node_names = ", ".join(declared.nodes)
            advice = f"Node types are {node_names}" if node_names else f"Declare it: node {word.text} {{ … }}"
            problems.add("OG-S-040", word.at, f"unknown node type '{word.text}'", advice)


# --- headers and bodies --------------------------------------------------------------------------------------------


def _read_header(draft: TypeDraft, problems: Problems) -> None:
    nodes = draft.declaration.annotations
    draft.constraints.extend(_rules_among(draft, nodes, problems))
    annotations = []
    for node in notes.drop_repetitions((annotation for annotation in nodes if annotation.name.text not in CONSTRAINT_NAMES), problems):
        given = notes.read_arguments(node, problems)
        match node.name.text:
            case "card" if draft.kind == "edge":
                draft.cardinality = notes.read_cardinality(node, given, problems)
                continue
            case "card":
                notes.refuse_cardinality(node, f"on a {draft.kind}", problems)
                continue
            case "default" | "embed":
                notes.refuse_misplaced(node, draft.title, "Write it on a property", problems)
                continue
            case "description" | "instruction":
                notes.check_text(node, given, problems)
            case "rename_from":
                draft.rename_hint = notes.read_hint(node, given, draft.name, problems)
        annotations.append(notes.to_annotation(node, given))
    draft.annotations = tuple(annotations)


def _read_body(draft: TypeDraft, problems: Problems) -> None:
    declaration = draft.declaration
    draft.constraints.extend(_rules_among(draft, declaration.constraints, problems))
    for node in declaration.constraints:
        if node.name.text == "card":
            notes.refuse_cardinality(node, "inside a body", problems)
        elif node.name.text not in CONSTRAINT_NAMES:
            advice = "Write it behind a property, or before the '{' for the type"
            problems.add("OG-S-072", node.at, f"@{node.name.text} belongs to nothing", advice)
    first_names: dict[str, WrittenName] = {}
    for written in declaration.properties:
        prop = read_property(written, problems)
        lifted = [annotation for annotation in written.annotations if annotation.is_type_constraint]
        draft.constraints.extend(_rules_among(draft, lifted, problems))
        name = written.name.text
        if name in first_names:
            text = f"property '{name}' is declared in line {first_names[name].at.line} already"
            problems.add("OG-S-016", written.name.at, text, "Remove or rename one of them")
            continue
        first_names[name] = written.name
        inherited = draft.properties.get(name)
        if inherited and inherited.type and prop.type and not prop.agrees_with(inherited):
            text = f"property '{name}' differs from that of the interface (line {inherited.name.at.line})"
            problems.add("OG-S-032", written.name.at, text, "Remove it here, or declare it exactly alike")
        draft.properties[name] = prop
    draft.interface_properties -= first_names.keys()


def _rules_among(
    draft: TypeDraft, nodes: tuple[AnnotationNode, ...] | list[AnnotationNode], problems: Problems
) -> list[ConstraintDraft]:
    """The rules of the type among some annotations; marks on single properties are read with the property."""
    rules = []
    for node in nodes:
        if node.name.text not in CONSTRAINT_NAMES:
            continue
        if draft.kind == "interface":
            advice = f"Write @{node.name.text} on a property, or in the types that implement it"
            problems.add("OG-S-033", node.at, "an interface holds properties only", advice)
        elif rule := notes.read_constraint(node, None, problems):
            rules.append(rule)
    return rules
