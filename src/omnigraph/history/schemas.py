"""Schemas of two branches: equal identities are the same thing, additions merge, everything else is refused."""

from __future__ import annotations

from omnigraph.errors import Unsupported
from omnigraph.lang.schema.change import plan_change
from omnigraph.lang.schema.model import Catalog
from omnigraph.lang.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    ChangeMetadata,
    ChangeSource,
    DropIndex,
    RenameProperty,
    RenameType,
    Step,
)

_MERGEABLE = (AddType, AddProperty, RenameType, RenameProperty, AddIndex, DropIndex, ChangeMetadata, ChangeSource)


def merged_catalog(base: Catalog, source: Catalog, target: Catalog) -> Catalog:
    """The schema of the merged graph. Raises Unsupported, naming what changed on either side."""
    if source.hash in (base.hash, target.hash):
        return target
    theirs, ours = _steps(base, source), _steps(base, target)
    if target.hash != base.hash:
        raise Unsupported(
            f"both branches changed the schema: the source by {_told(theirs)}, the target by {_told(ours)}",
            code="schema_merge",
            advice="Apply the target's schema to the source branch first, then merge",
        )
    refused = [one for one in theirs if not isinstance(one, _MERGEABLE)]
    if refused:
        raise Unsupported(
            f"the source changed the schema by {_told(refused)}, which a merge does not carry over",
            code="schema_merge",
            advice="Apply the source's schema to the target branch first, then merge",
        )
    return source


def _steps(old: Catalog, new: Catalog) -> list[Step]:
    return list(plan_change(old, new))


def _told(steps: list[Step]) -> str:
    return ", ".join(f"{one.step} on {one.table}" if one.table else one.step for one in steps) or "nothing"
