"""The branch registry: which stream a branch name stands for now.

Entries of one name are numbered and written once. An even number creates a life of the branch, the following odd
number ends that life. So the parity of the newest number says whether the branch is alive, a name can be used again
for a new stream, and one listing is enough to know all live branches. The folder of a name is the case-folded name:
names that differ only by case share a folder and are refused, since some file systems do not tell them apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, unquote

from omnigraph.clock import Clock
from omnigraph.errors import Conflict, Corruption, InvalidInput, NotFound, Unavailable, Unknown
from omnigraph.storage.store import ObjectMissing, PutResult, Store

MAIN = "main"
_ROOT = "__branches/"
_MAX_NAME = 255
_RETRY_WAIT_S = 0.05
_FORBIDDEN = set('\\~^:?*[]{}<>|"\x7f')


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """One registry entry: life `n / 2` of a branch if `n` is even, the end of entry `n - 1` if it is odd."""

    name: str
    n: int
    stream: str

    @property
    def alive(self) -> bool:
        return self.n % 2 == 0

    def encode(self) -> bytes:
        return json.dumps({"name": self.name, "n": self.n, "stream": self.stream, "alive": self.alive}).encode()


def check_branch_name(name: str) -> None:
    """Raise InvalidInput for names that a store, a shell or a user could take for something else."""
    reason = _why_bad(name)
    if reason:
        raise InvalidInput(
            f"{name!r} cannot be a branch name: {reason}",
            code="bad_branch_name",
            advice="Use letters, digits, '-', '_', '.' and '/' between parts",
            name=name,
        )


def _why_bad(name: str) -> str | None:
    parts = name.split("/")
    rules = [
        (not name, "it is empty"),
        (len(name) > _MAX_NAME or len(quote(name.casefold(), safe="")) > _MAX_NAME - 15, "it is too long"),
        (any(ord(char) < 33 or char in _FORBIDDEN for char in name), "it has a space or a special character"),
        (any(part in ("", ".", "..") for part in parts) or ".." in name, "it has an empty part or dots only"),
        (name.startswith(("-", "__")) or name.endswith("."), "it begins with '-' or '__', or ends with '.'"),
        (not name.isprintable(), "it has characters that cannot be printed"),
        (_like_commit_id(name), "it looks like a commit id"),
    ]
    return next((reason for bad, reason in rules if bad), None)


def _like_commit_id(name: str) -> bool:
    stream, dot, seq = name.partition(".")
    return bool(dot) and len(stream) == 26 and stream.isalnum() and seq.isdecimal()


class Registry:
    """Reads and appends registry entries. Whether a branch is closed is decided by its stream, not by the registry."""

    def __init__(self, store: Store, clock: Clock, patience_s: float) -> None:
        self._store = store
        self._clock = clock
        self._patience_s = patience_s

    def find(self, name: str) -> BranchEntry | None:
        """The newest entry under this name, whatever its case, alive or not.

        A listing may be stale, so the search probes upward from the newest number that was listed.
        """
        objects = self._store.list(_folder(name))
        n = max((_number(info.key) for info in objects), default=0)
        newest: BranchEntry | None = None
        while True:
            entries = self._store.get_many([_key(name, n), _key(name, n + 1)])
            if entries[0] is None:
                return newest
            newest = decode_entry(entries[0] if entries[1] is None else entries[1], name)
            if entries[1] is None:
                return newest
            n += 2

    def live(self, name: str) -> BranchEntry:
        entry = self.find(name)
        if entry is None or not entry.alive or entry.name != name:
            raise no_such_branch(name)
        return entry

    def names(self) -> list[str]:
        """Names of all live branches, in one listing; a name whose case differs from its folder costs a GET."""
        newest: dict[str, int] = {}
        for info in self._store.list(_ROOT):
            folder = info.key[len(_ROOT) :].split("/", 1)[0]
            newest[folder] = max(newest.get(folder, -1), _number(info.key))
        alive = [(folder, n) for folder, n in sorted(newest.items()) if n % 2 == 0]
        entries = self._store.get_many([f"{_ROOT}{folder}/{n:08d}.json" for folder, n in alive])
        return sorted(
            decode_entry(data, folder).name if data is not None else unquote(folder)
            for (folder, _), data in zip(alive, entries, strict=True)
        )

    def append(self, entry: BranchEntry) -> PutResult:
        """Write the entry. EXISTS means that the number is taken, perhaps by an earlier try of this call."""
        return self._store.put_if_absent(_key(entry.name, entry.n), entry.encode())

    def create(self, name: str, stream: str) -> BranchEntry:
        """Register a new life of the branch. A name that was never used costs one PUT."""
        entry = BranchEntry(name, 0, stream)
        deadline = self._clock.monotonic() + self._patience_s
        while not self._try_append(entry, deadline):
            newest = self.find(name)
            if newest is None:
                continue
            if newest.stream == stream and newest.alive:
                return newest
            if newest.alive:
                raise _name_taken_error(name, newest.name)
            entry = BranchEntry(name, newest.n + 1, stream)
        return entry

    def end_life(self, entry: BranchEntry) -> None:
        """Write the end entry of exactly this life of the branch. May be repeated, also if the name lives again."""
        end_entry = BranchEntry(entry.name, entry.n + 1, entry.stream)
        deadline = self._clock.monotonic() + self._patience_s
        while not self._try_append(end_entry, deadline):
            newest = self.find(entry.name)
            if newest is not None and newest.n >= end_entry.n:
                return

    def _try_append(self, entry: BranchEntry, deadline: float) -> bool:
        """Whether the entry was created. False if its number is taken, perhaps by an earlier try of this call.

        After a lost answer, or an "exists" for an object that is absent, the PUT is tried again until `deadline`.
        """
        while True:
            try:
                if self.append(entry) is PutResult.CREATED:
                    return True
                if self._is_there(entry):
                    return False
            except Unavailable as error:
                if self._clock.monotonic() >= deadline:
                    raise _unknown_error(entry.name) from error
            if self._clock.monotonic() >= deadline:
                raise _unknown_error(entry.name)
            self._clock.sleep(_RETRY_WAIT_S)

    def _is_there(self, entry: BranchEntry) -> bool:
        try:
            self._store.head(_key(entry.name, entry.n))
        except ObjectMissing:
            return False
        return True


def no_such_branch(name: str) -> NotFound:
    return NotFound(
        f"there is no branch {name!r}", code="branch_not_found", advice="See `omnigraph branch list`", branch=name
    )


def _unknown_error(name: str) -> Unknown:
    return Unknown(
        f"the store did not tell whether the registry of branch {name!r} was changed",
        advice="See `omnigraph branch list` before you try again",
        branch=name,
    )


def _name_taken_error(name: str, existing: str) -> Conflict:
    if name == existing:
        text = f"branch {name!r} exists already"
    else:
        text = f"branch {name!r} differs from the existing {existing!r} only by case"
    return BranchExists(text, advice="Choose another name, or delete that branch first", branch=existing)


class BranchExists(Conflict, code="branch_exists"):
    """The name is in use."""

    retryable = False


def _folder(name: str) -> str:
    return f"{_ROOT}{quote(name.casefold(), safe='')}/"


def _key(name: str, n: int) -> str:
    return f"{_folder(name)}{n:08d}.json"


def _number(key: str) -> int:
    digits = key.rsplit("/", 1)[-1].removesuffix(".json")
    if not digits.isdecimal():
        raise Corruption(f"{key} does not belong into the branch registry", advice="Move it away", key=key)
    return int(digits)


def decode_entry(data: bytes, where: str) -> BranchEntry:
    """The entry in `data`; errors name it by `where`."""
    try:
        raw = json.loads(data)
        return BranchEntry(raw["name"], raw["n"], raw["stream"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(
            f"the registry entry of branch {where!r} cannot be read", advice="Run `omnigraph verify`"
        ) from error
