"""Turns errors of Lance into typed errors, by what the caller can do next.

Lance raises ValueError, OSError, RuntimeError or ArrowInvalid for any cause, and only the text names the cause; the
guard tests pin the phrases that this module recognises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from omnigraph.errors import Corruption, Forbidden, InvalidInput, OmnigraphError, Unavailable, Unsupported
from omnigraph.storage.store import ObjectMissing


class AlreadyBorn(Exception):
    """A second birth of a table failed because version 1 exists."""


#: A birth is prepared on version 0, which never exists; once there is a version 1, Lance looks for it.
_BORN = re.compile(r"Dataset already exists|/_versions/(?:0|18446744073709551615)\.manifest was not found")
_PLACE = re.compile(r"\S*/\S*")
_MISSING = re.compile(r"\bnot found\b|NoSuchKey|No such file or directory|status code: 404", re.IGNORECASE)
_REFUSED = re.compile(
    r"status code: 40[13]|lacked the necessary privileges|AccessDenied|permission denied|unauthenticated",
    re.IGNORECASE,
)
_BROKEN = re.compile(
    r"file size is too small|fill whole buffer|corrupt|magic|unexpected end|failed to decode|decode error"
    r"|out of (?:range|bounds)|outside file|invalid range|sufficient data|checksum|panicked",
    re.IGNORECASE,
)
_IO = re.compile(r"LanceError\(IO\)|Generic \w+ error|HTTP|timed? ?out|connection|os error", re.IGNORECASE)
_BEYOND = re.compile(r"Substrait", re.IGNORECASE)
_WRONG = re.compile(r"No match for FieldRef|No field named|Schema error", re.IGNORECASE)


_FULL = re.compile(r"os error (?:28|122)\b|No space left on device|Disk quota exceeded")
_READ_ONLY = re.compile(r"os error 30\b|Read-only file system")


def classify_error(error: BaseException, action: str) -> OmnigraphError:
    """The typed error for an error of Lance. The order matters: a 404 also carries the words of an I/O error."""
    text = str(error)
    words = _PLACE.sub(
        " ", text
    )  # without paths: a folder may be called "Forbidden", and a line of source be numbered 403
    if _FULL.search(words):
        advice = "Free some space on that file system and try again"
        return Unavailable(f"{action}: the disk is full ({text})", code="disk_full", advice=advice)
    if _READ_ONLY.search(words):
        advice = "Mount the file system writable, or open the graph read-only"
        return Unavailable(f"{action}: nothing can be written ({text})", code="read_only_file_system", advice=advice)
    if _REFUSED.search(words):
        return Forbidden(f"{action}: the store refused access ({text})", advice="Check the credentials and permissions")
    if _BEYOND.search(words):
        return Unsupported(f"{action}: Lance cannot evaluate this filter ({text})")
    if _WRONG.search(words):
        return InvalidInput(f"{action}: {text}")
    if _MISSING.search(words):
        return ObjectMissing(f"{action}: a file is missing ({text})")
    if _BROKEN.search(words) or not (isinstance(error, OSError) or _IO.search(words)):
        return Corruption(f"{action}: unreadable ({text})", advice="Run `omnigraph verify` to see what is damaged")
    return Unavailable(f"{action}: the store did not answer ({text})", advice="Try again later")


@contextmanager
def lance_call(action: str) -> Iterator[None]:
    """Wraps every call into Lance; `action` starts the error message and names the table and what is done to it."""
    try:
        yield
    except OmnigraphError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        if _BORN.search(str(error)):
            raise AlreadyBorn from error
        raise classify_error(error, action) from error
    except BaseException as error:
        # A panic inside Lance arrives as a BaseException of its binding layer.
        if type(error).__name__ == "PanicException":
            raise classify_error(error, action) from error
        raise


@contextmanager
def lance_read(table: str) -> Iterator[None]:
    """Wraps reads of a pinned version, where a missing file means that the table is damaged."""
    try:
        with lance_call(f"read table {table}"):
            yield
    except ObjectMissing as error:
        raise Corruption(error.message, advice="Run `omnigraph verify` to see what is damaged", table=table) from error
