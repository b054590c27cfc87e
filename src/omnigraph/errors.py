"""Every error a caller can meet, grouped by what the caller does next.

    OmnigraphError
    ├── Conflict              another writer was there first: retry from a fresh read
    │   ├── ReadSetChanged      what the operation read has changed since
    │   ├── KeyConflict         a row with that id exists already
    │   ├── MergeConflict       two branches changed the same thing
    │   └── Contention          the retry budget ran out; nothing was written
    ├── InvalidInput          fix the input
    │   ├── ParseError
    │   ├── TypeCheckError
    │   ├── ConstraintViolation
    │   └── LoadRejected
    ├── NotFound              name something that exists
    │   ├── SnapshotExpired     the commit was there and has been collected
    │   └── BranchClosed        the branch this handle belongs to was deleted
    ├── PreconditionFailed    `if_commit` no longer holds; never retried
    ├── WriterFenced          another process holds this branch exclusively
    ├── Unknown               the outcome of a write could not be learned; ask again by its key
    ├── Unavailable           the store did not answer; try later
    │   └── Overloaded          a server has enough to do; nothing was begun
    ├── Forbidden             the store or a server refused the credentials; fix the permissions
    │   └── Unauthenticated     a server does not know who asks; give a valid token
    ├── Corruption            stored data is wrong; report it
    └── Unsupported           this version, store or door cannot do that

`code` is stable and part of the public contract; `details` holds plain JSON values, the same through every door.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OmnigraphError(Exception):
    """Base of all errors. `advice` says what to do next, in one sentence."""

    default_code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None, advice: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.advice = advice
        self.details = {name: value for name, value in details.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}" if self.advice else self.message

    def to_json(self) -> dict[str, Any]:
        """The shape shared by `--json` and HTTP."""
        return {"error": str(self), "code": self.code, **self.details}


class Conflict(OmnigraphError):
    """Another writer committed a conflicting change first."""

    default_code = "conflict"
    retryable = True

    @property
    def manifest_conflict(self) -> dict[str, Any] | None:
        """`{table_key, expected, actual}`, or None if the conflict is not about one table's version."""
        conflict = self.details.get("manifest_conflict")
        return dict(conflict) if conflict else None


class ReadSetChanged(Conflict):
    """Rows or tables that the operation read have changed, and the caller chose `on_conflict="fail"`."""

    @classmethod
    def on_table(cls, table_key: str, expected: int, actual: int) -> ReadSetChanged:
        return cls(
            f"stale view of '{table_key}': expected table version {expected} but current is {actual}; "
            "refresh and retry",
            manifest_conflict={"table_key": table_key, "expected": expected, "actual": actual},
        )


class KeyConflict(Conflict):
    """A strict insert named an id that exists."""

    default_code = "key_conflict"
    retryable = False

    @classmethod
    def on_row(cls, table_key: str, row_id: str) -> KeyConflict:
        return cls(
            f"{table_key} already has a row with id {row_id!r}",
            advice="Use another key, or an upsert instead of a strict insert",
            key_conflict={"table_key": table_key, "id": row_id},
        )


class MergeConflict(Conflict):
    """Two branches changed the same thing; `details['merge_conflicts']` lists every case."""

    default_code = "merge_conflict"
    retryable = False

    @property
    def conflicts(self) -> list[dict[str, Any]]:
        return list(self.details.get("merge_conflicts", []))


class Contention(Conflict):
    """The retry budget ran out. Nothing was written."""

    default_code = "contention"


class IntentEnded(Conflict):
    """Another process ended the bulk operation, since its heartbeat had stopped. None of its changes are visible."""

    default_code = "intent_ended"


class InvalidInput(OmnigraphError):
    """The input is wrong; repeating the call does not help."""

    default_code = "invalid_input"


class ParseError(InvalidInput):
    """Text that is not in the language. Details carry file, line and column."""

    default_code = "parse_error"


class TypeCheckError(InvalidInput):
    """Text that parses but does not fit the schema."""

    default_code = "type_error"


class ConstraintViolation(InvalidInput):
    """A change would violate constraints of the schema; `details['violations']` lists them."""

    default_code = "constraint_violation"

    @property
    def violations(self) -> list[dict[str, Any]]:
        return list(self.details.get("violations", []))


class LoadRejected(InvalidInput):
    """A load found bad records, and `on_error` is "fail"."""

    default_code = "load_rejected"


class DamagedInput(InvalidInput):
    """A file that cannot be read to its end, or whose columns do not fit its type. No record of it can be skipped."""

    default_code = "corrupt_file"


class NotFound(OmnigraphError):
    """The named thing does not exist."""

    default_code = "not_found"


class SnapshotExpired(NotFound):
    """The commit existed and was collected by cleanup."""

    default_code = "snapshot_expired"


class BranchClosed(NotFound):
    """The branch incarnation this handle follows was deleted."""

    default_code = "branch_closed"


class PreconditionFailed(OmnigraphError):
    """`if_commit` does not name the current state."""

    default_code = "precondition_failed"


class WriterFenced(OmnigraphError):
    """Another process claimed exclusive writing on this branch."""

    default_code = "writer_fenced"


class Unknown(OmnigraphError):
    """The write may or may not have landed. Repeat it with the same client key to learn which."""

    default_code = "unknown_outcome"


class Unavailable(OmnigraphError):
    """The store did not answer, or asks for less load."""

    default_code = "unavailable"
    retryable = True


class Overloaded(Unavailable):
    """A server has as many requests in flight as it accepts, in total or of this actor. Nothing was begun."""

    default_code = "overloaded"


class Forbidden(OmnigraphError):
    """The store, or a server, refused the credentials or the permissions behind them."""

    default_code = "forbidden"


class Unauthenticated(Forbidden):
    """A server needs a token, and the caller sent none, an unknown one or an expired one."""

    default_code = "unauthenticated"


class Corruption(OmnigraphError):
    """Stored data contradicts itself. Nothing was changed; writing is refused."""

    default_code = "corruption"


class Unsupported(OmnigraphError):
    """This version, this store or this interface cannot do what the caller asks for."""

    default_code = "unsupported"
