"""Turns declarations into drafts: checks names, reads bodies, injects interfaces, resolves the ends of edges."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omnigraph.schema.annotations import (
    AnnotationArgs,
    check_text,
    drop_repetitions,
    read_arguments,
    read_cardinality,
    read_constraint,
    read_hint,
    refuse_cardinality,
    refuse_misplaced,
    to_annotation,
    to_json_value,
)
from omnigraph.schema.catalog import Annotation, PropType, Scalar
from omnigraph.schema.drafts import ConstraintDraft, PropertyDraft, RenameHint, TypeDraft
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import (
    CONSTRAINT_NAMES,
    AnnotationNode,
    DeclarationKind,
    PropertyNode,
    RangeNode,
    SchemaSpan,
    SchemaTree,
    TypeNode,
    WrittenName,
)

MAX_NAME_CHARS = 128
MAX_VECTOR_SIZE = 65_536
RESERVED = frozenset({"id", "src", "dst"})
RESERVED_PREFIX = "_row"
_SCALARS = {scalar.value: scalar for scalar in Scalar}
_TYPE_NAME = re.compile(r"[A-Z]")
_PROPERTY_NAME = re.compile(r"[a-z_]")
#: Type names of other systems, and the name of the same type here.
_FOREIGN = {
    "str": "String",
    "text": "String",
    "varchar": "String",
    "int": "I64",
    "integer": "I64",
    "long": "I64",
    "bigint": "I64",
    "uint": "U64",
    "float": "F32",
    "double": "F64",
    "number": "F64",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
}


@dataclass(slots=True)
class DeclaredTypes:
    """The drafts of a schema in the order of the text, also by the names that other declarations use."""

    types: list[TypeDraft] = field(default_factory=list)
    interfaces: dict[str, TypeDraft] = field(default_factory=dict)
    nodes: dict[str, TypeDraft] = field(default_factory=dict)
    edges: dict[str, TypeDraft] = field(default_factory=dict)
    unparsed_names: Mapping[DeclarationKind, frozenset[str]] = field(default_factory=dict)

    @property
    def all_drafts(self) -> list[TypeDraft]:
        return [*self.interfaces.values(), *self.types]


def declare(tree: SchemaTree, problems: Problems) -> DeclaredTypes:
    """Read the drafts of a schema. Interfaces come first, since a type may precede the interface that it implements."""
    declared = DeclaredTypes(unparsed_names=tree.unparsed_names)
    for declaration in tree.declarations:
        _check_type_name(declaration.name, problems)
        draft = TypeDraft(declaration.kind, declaration.name, declaration)
        _register(draft, declared, problems)
    for draft in declared.interfaces.values():
        _read_body(draft, problems)
    for draft in declared.types:
        _inject_interfaces(draft, declared, problems)
        _read_header(draft, problems)
        _read_body(draft, problems)
        if draft.kind == "edge":
            _check_ends(draft, declared, problems)
    for draft in declared.all_drafts:
        draft.constraints.extend(constraint for prop in draft.properties.values() for constraint in prop.constraints)
        # If two constraints clash, the later one in the text is reported.
        draft.constraints.sort(key=lambda constraint: constraint.at.offset)
    return declared


def _register(draft: TypeDraft, declared: DeclaredTypes, problems: Problems) -> None:
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


def _inject_interfaces(draft: TypeDraft, declared: DeclaredTypes, problems: Problems) -> None:
    implemented: set[str] = set()
    for word in draft.declaration.implements:
        interface = declared.interfaces.get(word.text)
        if interface is None:
            draft.has_all_interfaces = False
            if word.text not in declared.unparsed_names["interface"]:
                _report_unknown_interface(word, declared, problems)
        elif word.text in implemented:
            problems.add("OG-S-031", word.at, f"{draft.title} implements {word.text} twice", "Remove one of them")
        else:
            implemented.add(word.text)
            _inject_interface(draft, word, interface, problems)
    draft.interface_properties = frozenset(draft.properties)


def _inject_interface(draft: TypeDraft, word: WrittenName, interface: TypeDraft, problems: Problems) -> None:
    for name, prop in interface.properties.items():
        present = draft.properties.setdefault(name, prop)
        if present is not prop and prop.type and present.type and not present.agrees_with(prop):
            text = f"property '{name}' of interface {word.text} differs from that of another interface"
            problems.add("OG-S-032", word.at, text, "Let both declare it exactly alike")


def _report_unknown_interface(word: WrittenName, declared: DeclaredTypes, problems: Problems) -> None:
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
    draft.constraints.extend(_read_type_constraints(draft, nodes, problems))
    annotations = []
    for node in drop_repetitions((node for node in nodes if node.name.text not in CONSTRAINT_NAMES), problems):
        args = read_arguments(node, problems)
        match node.name.text:
            case "card" if draft.kind == "edge":
                draft.cardinality = read_cardinality(node, args, problems)
                continue
            case "card":
                refuse_cardinality(node, f"on a {draft.kind}", problems)
                continue
            case "default" | "embed":
                refuse_misplaced(node, draft.title, "Write it on a property", problems)
                continue
            case "description" | "instruction":
                check_text(node, args, problems)
            case "rename_from":
                draft.rename_hint = read_hint(node, args, draft.name, problems)
        annotations.append(to_annotation(node, args))
    draft.annotations = tuple(annotations)


def _read_body(draft: TypeDraft, problems: Problems) -> None:
    declaration = draft.declaration
    draft.constraints.extend(_read_type_constraints(draft, declaration.constraints, problems))
    for node in declaration.constraints:
        if node.name.text == "card":
            refuse_cardinality(node, "inside a body", problems)
        elif node.name.text not in CONSTRAINT_NAMES:
            advice = "Write it behind a property, or before the '{' for the type"
            problems.add("OG-S-072", node.at, f"@{node.name.text} belongs to nothing", advice)
    first_names: dict[str, WrittenName] = {}
    for written in declaration.properties:
        prop = _read_property(written, problems)
        type_constraints = [annotation for annotation in written.annotations if annotation.is_type_constraint]
        draft.constraints.extend(_read_type_constraints(draft, type_constraints, problems))
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


def _read_type_constraints(
    draft: TypeDraft, nodes: Iterable[AnnotationNode], problems: Problems
) -> list[ConstraintDraft]:
    """Read the constraints of the type among `nodes`; those on a single property are read with the property."""
    constraints = []
    for node in nodes:
        if node.name.text not in CONSTRAINT_NAMES:
            continue
        if draft.kind == "interface":
            advice = f"Write @{node.name.text} on a property, or in the types that implement it"
            problems.add("OG-S-033", node.at, "an interface holds properties only", advice)
        elif constraint := read_constraint(node, None, problems):
            constraints.append(constraint)
    return constraints


# --- properties ------------------------------------------------------------------------------------------------------


def _check_type_name(name: WrittenName, problems: Problems) -> None:
    if not _TYPE_NAME.match(name.text):
        advice = "Names of node, edge and interface types begin with a capital letter"
        problems.add("OG-S-010", name.at, f"'{name.text}' is not the name of a type", advice)
    _check_length(name, problems)


def _check_length(name: WrittenName, problems: Problems) -> None:
    if len(name.text) > MAX_NAME_CHARS:
        text = f"the name has {len(name.text)} characters; the limit is {MAX_NAME_CHARS}"
        problems.add("OG-S-012", name.at, text, "Shorten it")


def _read_property(node: PropertyNode, problems: Problems) -> PropertyDraft:
    """Read the draft of a property, without the annotations that are constraints of the type."""
    _check_property_name(node.name, problems)
    annotations: list[Annotation] = []
    constraints: list[ConstraintDraft] = []
    rename_hint: RenameHint | None = None
    spans: dict[str, SchemaSpan] = {}
    for annotation in drop_repetitions((item for item in node.annotations if not item.is_type_constraint), problems):
        spans[annotation.name.text] = annotation.at
        if annotation.name.text in CONSTRAINT_NAMES:
            constraint = read_constraint(annotation, node.name, problems)
            constraints.extend([constraint] if constraint else [])
            continue
        args = read_arguments(annotation, problems)
        if _fits_property(annotation, args, node.type, problems):
            annotations.append(to_annotation(annotation, args))
            if annotation.name.text == "rename_from":
                rename_hint = read_hint(annotation, args, node.name, problems)
    return PropertyDraft(
        node.name,
        _read_type(node.type, problems),
        node.type.is_optional,
        tuple(annotations),
        tuple(constraints),
        rename_hint,
        spans.get("default"),
        spans.get("embed"),
    )


def _fits_property(node: AnnotationNode, args: AnnotationArgs, kind: TypeNode, problems: Problems) -> bool:
    """Check a known annotation on a property; False if it is reported and not to be stored."""
    match node.name.text:
        case "card":
            refuse_cardinality(node, "on a property", problems)
            return False
        case "instruction":
            refuse_misplaced(node, "a property", "Write it on a node or edge type", problems)
            return False
        case "description":
            check_text(node, args, problems)
        case "default" if len(args.positional) != 1 or args.named or isinstance(args.positional[0], RangeNode):
            problems.add("OG-S-071", node.at, "@default takes one value", "Write @default(0)")
            return False
        case "default" if isinstance(args.positional[0], WrittenName) and kind.form != "enum":
            text = args.positional[0].text
            problems.add("OG-S-074", args.positional[0].at, f"{text} is not a value", f'Write a text as "{text}"')
            return False
        case "embed" if not _is_embed(args):
            advice = 'Write @embed("source") or @embed("source", model="name")'
            problems.add("OG-S-071", node.at, "@embed takes the name of a String property", advice)
            return False
    return True


def _is_embed(args: AnnotationArgs) -> bool:
    if len(args.positional) != 1 or not isinstance(to_json_value(args.positional[0]), str):
        return False
    return all(name.text == "model" and isinstance(to_json_value(value), str) for name, value in args.named)


def _check_property_name(name: WrittenName, problems: Problems) -> None:
    _check_length(name, problems)
    if not _PROPERTY_NAME.match(name.text):
        advice = "Names of properties begin with a small letter or an underscore"
        problems.add("OG-S-011", name.at, f"'{name.text}' is not the name of a property", advice)
    elif name.text in RESERVED or name.text.startswith(RESERVED_PREFIX):
        advice = "Reserved are id, src, dst and everything that begins with _row; choose another name"
        problems.add("OG-S-013", name.at, f"'{name.text}' is a reserved name", advice)


# --- types of properties ---------------------------------------------------------------------------------------------


def _read_type(node: TypeNode, problems: Problems) -> PropType | None:
    """Read the type of a property; None if it is unreadable, and reported."""
    match node.form:
        case "enum":
            return _read_enum(node, problems)
        case "vector":
            return _read_vector(node, problems)
    scalar = _SCALARS.get(node.name.text)
    if scalar is None:
        _report_unknown_type(node, problems)
        return None
    if node.form == "list" and scalar is Scalar.BLOB:
        advice = "Store each blob in a node of its own"
        problems.add("OG-S-021", node.name.at, "a list of Blob is not possible", advice)
        return None
    return PropType(scalar, is_list=node.form == "list")


def _report_unknown_type(node: TypeNode, problems: Problems) -> None:
    text = node.name.text
    if node.form == "list" and text in ("enum", "Vector"):
        problems.add("OG-S-021", node.name.at, f"a list of {text} is not possible", "Lists hold scalars")
        return
    own_name = _FOREIGN.get(text.lower()) or {name.lower(): name for name in _SCALARS}.get(text.lower())
    close = [own_name] if own_name else difflib.get_close_matches(text, [*_SCALARS, "Vector"], 1)
    everything = f"Types are {', '.join(_SCALARS)}, Vector(n), enum(…) and [T]"
    advice = f"Did you mean {close[0].replace('Vector', 'Vector(n)')}?" if close else everything
    problems.add("OG-S-020", node.name.at, f"unknown type '{text}'", advice)


def _read_enum(node: TypeNode, problems: Problems) -> PropType:
    values: dict[str, WrittenName] = {}
    for value in node.values:
        _check_length(value, problems)
        if value.text in values:
            problems.add("OG-S-022", value.at, f"enum value '{value.text}' is given twice", "Remove one of them")
        values.setdefault(value.text, value)
    return PropType(Scalar.STRING, enum_values=tuple(values))


def _read_vector(node: TypeNode, problems: Problems) -> PropType | None:
    assert node.size is not None
    size = node.size.value
    if not isinstance(size, int) or not 1 <= size <= MAX_VECTOR_SIZE:
        advice = f"Use a whole number from 1 to {MAX_VECTOR_SIZE}"
        problems.add("OG-S-023", node.size.at, f"{size} is not the size of a vector", advice)
        return None
    return PropType(Scalar.F32, vector_size=size)
