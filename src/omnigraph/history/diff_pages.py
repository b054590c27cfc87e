"""A diff in pages: each pins the two commits, so that the next page goes on in the same comparison."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from omnigraph.errors import InvalidInput
from omnigraph.history.diff import Change
from omnigraph.log.snapshot import Snapshot

PAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class DiffCursor:
    """Where a page ended: the two commits, and the last change that it held."""

    old: str
    new: str
    type_id: str
    row_id: str

    def encode(self) -> str:
        parts = [1, self.old, self.new, self.type_id, self.row_id]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> DiffCursor:
        try:
            version, *parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            if version != 1 or len(parts) != 4 or not all(isinstance(part, str) for part in parts):
                raise ValueError("another cursor")
        except (ValueError, TypeError, binascii.Error, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"{text!r} is not a cursor of a diff", code="bad_cursor", advice="Use one that a page gave"
            ) from error
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class DiffPage:
    """Changes from the commit `old` (None: from nothing) to `new`; `cursor` goes on from here, None at the end."""

    old: str | None
    new: str
    changes: tuple[Change, ...]
    cursor: str | None

    def to_json(self) -> dict[str, Any]:
        """The shape shared by `--json` and HTTP."""
        changes = [change.to_json() for change in self.changes]
        return {"old": self.old, "new": self.new, "changes": changes, "cursor": self.cursor}


def take_page(old: Snapshot, new: Snapshot, changes: Iterable[Change], limit: int | None) -> DiffPage:
    """The first `limit` of the changes, all without one."""
    remaining = iter(changes)
    page = tuple(islice(remaining, limit))
    is_last = limit is None or next(remaining, None) is None
    if is_last or not page:
        return DiffPage(old.commit_id, new.commit_id, page, None)
    cursor = DiffCursor(old.commit_id, new.commit_id, page[-1].type_id, page[-1].id)
    return DiffPage(old.commit_id, new.commit_id, page, cursor.encode())
