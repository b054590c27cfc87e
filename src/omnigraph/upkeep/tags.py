"""Tags: names for commits, which cleanup never collects.

Entries of one name are numbered like those of a branch: even numbers tag, odd numbers untag what came before. Nothing
is ever removed or replaced, so a delayed deletion cannot take away a tag that was made anew under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from omnigraph.commit.birth import create_object
from omnigraph.commit.graph_runtime import GraphRuntime
from omnigraph.errors import Conflict, Corruption, InvalidInput, NotFound, Unsupported
from omnigraph.log.branches import check_branch_name
from omnigraph.log.commit_record import CommitRecord, Stub, no_such_commit, parse_commit_id

TAGS = "__tags/"


class TagExists(Conflict):
    """The name is in use."""

    default_code = "tag_exists"
    retryable = False


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for one commit."""

    name: str
    commit_id: str
    actor: str | None
    message: str | None
    created_at: str

    def to_json(self) -> dict[str, Any]:
        return {
            "tag": self.name,
            "commit_id": self.commit_id,
            "actor": self.actor,
            "message": self.message,
            "created_at": self.created_at,
        }


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of a name's history; `token` tells our own from another's. No tag: the one before was taken away."""

    key: str
    n: int
    token: str
    tag: Tag | None


class Tags:
    """`g.tags`: create, list and delete."""

    def __init__(self, site: GraphRuntime) -> None:
        self._site = site

    def create(self, name: str, commit_id: str, *, actor: str | None = None, message: str | None = None) -> Tag:
        """Tag a commit of any branch.

        The tag is written first and the commit read again afterwards: cleanup writes its stub first and lists the
        tags afterwards, so one of the two always sees the other (H33).
        """
        _check_name(name)
        self._for_writing()
        site, backend = self._site, self._site.backend
        stream, seq = parse_commit_id(commit_id)
        site.records(stream).record(seq)
        newest = self._newest(name)
        if newest is not None and newest.tag is not None:
            raise _taken(name, newest.tag)
        tag = Tag(name, commit_id, actor, message, backend.clock.now().isoformat(timespec="milliseconds"))
        entry = self._append(name, newest.n + 1 if newest else 0, tag)
        backend.pauses.reach("tag.create.written")
        still_there = site.records(stream).get(seq)
        if not isinstance(still_there, CommitRecord):
            self._append(name, entry.n + 1, None)
            raise still_there.make_expired_error() if isinstance(still_there, Stub) else no_such_commit(commit_id)
        return tag

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return sorted(self.scan(), key=lambda one: one.name)

    def get(self, name: str) -> Tag:
        _check_name(name)
        newest = self._newest(name)
        if newest is None or newest.tag is None or newest.tag.name != name:
            raise no_such_tag(name)
        return newest.tag

    def delete(self, name: str) -> Tag:
        """Untag. The commit itself stays until cleanup collects it."""
        _check_name(name)
        self._for_writing()
        newest = self._newest(name)
        if newest is None or newest.tag is None or newest.tag.name != name:
            raise no_such_tag(name)
        self._append(name, newest.n + 1, None)
        return newest.tag

    def scan(self) -> Iterator[Tag]:
        """Every live tag; an entry that cannot be read is an error, since it protects something."""
        newest: dict[str, str] = {}
        for one in self._site.backend.store.list(TAGS):
            folder = one.key[len(TAGS) :].partition("/")[0]
            newest[folder] = max(newest.get(folder, ""), one.key)
        alive = [key for key in newest.values() if _number(key) % 2 == 0]
        for key, data in zip(alive, self._site.backend.store.get_many(alive), strict=True):
            tag = _decode(key, data or b"").tag
            if tag is not None:
                yield tag

    def _for_writing(self) -> None:
        if self._site.read_only:
            raise Unsupported(
                "this graph was opened read-only", code="read_only", advice="Open it without read_only=True"
            )

    def _newest(self, name: str) -> _Entry | None:
        listed = self._site.backend.store.list(_folder(name))
        if not listed:
            return None
        key = max(one.key for one in listed)
        return _decode(key, self._site.backend.store.get(key))

    def _append(self, name: str, n: int, tag: Tag | None) -> _Entry:
        """Write entry `n`. An untag that another made first is as good; a tag that another made first is not."""
        backend = self._site.backend
        token = backend.ids.token(16)
        key = f"{_folder(name)}{n:08d}.json"
        document = {"n": n, "token": token, "tag": tag.to_json() if tag else None}
        found = _decode(key, create_object(backend, key, json.dumps(document).encode()))
        if found.token != token and tag is not None:
            raise _taken(name, found.tag or tag)
        return found


def no_such_tag(name: str) -> NotFound:
    return NotFound(f"there is no tag {name!r}", code="tag_not_found", advice="See `omnigraph tag list`", tag=name)


def _check_name(name: str) -> None:
    try:
        check_branch_name(name)
    except InvalidInput as error:
        raise InvalidInput(
            error.message.replace("branch name", "tag name"), code="bad_tag_name", advice=error.advice, name=name
        ) from error


def _taken(name: str, existing: Tag) -> TagExists:
    return TagExists(
        f"tag {name!r} exists already"
        if name == existing.name
        else f"tag {name!r} differs from the existing {existing.name!r} only by case",
        advice="Choose another name, or delete that tag first",
        tag=existing.name,
        commit_id=existing.commit_id,
    )


def _folder(name: str) -> str:
    return f"{TAGS}{quote(name.casefold(), safe='')}/"


def _number(key: str) -> int:
    digits = key.rsplit("/", 1)[-1].removesuffix(".json")
    if not digits.isdecimal():
        raise Corruption(f"{key} does not belong among the tags", advice="Move it away", key=key)
    return int(digits)


def _decode(key: str, data: bytes) -> _Entry:
    try:
        raw = json.loads(data)
        tag = raw["tag"]
        held = Tag(tag["tag"], tag["commit_id"], tag["actor"], tag["message"], tag["created_at"]) if tag else None
        return _Entry(key, raw["n"], raw["token"], held)
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{key} cannot be read", advice="Run `omnigraph verify`", key=key) from error
