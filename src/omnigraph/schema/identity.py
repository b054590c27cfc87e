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
from omnigraph.schema.drafts import Hint, TypeDraft
from omnigraph.schema.problems import Problems

Old = TypeVar("Old", TypeDef, Property)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something declared: its name, and the hint where it comes from."""

    name: str
    hint: Hint | None
    lenient: bool = False  # a hint on an interface's property concerns only the types that have the old name


class Continued(Generic[Old]):
    """Decides which old thing each wanted name continues."""

    def __init__(self, old: Iterable[Old], fold: Callable[[str], str], what: str, problems: Problems) -> None:
        self._old: Mapping[str, Old] = {fold(one.name): one for one in old}
        self._fold = fold
        self._what = what
        self._problems = problems

    def resolve(self, wanted: Sequence[Wanted]) -> dict[str, Old]:
        """Old things by new name; a name that is missing is new."""
        found: dict[str, Old] = {}
        taken: dict[str, str] = {}
        for one in wanted:
            if one.hint is not None and not self._is_spent(one, one.hint):
                self._move(one, one.hint, found, taken)
        for one in wanted:
            key = self._fold(one.name)
            if one.name not in found and key in self._old and key not in taken:
                found[one.name] = self._old[key]
        return found

    def _is_spent(self, one: Wanted, hint: Hint) -> bool:
        before = self._old.get(self._fold(one.name))
        return before is not None and remembered_hint(before.annotations) == hint.old

    def _move(self, one: Wanted, hint: Hint, found: dict[str, Old], taken: dict[str, str]) -> None:
        key = self._fold(hint.old)
        if key in taken:
            text = f"'{hint.old}' is renamed to '{taken[key]}' already"
            self._problems.add("OG-S-075", hint.at, text, "An old name has one successor")
        elif key in self._old:
            taken[key] = one.name
            found[one.name] = self._old[key]
        elif self._fold(one.name) not in self._old and not one.lenient:
            text = f"the present schema has no {self._what} '{hint.old}'"
            self._problems.add("OG-S-076", hint.at, text, f"Remove the hint to add '{one.name}' as new")


def remembered_hint(annotations: Iterable[Annotation]) -> str | None:
    return next((one.args[0] for one in annotations if one.name == "rename_from"), None)


def continued_types(
    drafts: Sequence[TypeDraft], previous: Catalog | None, problems: Problems
) -> Mapping[tuple[str, str], TypeDef]:
    """Old types by kind and new name. Edges are matched whatever the case, as queries find them."""
    found: dict[tuple[str, str], TypeDef] = {}
    if previous is None:
        return found
    folds: dict[str, Callable[[str], str]] = {"node": str, "edge": str.lower}
    for kind, fold in folds.items():
        old = [one for one in previous.types if one.kind == kind]
        wanted = [Wanted(one.name.text, one.hint) for one in drafts if one.kind == kind]
        resolved = Continued(old, fold, f"{kind} type", problems).resolve(wanted)
        found.update({(kind, name): one for name, one in resolved.items()})
    return found


def continued_properties(one: TypeDraft, old: TypeDef | None, problems: Problems) -> Mapping[str, Property]:
    """Old properties of a continued type by new name."""
    if old is None:
        return {}
    wanted = [Wanted(name, prop.hint, name in one.injected) for name, prop in one.properties.items()]
    return Continued(old.properties, str, f"property of {old.table_key}", problems).resolve(wanted)
