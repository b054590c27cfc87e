"""Merges the schemas of two branches: matched by identity, additions merge, everything else is refused."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors import Unsupported
from omnigraph.schema.catalog import Catalog
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
from omnigraph.schema.combine import combine_schemas, is_addition
from omnigraph.schema.plan_change import plan_change

_MERGEABLE = (AddType, AddProperty, RenameType, RenameProperty, AddIndex, DropIndex, ChangeMetadata, ChangeSource)


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
