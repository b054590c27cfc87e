"""From an error to what a person or a script sees: one text, one JSON object, one exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import typer

from omnigraph.errors import Conflict, InvalidInput, MergeConflict, OmnigraphError, PreconditionFailed

DEBUG_VARIABLE = "OMNIGRAPH_DEBUG"
_SHOWN_VIOLATIONS = 20


class ExitCode(IntEnum):
    """What a script can act on; the `code` of the error says more."""

    OK = 0
    ERROR = 1
    USAGE = 2
    CONFLICT = 3
    PRECONDITION = 4
    VALIDATION = 5
    INTERRUPTED = 130


_CODES: tuple[tuple[type[OmnigraphError], ExitCode], ...] = (
    (Conflict, ExitCode.CONFLICT),
    (PreconditionFailed, ExitCode.PRECONDITION),
    (InvalidInput, ExitCode.VALIDATION),
)


def exit_code_of(error: OmnigraphError) -> ExitCode:
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.ERROR)


def report_error(error: OmnigraphError, *, as_json: bool) -> ExitCode:
    """Say on stderr what went wrong and what to do."""
    if as_json:
        _print_json(error.to_json())
    else:
        _print_text(error.code, error.message, _violations(error), error.advice)
    _print_trace(error)
    return exit_code_of(error)


def report_usage(error: typer.TyperException, *, as_json: bool) -> ExitCode:
    """A command line that cannot be understood."""
    message = error.format_message().rstrip()
    context = getattr(error, "ctx", None)
    advice = f"See `{context.command_path} --help`" if context is not None else None
    if as_json:
        _print_json(OmnigraphError(message.rstrip("."), code="usage", advice=advice).to_json())
    elif context is not None and message == context.get_help().rstrip():
        typer.echo(message, err=True)
    else:
        _print_text("usage", message, [], advice)
    return ExitCode.USAGE


def report_defect(error: Exception, *, as_json: bool) -> ExitCode:
    """Something nobody foresaw. Without the debug variable the user gets one line, not our stack."""
    message = f"internal error: {type(error).__name__}: {error}"
    advice = f"Set {DEBUG_VARIABLE}=1 to see where, and report it"
    if as_json:
        _print_json(OmnigraphError(message, code="internal", advice=advice).to_json())
    else:
        _print_text("internal", message, [], advice)
    _print_trace(error)
    return ExitCode.ERROR


def _violations(error: OmnigraphError) -> list[str]:
    """Every conflict of a merge; violations when there are several: the error's own message names the first only."""
    if isinstance(error, MergeConflict):
        return [f"{conflict['kind']}: {conflict['message']}" for conflict in error.conflicts]
    if "rejects" in error.details:
        return _rejects(error.details)
    violations: Sequence[Mapping[str, Any]] = error.details.get("violations", ())
    if len(violations) < 2:
        return []
    lines = [f"{item.get('type', '')} {item.get('id', '')}: {item.get('message', item)}" for item in violations]
    hidden_count = max(error.details.get("violation_count", 0), len(violations)) - _SHOWN_VIOLATIONS
    return lines[:_SHOWN_VIOLATIONS] + ([f"and {hidden_count} more"] if hidden_count > 0 else [])


def _rejects(details: Mapping[str, Any]) -> list[str]:
    """Rejected records of a load as `file:line:column: [code] reason`, and how many there are of each code."""
    lines = []
    for reject in details["rejects"]:
        origin = ":".join(str(part) for part in (reject["file"], reject["line"] or None, reject["column"]) if part)
        reason = f"[{reject['code']}] {reject['reason']}"
        lines.append(f"{origin}: {reason}" if origin else reason)
    totals = ", ".join(f"{code} {count}" for code, count in details.get("totals", {}).items())
    hidden_count = details.get("reject_count", 0) - len(lines)
    return [*lines, *([f"and {hidden_count} more"] if hidden_count > 0 else []), f"in all: {totals}"]


def _print_text(code: str, message: str, more: Sequence[str], advice: str | None) -> None:
    colour = False if os.environ.get("NO_COLOR") else None
    title = typer.style(f"error[{code}]", fg="red", bold=True)
    typer.echo(f"{title}: {message}", err=True, color=colour)
    for line in more:
        typer.echo(f"  - {line}", err=True)
    if advice:
        typer.echo(f"  {advice}", err=True)


def _print_json(document: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False, default=str), err=True)


def _print_trace(error: Exception) -> None:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error, file=sys.stderr)
