"""The steps of a schema change and the plan that orders them.

A step names what changes, by identity and by name. `rewrites_rows` says whether rows are rewritten, `validates_rows`
whether every row must be checked first. All other details are in the new catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, ClassVar

from omnigraph.errors import InvalidInput
from omnigraph.immutable import Immutable

NEEDS_DEFAULT = "OG-MF-103"
UNSUPPORTED = "OG-MF-106"
VIOLATED = "OG-MF-107"


class SchemaStep(Immutable):
    """`table` is the type as users see it, such as `node:Person`: its new name, or its last name if it is dropped."""

    step: ClassVar[str]
    type_id: str | None
    table: str | None

    @property
    def rewrites_rows(self) -> bool:
        return False

    @property
    def validates_rows(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        flags = {"rewrites_rows": self.rewrites_rows, "validates_rows": self.validates_rows}
        return {"step": self.step, **plain, **flags}


class AddType(SchemaStep):
    step: ClassVar[str] = "add_type"


class DropType(SchemaStep):
    """A soft drop: the type's rows stay readable in older commits."""

    step: ClassVar[str] = "drop_type"


class RenameType(SchemaStep):
    step: ClassVar[str] = "rename_type"
    old: str


class PropertyStep(SchemaStep):
    """`property` is the user's name for `property_id`."""

    property_id: str
    property: str


class AddProperty(PropertyStep):
    """Adds a property that may be null: older rows have no value."""

    step: ClassVar[str] = "add_property"
    type: str


class AddRequiredProperty(PropertyStep):
    """Adds a property and writes `default` (here as plain JSON) into every row."""

    step: ClassVar[str] = "add_required_property"
    type: str
    default: Any

    @property
    def rewrites_rows(self) -> bool:
        return True


class DropProperty(PropertyStep):
    """A soft drop: the values stay readable in older commits."""

    step: ClassVar[str] = "drop_property"


class RenameProperty(PropertyStep):
    step: ClassVar[str] = "rename_property"
    old: str


class ConstraintStep(SchemaStep):
    """`rule` is what changes: type, required, enum, unique, range, check or card. `columns` are column ids."""

    rule: str
    columns: tuple[str, ...]
    before: str | None
    after: str | None


class Widen(ConstraintStep):
    """Loosens a constraint: every valid row stays valid. Only a wider physical type rewrites data."""

    step: ClassVar[str] = "widen"

    @property
    def rewrites_rows(self) -> bool:
        return self.rule == "type"


class Tighten(ConstraintStep):
    """Tightens a constraint that rows may violate.

    `vacuous`: no row can violate it, since every row is null in a column that this change adds.
    """

    step: ClassVar[str] = "tighten"
    vacuous: bool = False

    @property
    def validates_rows(self) -> bool:
        return not self.vacuous


class AddIndex(PropertyStep):
    step: ClassVar[str] = "add_index"
    metric: str | None


class DropIndex(PropertyStep):
    step: ClassVar[str] = "drop_index"
    metric: str | None


class ChangeMetadata(SchemaStep):
    """Changes annotations of a type or, with `property_id`, of a property; or the interfaces that a type implements."""

    step: ClassVar[str] = "change_metadata"
    what: str
    property_id: str | None = None
    property: str | None = None


class ChangeSource(SchemaStep):
    """Changes comments, order or layout: the text differs, its meaning does not."""

    step: ClassVar[str] = "change_source"


class Refusal(Immutable):
    """Why a change is not possible: the entity, the reason, and what to do instead."""

    code: str
    entity: str
    reason: str
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.entity}: {self.reason}" + (f". {self.advice}" if self.advice else "")

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "entity": self.entity, "reason": self.reason, "advice": self.advice}


class SchemaChangeRefused(InvalidInput, code=UNSUPPORTED):
    """A schema change with steps that are not possible; `details['refusals']` lists all of them."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        text = "\n".join(str(refusal) for refusal in refusals)
        super().__init__(
            f"the schema change is not possible\n{text}",
            code=refusals[0].code,
            refusals=[refusal.to_json() for refusal in refusals],
        )
        self.refusals = refusals


class SchemaPlan(Immutable):
    """What a new schema changes, in order. An unchanged schema has no steps."""

    steps: tuple[SchemaStep, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.refusals

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(str(refusal) for refusal in self.refusals)

    def __iter__(self) -> Iterator[SchemaStep]:
        return iter(self.steps)

    def check(self) -> None:
        """Raise `SchemaChangeRefused` unless every step is possible."""
        if self.refusals:
            raise SchemaChangeRefused(self.refusals)

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "steps": [step.to_json() for step in self.steps],
            "refused": [refusal.to_json() for refusal in self.refusals],
        }
