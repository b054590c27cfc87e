"""Schemas of two branches: equal identities are the same thing, additions merge, everything else is refused."""

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

    Either side may have changed it in ways under which every row of the other stays as it is. If both did, one of
    them may only have added things: those go into the schema of the other.
    """
    if source.hash == target.hash:
        return target
    # Of several bases the one that knows a side's schema counts: there that side has changed nothing.
    base = next((one for one in bases if one.hash in (source.hash, target.hash)), bases[0])
    theirs, ours = list(plan_change(base, source)), list(plan_change(base, target))
    told = f"the source by {_told(theirs)}, the target by {_told(ours)}"
    if not all(_merges(one) for one in (*theirs, *ours)):
        raise _refused(f"a merge carries over added types, added nullable properties and renames only: {told}")
    if base.hash in (source.hash, target.hash):
        return source if base.hash == target.hash else target
    for host, guest, steps in ((target, source, theirs), (source, target, ours)):
        merged = combine_schemas(base, host, guest) if all(is_addition(one) for one in steps) else None
        if merged is not None:
            return merged
    raise _refused(f"both branches changed the schema since they parted, and the two do not fit together: {told}")


def _merges(one: SchemaStep) -> bool:
    return isinstance(one, _MERGEABLE) or (isinstance(one, Tighten) and one.vacuous)


def _refused(message: str) -> Unsupported:
    return Unsupported(
        message, code="schema_merge", advice="Bring both branches to one schema with `schema apply`, then merge"
    )


def _told(steps: Sequence[SchemaStep]) -> str:
    return ", ".join(f"{one.step} on {one.table}" if one.table else one.step for one in steps) or "nothing"
