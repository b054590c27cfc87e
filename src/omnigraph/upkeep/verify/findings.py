"""What `verify` found: each problem named by its place, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import Corruption, InvalidInput, NotFound, Unsupported

Severity = Literal["error", "note"]

#: What is counted, in the order in which it is looked at.
COUNTED = (
    "records",
    "schemas",
    "registry_entries",
    "versions",
    "files",
    "indexes",
    "commits",
    "rows",
    "fragments",
    "rows_read",
    "tags",
    "leases",
)

#: What damage looks like from above. A store that does not answer is no finding: it ends the check.
_DAMAGE = (Corruption, NotFound, InvalidInput, Unsupported)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or with severity `note` worth knowing."""

    code: str
    where: str
    message: str
    severity: Severity = "error"
    repairable: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "code": self.code,
            "where": self.where,
            "message": self.message,
            "repairable": self.repairable,
        }


@dataclass
class Findings:
    """Collects while a check goes on: one problem never hides the next."""

    problems: list[Problem] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    def error(self, code: str, where: str, message: str, *, repairable: bool = False, **details: Any) -> None:
        self.problems.append(Problem(code, where, message, "error", repairable, details))

    def note(self, code: str, where: str, message: str) -> None:
        self.problems.append(Problem(code, where, message, "note"))

    @contextmanager
    def noticing(self, code: str, where: str, *, repairable: bool = False, **details: Any) -> Iterator[None]:
        """Damage met inside becomes a problem."""
        try:
            yield
        except _DAMAGE as error:
            self.error(code, where, error.message, repairable=repairable, **details)


@dataclass(frozen=True)
class VerifyReport:
    """`ok` if there is no error; notes do not count."""

    problems: tuple[Problem, ...]
    checked: Mapping[str, int]
    deep: bool

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(one for one in self.problems if one.severity == "error")

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "deep": self.deep,
            "checked": dict(self.checked),
            "problems": [one.to_json() for one in self.problems],
        }
