"""Tags name commits and protect them from cleanup.

The entries of one name are numbered like those of a branch: an even number creates the tag, the next odd number deletes
it. No entry is ever removed or replaced, so a delayed deletion cannot delete a newer tag of the same name.
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


class TagExists(Conflict, code="tag_exists"):
    """The name is in use."""

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
class _TagEntry:
    """One entry of a name's history; `token` tells who wrote it. `tag` is None in an entry that deletes the tag."""

    key: str
    n: int
    token: str
    tag: Tag | None


class Tags:
    """`g.tags`: create, list and delete."""

    def __init__(self, runtime: GraphRuntime) -> None:
        self._runtime = runtime

    def create(self, name: str, commit_id: str, *, actor: str | None = None, message: str | None = None) -> Tag:
        """Tag a commit of any branch.

        The tag is written first and the commit read again afterwards: cleanup writes its stub first and lists the
        tags afterwards, so one of the two always sees the other (H33).
        """
        _check_name(name)
        self._require_writable()
        runtime, backend = self._runtime, self._runtime.backend
        stream, seq = parse_commit_id(commit_id)
        runtime.records(stream).record(seq)
        newest = self._newest(name)
        if newest is not None and newest.tag is not None:
            raise _tag_exists_error(name, newest.tag)
        tag = Tag(name, commit_id, actor, message, backend.clock.now().isoformat(timespec="milliseconds"))
        entry = self._append(name, newest.n + 1 if newest else 0, tag)
        backend.pauses.reach("tag.create.written")
        still_there = runtime.records(stream).get(seq)
        if not isinstance(still_there, CommitRecord):
            self._append(name, entry.n + 1, None)
            raise still_there.make_expired_error() if isinstance(still_there, Stub) else no_such_commit(commit_id)
        return tag

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return sorted(self.scan(), key=lambda tag: tag.name)

    def get(self, name: str) -> Tag:
        _check_name(name)
        newest = self._newest(name)
        if newest is None or newest.tag is None or newest.tag.name != name:
            raise no_such_tag(name)
        return newest.tag

    def delete(self, name: str) -> Tag:
        """Deletes a tag. The commit itself stays until cleanup collects it."""
        _check_name(name)
        self._require_writable()
        newest = self._newest(name)
        if newest is None or newest.tag is None or newest.tag.name != name:
            raise no_such_tag(name)
        self._append(name, newest.n + 1, None)
        return newest.tag

    def scan(self) -> Iterator[Tag]:
        """Yields every tag. An unreadable entry is an error, since it protects a commit."""
        newest: dict[str, str] = {}
        for info in self._runtime.backend.store.list(TAGS):
            folder = info.key[len(TAGS) :].partition("/")[0]
            newest[folder] = max(newest.get(folder, ""), info.key)
        alive = [key for key in newest.values() if _parse_number(key) % 2 == 0]
        for key, data in zip(alive, self._runtime.backend.store.get_many(alive), strict=True):
            tag = _decode_entry(key, data or b"").tag
            if tag is not None:
                yield tag

    def _require_writable(self) -> None:
        if self._runtime.read_only:
            raise Unsupported(
                "this graph was opened read-only", code="read_only", advice="Open it without read_only=True"
            )

    def _newest(self, name: str) -> _TagEntry | None:
        infos = self._runtime.backend.store.list(_folder(name))
        if not infos:
            return None
        key = max(info.key for info in infos)
        return _decode_entry(key, self._runtime.backend.store.get(key))

    def _append(self, name: str, n: int, tag: Tag | None) -> _TagEntry:
        """Writes entry `n`. That another writer wrote it first is an error for a new tag only."""
        backend = self._runtime.backend
        token = backend.ids.token(16)
        key = f"{_folder(name)}{n:08d}.json"
        document = {"n": n, "token": token, "tag": tag.to_json() if tag else None}
        entry = _decode_entry(key, create_object(backend, key, json.dumps(document).encode()))
        if entry.token != token and tag is not None:
            raise _tag_exists_error(name, entry.tag or tag)
        return entry


def no_such_tag(name: str) -> NotFound:
    return NotFound(f"there is no tag {name!r}", code="tag_not_found", advice="See `omnigraph tag list`", tag=name)


def _check_name(name: str) -> None:
    try:
        check_branch_name(name)
    except InvalidInput as error:
        raise InvalidInput(
            error.message.replace("branch name", "tag name"), code="bad_tag_name", advice=error.advice, name=name
        ) from error


def _tag_exists_error(name: str, existing: Tag) -> TagExists:
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


def _parse_number(key: str) -> int:
    digits = key.rsplit("/", 1)[-1].removesuffix(".json")
    if not digits.isdecimal():
        raise Corruption(f"{key} does not belong among the tags", advice="Move it away", key=key)
    return int(digits)


def _decode_entry(key: str, data: bytes) -> _TagEntry:
    try:
        raw = json.loads(data)
        tag = raw["tag"]
        parsed = Tag(tag["tag"], tag["commit_id"], tag["actor"], tag["message"], tag["created_at"]) if tag else None
        return _TagEntry(key, raw["n"], raw["token"], parsed)
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{key} cannot be read", advice="Run `omnigraph verify`", key=key) from error
