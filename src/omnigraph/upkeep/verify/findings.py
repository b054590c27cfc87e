"""Findings of `verify`, each with its place, and the numbers of what was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import Corruption, InvalidInput, NotFound, Unsupported

Severity = Literal["error", "note"]

#: The counters of a report, in the order of the checks.
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

#: Errors that mean damage. A store that does not answer is not a finding: its error ends the check.
_DAMAGE = (Corruption, NotFound, InvalidInput, Unsupported)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or with severity `note` only worth knowing."""

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
    """Collects findings while checks go on, so that one finding never hides the next."""

    problems: list[Finding] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    def error(self, code: str, where: str, message: str, *, repairable: bool = False, **details: Any) -> None:
        self.problems.append(Finding(code, where, message, "error", repairable, details))

    def note(self, code: str, where: str, message: str) -> None:
        self.problems.append(Finding(code, where, message, "note"))

    @contextmanager
    def report_damage(self, code: str, where: str, *, repairable: bool = False, **details: Any) -> Iterator[None]:
        """Turns an error that means damage into a finding, and goes on."""
        try:
            yield
        except _DAMAGE as error:
            self.error(code, where, error.message, repairable=repairable, **details)


@dataclass(frozen=True)
class VerifyReport:
    """`ok` if there is no error; notes do not count."""

    problems: tuple[Finding, ...]
    checked: Mapping[str, int]
    deep: bool

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.problems if finding.severity == "error")

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "deep": self.deep,
            "checked": dict(self.checked),
            "problems": [finding.to_json() for finding in self.problems],
        }
