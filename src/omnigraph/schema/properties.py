"""One property: its name, its type and its annotations."""

from __future__ import annotations

import difflib
import re

from omnigraph.schema import annotations as notes
from omnigraph.schema.catalog import Annotation, PropType, Scalar
from omnigraph.schema.drafts import RenameHint, PropertyDraft, ConstraintDraft
from omnigraph.schema.problems import Problems
from omnigraph.schema.syntax import CONSTRAINT_NAMES, AnnotationNode, PropertyNode, RangeNode, SchemaSpan, TypeNode, WrittenName

MAX_NAME_CHARS = 128
MAX_VECTOR_SIZE = 65_536
RESERVED = frozenset({"id", "src", "dst"})
RESERVED_PREFIX = "_row"
_SCALARS = {one.value: one for one in Scalar}
_TYPE_NAME = re.compile(r"[A-Z]")
_PROPERTY_NAME = re.compile(r"[a-z_]")
#: What users of other systems write, and what it is called here.
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


def check_type_name(name: WrittenName, problems: Problems) -> None:
    if not _TYPE_NAME.match(name.text):
        advice = "Names of node, edge and interface types begin with a capital letter"
        problems.add("OG-S-010", name.at, f"'{name.text}' is not the name of a type", advice)
    check_length(name, problems)


def check_length(name: WrittenName, problems: Problems) -> None:
    if len(name.text) > MAX_NAME_CHARS:
        text = f"the name has {len(name.text)} characters; the limit is {MAX_NAME_CHARS}"
        problems.add("OG-S-012", name.at, text, "Shorten it")


def read_property(node: PropertyNode, problems: Problems) -> PropertyDraft:
    """The draft of a property, without those of its annotations that are rules of the type."""
    _check_name(node.name, problems)
    annotations: list[Annotation] = []
    marks: list[ConstraintDraft] = []
    hint: RenameHint | None = None
    places: dict[str, SchemaSpan] = {}
    for annotation in notes.drop_repetitions((annotation for annotation in node.annotations if not annotation.is_type_constraint), problems):
        places[annotation.name.text] = annotation.at
        if annotation.name.text in CONSTRAINT_NAMES:
            mark = notes.read_constraint(annotation, node.name, problems)
            marks.extend([mark] if mark else [])
            continue
        given = notes.read_arguments(annotation, problems)
        if _belongs(annotation, given, node.type, problems):
            annotations.append(notes.to_annotation(annotation, given))
            if annotation.name.text == "rename_from":
                hint = notes.read_hint(annotation, given, node.name, problems)
    return PropertyDraft(
        node.name,
        read_type(node.type, problems),
        node.type.is_optional,
        tuple(annotations),
        tuple(marks),
        hint,
        places.get("default"),
        places.get("embed"),
    )


def _belongs(node: AnnotationNode, args: notes.AnnotationArgs, kind: TypeNode, problems: Problems) -> bool:
    """Check the form of a known annotation; False if it says nothing that could be kept."""
    match node.name.text:
        case "card":
            notes.refuse_cardinality(node, "on a property", problems)
            return False
        case "instruction":
            notes.refuse_misplaced(node, "a property", "Write it on a node or edge type", problems)
            return False
        case "description":
            notes.check_text(node, args, problems)
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


def _is_embed(args: notes.AnnotationArgs) -> bool:
    if len(args.positional) != 1 or not isinstance(notes.to_json_value(args.positional[0]), str):
        return False
    return all(name.text == "model" and isinstance(notes.to_json_value(value), str) for name, value in args.named)


def _check_name(name: WrittenName, problems: Problems) -> None:
    check_length(name, problems)
    if not _PROPERTY_NAME.match(name.text):
        advice = "Names of properties begin with a small letter or an underscore"
        problems.add("OG-S-011", name.at, f"'{name.text}' is not the name of a property", advice)
    elif name.text in RESERVED or name.text.startswith(RESERVED_PREFIX):
        advice = "Reserved are id, src, dst and everything that begins with _row; choose another name"
        problems.add("OG-S-013", name.at, f"'{name.text}' is a reserved name", advice)


# --- types -----------------------------------------------------------------------------------------------------------


def read_type(node: TypeNode, problems: Problems) -> PropType | None:
    """The type, or None if it cannot be read."""
    match node.form:
        case "enum":
            return _enum(node, problems)
        case "vector":
            return _vector(node, problems)
    scalar = _SCALARS.get(node.name.text)
    if scalar is None:
        _unknown_type(node, problems)
        return None
    if node.form == "list" and scalar is Scalar.BLOB:
        advice = "Store each blob in a node of its own"
        problems.add("OG-S-021", node.name.at, "a list of Blob is not possible", advice)
        return None
    return PropType(scalar, is_list=node.form == "list")


def _unknown_type(node: TypeNode, problems: Problems) -> None:
    text = node.name.text
    if node.form == "list" and text in ("enum", "Vector"):
        problems.add("OG-S-021", node.name.at, f"a list of {text} is not possible", "Lists hold scalars")
        return
    own_name = _FOREIGN.get(text.lower()) or {name.lower(): name for name in _SCALARS}.get(text.lower())
    close = [own_name] if own_name else difflib.get_close_matches(text, [*_SCALARS, "Vector"], 1)
    everything = f"Types are {', '.join(_SCALARS)}, Vector(n), enum(…) and [T]"
    advice = f"Did you mean {close[0].replace('Vector', 'Vector(n)')}?" if close else everything
    problems.add("OG-S-020", node.name.at, f"unknown type '{text}'", advice)


def _enum(node: TypeNode, problems: Problems) -> PropType:
    values: dict[str, WrittenName] = {}
    for value in node.values:
        check_length(value, problems)
        if value.text in values:
            problems.add("OG-S-022", value.at, f"enum value '{value.text}' is given twice", "Remove one of them")
        values.setdefault(value.text, value)
    return PropType(Scalar.STRING, enum_values=tuple(values))


def _vector(node: TypeNode, problems: Problems) -> PropType | None:
    assert node.size is not None
    size = node.size.value
    if not isinstance(size, int) or not 1 <= size <= MAX_VECTOR_SIZE:
        advice = f"Use a whole number from 1 to {MAX_VECTOR_SIZE}"
        problems.add("OG-S-023", node.size.at, f"{size} is not the size of a vector", advice)
        return None
    return PropType(Scalar.F32, vector_size=size)
