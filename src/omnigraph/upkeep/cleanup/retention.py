"""Decides which commits of a stream may expire. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from omnigraph.errors import InvalidInput
from omnigraph.log.commit_record import NON_LOGICAL

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)")
_UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
#: A stream with commit records of these kinds only was never written to by a user.
UNUSED_KINDS = frozenset({"fork", "gc", "close"})


@dataclass(frozen=True, slots=True)
class Policy:
    """What cleanup may collect, and how careful it is.

    A commit of a live branch expires if it is beyond the newest `keep` and older than `older_than_s`. A criterion that
    is None protects nothing, but if both are None no commit expires. For a deleted branch only the age counts. The
    newest `newest_records` of a live branch never expire: a writer that resumes after a pause must find out what
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
class CommitAge:
    """The facts about one full commit record on which the decision depends."""

    seq: int
    kind: str
    created_at: datetime
    modified_at: datetime


def parse_age_s(age: str) -> float:
    """Parses `7d`, `24h`, `30min`, `90s` or `2w` into seconds."""
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise InvalidInput(f"{age!r} is not an age", code="bad_age", advice="Write 7d, 24h, 30min, 90s or 2w", age=age)
    return float(match[1]) * _UNITS_S[match[2]]


def find_expired_commits(
    commits: Sequence[CommitAge],
    newest_seq: int,
    *,
    closed: bool,
    unused: bool,
    policy: Policy,
    now: datetime,
    store_now: datetime,
) -> list[int]:
    """Returns the seqs of one stream that retention lets go, oldest first. Protected commits are not considered here.

    A `closed` stream has ended. An `unused` stream has no commits: its branch was never created or never written to.
    """
    expired = _find_outside_retention(commits, newest_seq, closed, unused, policy, now, store_now)
    # Every run publishes a `gc` record: if that alone expired, each run would make work for the next one.
    return [commit.seq for commit in expired] if any(commit.kind != "gc" for commit in expired) else []


def _find_outside_retention(
    commits: Sequence[CommitAge],
    newest_seq: int,
    closed: bool,
    unused: bool,
    policy: Policy,
    now: datetime,
    store_now: datetime,
) -> list[CommitAge]:
    if closed and unused:
        return list(commits)
    if not policy.collects_commits:
        return []
    if closed:
        return [commit for commit in commits if _is_old(commit, policy, now, store_now)]
    floor = min(_first_protected_seq(commits, policy.keep), newest_seq - policy.newest_records + 1, newest_seq)
    return [commit for commit in commits if commit.seq < floor and _is_old(commit, policy, now, store_now)]


def _first_protected_seq(commits: Sequence[CommitAge], keep: int | None) -> int:
    """Returns the oldest seq among the newest `keep` commits that changed data."""
    if keep is None:
        return max((commit.seq for commit in commits), default=0) + 1
    changes = sorted((commit.seq for commit in commits if commit.kind not in NON_LOGICAL), reverse=True)
    return changes[min(keep, len(changes)) - 1] if changes else 0


def _is_old(commit: CommitAge, policy: Policy, now: datetime, store_now: datetime) -> bool:
    """Whether a commit is old by the writer's clock and by the store's clock, since either may be wrong (H31)."""
    if policy.older_than_s is None:
        return True
    age = timedelta(seconds=policy.older_than_s)
    return commit.created_at <= now - age and commit.modified_at <= store_now - age
