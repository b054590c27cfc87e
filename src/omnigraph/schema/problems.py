"""The problems that a schema can have, by stable code, and their collection into one `SchemaError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.errors import InvalidInput
from omnigraph.schema.diagnostics import Diagnostic, Diagnostics, render
from omnigraph.schema.syntax import SchemaSpan

#: The meaning of each code. Codes are part of the public contract: never re-used, never renumbered.
CODES: Mapping[str, str] = {
    "OG-S-001": "a word or sign that cannot stand there",
    "OG-S-002": "a character that is not part of the language",
    "OG-S-003": "a text without its closing quote",
    "OG-S-004": "a comment without its end",
    "OG-S-005": "a declaration that ends too early",
    "OG-S-006": "a text or number that cannot be read: an unknown escape, a number without bound",
    "OG-S-007": "something outside of any declaration",
    "OG-S-010": "the name of a type does not begin with a capital letter",
    "OG-S-011": "the name of a property does not begin with a small letter or an underscore",
    "OG-S-012": "a name longer than 128 characters",
    "OG-S-013": "a reserved property name",
    "OG-S-014": "two node types or interfaces with one name",
    "OG-S-015": "two edge types whose names differ in case only, or not at all",
    "OG-S-016": "two properties with one name",
    "OG-S-020": "an unknown property type",
    "OG-S-021": "a list of something that cannot be in a list",
    "OG-S-022": "an enum value given twice",
    "OG-S-023": "a vector size out of bounds",
    "OG-S-030": "an unknown interface",
    "OG-S-031": "an interface implemented twice by one type",
    "OG-S-032": "a property that differs from the same property of an interface",
    "OG-S-033": "something that an interface cannot hold",
    "OG-S-040": "an edge end that is not a node type",
    "OG-S-041": "a malformed @card",
    "OG-S-042": "@card on something that is not an edge type",
    "OG-S-050": "a rule names a property that the type does not have",
    "OG-S-051": "more than one key",
    "OG-S-052": "a key on an edge type",
    "OG-S-053": "a key member that may be null",
    "OG-S-054": "a key member that is not a scalar",
    "OG-S-055": "a property named twice by one rule, or one rule given twice",
    "OG-S-056": "@unique over something that cannot be compared",
    "OG-S-057": "@index on something that cannot be indexed, or with a wrong metric",
    "OG-S-060": "@range on a property that is not a number",
    "OG-S-061": "@range with a bound that the type does not have, or with its ends swapped",
    "OG-S-062": "@check on a property that is not a String",
    "OG-S-063": "@check with an expression that is not RE2",
    "OG-S-064": "a rule with the wrong arguments",
    "OG-S-070": "an annotation given twice",
    "OG-S-071": "an annotation with the wrong arguments",
    "OG-S-072": "an annotation where it has no meaning",
    "OG-S-073": "@embed names something that is not a String property",
    "OG-S-074": "@default with a value that does not fit",
    "OG-S-075": "@rename_from names itself, or something that another one takes over",
    "OG-S-076": "@rename_from names something that the present schema does not have",
}


class SchemaError(InvalidInput, code="schema_error"):
    """A schema that does not compile. `diagnostics` holds every problem, in the order of the text."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = diagnostics[0]
        count = "one error" if len(diagnostics) == 1 else f"{len(diagnostics)} errors"
        text = "\n".join(render(diag) for diag in diagnostics)
        super().__init__(
            f"the schema has {count}\n{text}",
            code=first.code,
            file=first.file,
            line=first.line,
            column=first.column,
            diagnostics=[diag.to_json() for diag in diagnostics],
        )
        self.diagnostics = tuple(diagnostics)


class Problems:
    """Collects the problems of one text; `check` raises all of them at once."""

    def __init__(self, source: str, file: str) -> None:
        self._diagnostics = Diagnostics(source, file)

    def add(self, code: str, at: SchemaSpan, message: str, advice: str | None = None) -> None:
        assert code in CODES, code
        self._diagnostics.add(code, message, at.line, at.column, width=at.width, advice=advice)

    def check(self) -> None:
        if self._diagnostics:
            raise SchemaError(list(self._diagnostics))
