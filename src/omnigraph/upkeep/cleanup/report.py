"""The report of a cleanup: what it found and did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.storage.keys import TEMPORARY_PREFIX, is_temporary
from omnigraph.storage.store import ObjectInfo


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Number and size of files."""

    files: int = 0
    size_bytes: int = 0

    def add_file(self, info: ObjectInfo) -> FileTotals:
        return FileTotals(self.files + 1, self.size_bytes + info.size_bytes)


@dataclass(frozen=True, slots=True)
class ExpiredCommits:
    """The expired commits of one branch."""

    branch: str
    stream: str
    commits: int
    oldest: str
    newest: str


@dataclass(frozen=True)
class CleanupReport:
    """What a cleanup did, or in a preview (`confirmed` is false) would do.

    `condemns` are files that no remaining commit names: they go on a trash list now, or once the archived bodies of
    their commits are deleted. `waiting` are on a trash list and not due yet. `deletes` are deleted.
    """

    confirmed: bool
    id: str
    expired: tuple[ExpiredCommits, ...]
    closes: tuple[str, ...]
    condemns: Mapping[str, FileTotals]
    deletes: Mapping[str, FileTotals]
    waiting: Mapping[str, FileTotals]
    archived: int
    leases: int
    protected: Mapping[str, str]
    lost: Mapping[str, str]
    intents: int = 0
    unfenced: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        ended = self.leases or self.intents
        return bool(self.expired or self.closes or self.condemns or self.deletes or self.archived or ended)

    @property
    def deleted_bytes(self) -> int:
        return sum(total.size_bytes for total in self.deletes.values())

    def rows(self) -> list[dict[str, Any]]:
        """Returns one row per area of the store, such as a table: files condemned, waiting and deleted."""
        areas = sorted({*self.condemns, *self.waiting, *self.deletes})
        none = FileTotals()
        return [
            {
                "place": area,
                "condemned": self.condemns.get(area, none).files,
                "condemned_bytes": self.condemns.get(area, none).size_bytes,
                "waiting": self.waiting.get(area, none).files,
                "deleted": self.deletes.get(area, none).files,
                "deleted_bytes": self.deletes.get(area, none).size_bytes,
            }
            for area in areas
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "confirmed": self.confirmed,
            "id": self.id,
            "expired": [
                {name: getattr(commits, name) for name in ("branch", "commits", "oldest", "newest")}
                for commits in self.expired
            ],
            "closed_streams": list(self.closes),
            "files": self.rows(),
            "protected": [{"commit_id": commit, "by": why} for commit, why in sorted(self.protected.items())],
            "lost": [{"commit_id": commit, "by": why} for commit, why in sorted(self.lost.items())],
            "unfenced": list(self.unfenced),
            "failures": [{"key": key, "error": text} for key, text in sorted(self.failures.items())],
        }


def total_by_area(files: Iterable[ObjectInfo]) -> dict[str, FileTotals]:
    """Totals files by area: `tables/<id>`, `__archive`, `__leases`, `__recovery`, `.tmp-*`."""
    totals: dict[str, FileTotals] = {}
    for info in files:
        area = _area_of(info.key)
        totals[area] = totals.get(area, FileTotals()).add_file(info)
    return totals


def _area_of(key: str) -> str:
    if is_temporary(key):
        return f"{TEMPORARY_PREFIX}*"
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] == "tables" else parts[0]
