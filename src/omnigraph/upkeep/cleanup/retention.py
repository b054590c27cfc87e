"""Which commits may go: pure decisions on what a stream holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from omnigraph.errors import InvalidInput
from omnigraph.log.commit_record import NON_LOGICAL

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)")
_UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
#: Kinds of records that a branch has before anybody wrote to it.
UNUSED = frozenset({"fork", "gc", "close"})


@dataclass(frozen=True, slots=True)
class Policy:
    """What cleanup may collect, and how careful it is.

    A commit of a live branch goes if it is beyond the newest `keep` and older than `older_than_s`; a criterion that
    is not given does not protect, but with none given no commit goes. Of a deleted branch only the age counts. The
    newest `newest_records` of a live branch never go: a writer that comes back from a pause must find out what
    became of its seq (H23).
    """

    keep: int | None = None
    older_than_s: float | None = None
    margin_s: float = 600
    horizon_s: float = 86_400
    newest_records: int = 1024
    lock_stale_s: float = 3600

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise InvalidInput(
                f"keep is {self.keep}", advice="Keep at least one commit of every branch", keep=self.keep
            )
        if self.older_than_s is not None and self.older_than_s < 0:
            raise InvalidInput("an age cannot be negative", advice="Use 0 for any age")

    @property
    def collects_commits(self) -> bool:
        return self.keep is not None or self.older_than_s is not None


@dataclass(frozen=True, slots=True)
class Commit:
    """What the decision needs to know of one record that is there in full."""

    seq: int
    kind: str
    created_at: datetime
    modified_at: datetime


def seconds_of(age: str) -> float:
    """`7d`, `24h`, `30min`, `90s`, `2w` in seconds."""
    found = _AGE.fullmatch(age.strip())
    if found is None:
        raise InvalidInput(f"{age!r} is not an age", code="bad_age", advice="Write 7d, 24h, 30min, 90s or 2w", age=age)
    return float(found[1]) * _UNITS_S[found[2]]


def expired(
    commits: Sequence[Commit],
    newest_seq: int,
    *,
    closed: bool,
    unused: bool,
    policy: Policy,
    now: datetime,
    store_now: datetime,
) -> list[int]:
    """Seqs of one stream that retention lets go, oldest first. Names that protect single commits are not known here.

    `closed` streams have ended; `unused` ones were made for a branch that never came to be, or was never written to.
    """
    gone = _beyond(commits, newest_seq, closed, unused, policy, now, store_now)
    # Every run leaves a record of its own: collecting that alone would never come to an end.
    return [one.seq for one in gone] if any(one.kind != "gc" for one in gone) else []


def _beyond(
    commits: Sequence[Commit],
    newest_seq: int,
    closed: bool,
    unused: bool,
    policy: Policy,
    now: datetime,
    store_now: datetime,
) -> list[Commit]:
    if closed and unused:
        return list(commits)
    if not policy.collects_commits:
        return []
    if closed:
        return [one for one in commits if _is_old(one, policy, now, store_now)]
    floor = min(_kept_from(commits, policy.keep), newest_seq - policy.newest_records + 1, newest_seq)
    return [one for one in commits if one.seq < floor and _is_old(one, policy, now, store_now)]


def _kept_from(commits: Sequence[Commit], keep: int | None) -> int:
    """The oldest seq among the newest `keep` commits that changed something."""
    if keep is None:
        return max((one.seq for one in commits), default=0) + 1
    changes = sorted((one.seq for one in commits if one.kind not in NON_LOGICAL), reverse=True)
    return changes[min(keep, len(changes)) - 1] if changes else 0


def _is_old(one: Commit, policy: Policy, now: datetime, store_now: datetime) -> bool:
    """By the writer's clock and by the store's: neither alone is to be trusted (H31)."""
    if policy.older_than_s is None:
        return True
    age = timedelta(seconds=policy.older_than_s)
    return one.created_at <= now - age and one.modified_at <= store_now - age
