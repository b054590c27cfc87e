"""What a cleanup found and did, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.storage.keys import TEMPORARY_PREFIX, is_temporary
from omnigraph.storage.store import ObjectInfo


@dataclass(frozen=True, slots=True)
class Counted:
    """So many objects of so many bytes."""

    files: int = 0
    size_bytes: int = 0

    def with_one(self, one: ObjectInfo) -> Counted:
        return Counted(self.files + 1, self.size_bytes + one.size_bytes)


@dataclass(frozen=True, slots=True)
class ExpiredCommits:
    """Commits of one branch that go."""

    branch: str
    stream: str
    commits: int
    oldest: str
    newest: str


@dataclass(frozen=True)
class CleanupReport:
    """In a preview (`confirmed` is false) everything is what would be done.

    `condemns` are files that no commit names any more, or none will: they go on a list now, or once the bodies of
    their commits have left the archive. `waiting` are on a list and not yet due. `deletes` are gone.
    """

    confirmed: bool
    id: str
    expired: tuple[ExpiredCommits, ...]
    closes: tuple[str, ...]
    condemns: Mapping[str, Counted]
    deletes: Mapping[str, Counted]
    waiting: Mapping[str, Counted]
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
        return sum(one.size_bytes for one in self.deletes.values())

    def rows(self) -> list[dict[str, Any]]:
        """One line per place: what is condemned, waits, and goes."""
        places = sorted({*self.condemns, *self.waiting, *self.deletes})
        none = Counted()
        return [
            {
                "place": place,
                "condemned": self.condemns.get(place, none).files,
                "condemned_bytes": self.condemns.get(place, none).size_bytes,
                "waiting": self.waiting.get(place, none).files,
                "deleted": self.deletes.get(place, none).files,
                "deleted_bytes": self.deletes.get(place, none).size_bytes,
            }
            for place in places
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "confirmed": self.confirmed,
            "id": self.id,
            "expired": [
                {
                    "branch": one.branch,
                    "commits": one.commits,
                    "oldest": one.oldest,
                    "newest": one.newest,
                }
                for one in self.expired
            ],
            "closed_streams": list(self.closes),
            "files": self.rows(),
            "protected": [{"commit_id": commit, "by": why} for commit, why in sorted(self.protected.items())],
            "lost": [{"commit_id": commit, "by": why} for commit, why in sorted(self.lost.items())],
            "unfenced": list(self.unfenced),
            "failures": [{"key": key, "error": text} for key, text in sorted(self.failures.items())],
        }


def by_table(files: Iterable[ObjectInfo]) -> dict[str, Counted]:
    """Files counted by where they are: `tables/<id>`, `__archive`, `__leases`, `__recovery`, `.tmp-*`."""
    found: dict[str, Counted] = {}
    for one in files:
        place = _place(one.key)
        found[place] = found.get(place, Counted()).with_one(one)
    return found


def _place(key: str) -> str:
    if is_temporary(key):
        return f"{TEMPORARY_PREFIX}*"
    parts = key.split("/")
    return "/".join(parts[:2]) if parts[0] == "tables" else parts[0]
