"""Which type or property of the present schema a new declaration continues.

A name keeps its identity; `@rename_from` moves one to a new name. A hint acts once: the catalog remembers it, and a
hint that stood on the same name before is spent. So a schema whose hints were never cleaned up can be applied again,
also one that swapped two names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from omnigraph.schema.catalog import Annotation, Catalog, Property, TypeDef
from omnigraph.schema.drafts import RenameHint, TypeDraft
from omnigraph.schema.problems import Problems

Old = TypeVar("Old", TypeDef, Property)


@dataclass(frozen=True, slots=True)
class DeclaredName:
    """Something declared: its name, and the hint where it comes from."""

    name: str
    rename_hint: RenameHint | None
    may_lack_old_name: bool = False  # a hint on an interface's property concerns only the types that have the old name


class IdentityResolver(Generic[Old]):
    """Decides which old thing each wanted name continues."""

    def __init__(self, old: Iterable[Old], fold: Callable[[str], str], noun: str, problems: Problems) -> None:
        self._old: Mapping[str, Old] = {fold(item.name): item for item in old}
        self._fold = fold
        self._what = noun
        self._problems = problems

    def resolve(self, declared_names: Sequence[DeclaredName]) -> dict[str, Old]:
        """Old things by new name; a name that is missing is new."""
        predecessors: dict[str, Old] = {}
        successors: dict[str, str] = {}
        for declared in declared_names:
            if declared.rename_hint is not None and not self._is_spent(declared, declared.rename_hint):
                self._move(declared, declared.rename_hint, predecessors, successors)
        for declared in declared_names:
            key = self._fold(declared.name)
            if declared.name not in predecessors and key in self._old and key not in successors:
                predecessors[declared.name] = self._old[key]
        return predecessors

    def _is_spent(self, declared: DeclaredName, hint: RenameHint) -> bool:
        before = self._old.get(self._fold(declared.name))
        return before is not None and find_applied_hint(before.annotations) == hint.old

    def _move(self, declared: DeclaredName, hint: RenameHint, predecessors: dict[str, Old], successors: dict[str, str]) -> None:
        key = self._fold(hint.old)
        if key in successors:
            text = f"'{hint.old}' is renamed to '{successors[key]}' already"
            self._problems.add("OG-S-075", hint.at, text, "An old name has one successor")
        elif key in self._old:
            successors[key] = declared.name
            predecessors[declared.name] = self._old[key]
        elif self._fold(declared.name) not in self._old and not declared.may_lack_old_name:
            text = f"the present schema has no {self._what} '{hint.old}'"
            self._problems.add("OG-S-076", hint.at, text, f"Remove the hint to add '{declared.name}' as new")


def find_applied_hint(annotations: Iterable[Annotation]) -> str | None:
    return next((annotation.args[0] for annotation in annotations if annotation.name == "rename_from"), None)


def resolve_types(
    drafts: Sequence[TypeDraft], previous: Catalog | None, problems: Problems
) -> Mapping[tuple[str, str], TypeDef]:
    """Old types by kind and new name. Edges are matched whatever the case, as queries find them."""
    predecessors: dict[tuple[str, str], TypeDef] = {}
    if previous is None:
        return predecessors
    folds: dict[str, Callable[[str], str]] = {"node": str, "edge": str.lower}
    for kind, fold in folds.items():
        old = [type_def for type_def in previous.types if type_def.kind == kind]
        declared_names = [DeclaredName(draft.name.text, draft.rename_hint) for draft in drafts if draft.kind == kind]
        resolved = IdentityResolver(old, fold, f"{kind} type", problems).resolve(declared_names)
        predecessors.update({(kind, name): type_def for name, type_def in resolved.items()})
    return predecessors


def resolve_properties(draft: TypeDraft, old: TypeDef | None, problems: Problems) -> Mapping[str, Property]:
    """Old properties of a continued type by new name."""
    if old is None:
        return {}
    declared_names = [DeclaredName(name, prop.rename_hint, name in draft.interface_properties) for name, prop in draft.properties.items()]
    return IdentityResolver(old.properties, str, f"property of {old.table_key}", problems).resolve(declared_names)
