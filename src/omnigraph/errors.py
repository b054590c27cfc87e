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

    def __init_subclass__(cls, *, code: str | None = None) -> None:
        cls.default_code = code or cls.default_code

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


class Conflict(OmnigraphError, code="conflict"):
    """Another writer committed a conflicting change first."""

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


class KeyConflict(Conflict, code="key_conflict"):
    """A strict insert named an id that exists."""

    retryable = False

    @classmethod
    def on_row(cls, table_key: str, row_id: str) -> KeyConflict:
        return cls(
            f"{table_key} already has a row with id {row_id!r}",
            advice="Use another key, or an upsert instead of a strict insert",
            key_conflict={"table_key": table_key, "id": row_id},
        )


class MergeConflict(Conflict, code="merge_conflict"):
    """Two branches changed the same thing; `details['merge_conflicts']` lists every case."""

    retryable = False

    @property
    def conflicts(self) -> list[dict[str, Any]]:
        return list(self.details.get("merge_conflicts", []))


class Contention(Conflict, code="contention"):
    """The retry budget ran out. Nothing was written."""


class IntentEnded(Conflict, code="intent_ended"):
    """Another process ended the bulk operation, since its heartbeat had stopped. None of its changes are visible."""


class InvalidInput(OmnigraphError, code="invalid_input"):
    """The input is wrong; repeating the call does not help."""


class ParseError(InvalidInput, code="parse_error"):
    """Text that is not in the language. Details carry file, line and column."""


class TypeCheckError(InvalidInput, code="type_error"):
    """Text that parses but does not fit the schema."""


class ConstraintViolation(InvalidInput, code="constraint_violation"):
    """A change would violate constraints of the schema; `details['violations']` lists them."""

    @property
    def violations(self) -> list[dict[str, Any]]:
        return list(self.details.get("violations", []))


class LoadRejected(InvalidInput, code="load_rejected"):
    """A load found bad records, and `on_error` is "fail"."""


class DamagedInput(InvalidInput, code="corrupt_file"):
    """A file that cannot be read to its end, or whose columns do not fit its type. No record of it can be skipped."""


class NotFound(OmnigraphError, code="not_found"):
    """The named thing does not exist."""


class SnapshotExpired(NotFound, code="snapshot_expired"):
    """The commit existed and was collected by cleanup."""


class BranchClosed(NotFound, code="branch_closed"):
    """The branch incarnation this handle follows was deleted."""


class PreconditionFailed(OmnigraphError, code="precondition_failed"):
    """`if_commit` does not name the current state."""


class WriterFenced(OmnigraphError, code="writer_fenced"):
    """Another writer holds this branch exclusively, or has taken it over."""


class Unknown(OmnigraphError, code="unknown_outcome"):
    """The write may or may not have landed. Repeat it with the same client key to learn which."""


class Unavailable(OmnigraphError, code="unavailable"):
    """The store did not answer, or asks for less load."""

    retryable = True


class Overloaded(Unavailable, code="overloaded"):
    """A server has as many requests in flight as it accepts, in total or of this actor. Nothing was begun."""


class Forbidden(OmnigraphError, code="forbidden"):
    """The store, or a server, refused the credentials or the permissions behind them."""


class Unauthenticated(Forbidden, code="unauthenticated"):
    """A server needs a token, and the caller sent none, an unknown one or an expired one."""


class Corruption(OmnigraphError, code="corruption"):
    """Stored data contradicts itself. Nothing was changed; writing is refused."""


class Unsupported(OmnigraphError, code="unsupported"):
    """This version, this store or this interface cannot do what the caller asks for."""
