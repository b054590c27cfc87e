"""Turns errors into HTTP responses with the code, message and details that the facade gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from omnigraph.api.remote.errors import CLASS_HEADER
from omnigraph.errors import (
    Conflict,
    Corruption,
    Forbidden,
    InvalidInput,
    NotFound,
    OmnigraphError,
    Overloaded,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
    Unknown,
    Unsupported,
    WriterFenced,
)
from omnigraph.history.feed import ChangeFeedGap

_RETRY_AFTER_S = 1
_BY_CODE = {
    "slow_body": 408,
    "limit_exceeded": 413,
    "too_many_writes": 429,
    "cancelled": 503,
    "method_not_allowed": 405,
}
_BY_CLASS: tuple[tuple[type[OmnigraphError], int], ...] = (
    (ChangeFeedGap, 410),
    (NotFound, 404),
    (PreconditionFailed, 412),
    (Conflict, 409),
    (WriterFenced, 409),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (Unavailable, 503),
    (Unknown, 503),
    (Corruption, 500),
    (InvalidInput, 400),
    (Unsupported, 400),
)


def http_status(error: OmnigraphError) -> int:
    by_class = next((status for kind, status in _BY_CLASS if isinstance(error, kind)), 500)
    return _BY_CODE.get(error.code, by_class)


def error_response(error: OmnigraphError) -> Response:
    status = http_status(error)
    headers = {CLASS_HEADER: type(error).__name__}
    if status in (429, 503):
        headers["Retry-After"] = str(error.details.get("retry_after_s", _RETRY_AFTER_S))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="omnigraph"'
    return Response(encode_json(error.to_json()), status, headers, "application/json")


def internal_error() -> OmnigraphError:
    """An unforeseen exception: the log has it, under the request's id."""
    return OmnigraphError("internal error", code="internal", advice="The server's log has it under this request's id")


def bad_request_error(errors: Sequence[Mapping[str, Any]]) -> InvalidInput:
    """A request that does not have the documented shape, with all of its faults."""
    faults = [
        {"where": ".".join(str(part) for part in error.get("loc", ())), "message": str(error.get("msg", ""))}
        for error in errors
    ]
    first = f"{faults[0]['where']}: {faults[0]['message']}" if faults else "it cannot be read"
    and_more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return InvalidInput(
        f"the request is malformed: {first}{and_more}",
        code="bad_request",
        advice="See /docs for the shape",
        violations=faults,
    )


def error_for_status(status: int, detail: str) -> OmnigraphError:
    """A refusal of the web framework itself, as an error of this project."""
    if status == 404:
        return NotFound("there is nothing at this address", code="no_such_route", advice="See /docs for the routes")
    if status == 405:
        return Unsupported("this address does not know this method", code="method_not_allowed", advice="See /docs")
    return InvalidInput(f"the request is malformed: {detail}", code="bad_request", advice="See /docs for the shape")


def body_too_large(bound: int, value: int | None) -> InvalidInput:
    return InvalidInput(
        f"the request body is larger than {bound} bytes",
        code="limit_exceeded",
        advice="Send less at once, or use `load`, whose body has no limit",
        limit="request_body_bytes",
        bound=bound,
        value=value,
    )


def slow_body(bound_s: float) -> Unavailable:
    return Unavailable(
        f"too little of the request body came within {bound_s:g} s",
        code="slow_body",
        advice="Send it again without pauses",
        limit="body_timeout_s",
        bound=bound_s,
    )


def too_many_writes(bound: int) -> Overloaded:
    return Overloaded(
        f"{bound} writes of this actor are in flight already",
        code="too_many_writes",
        advice="Wait for one of them to end",
        limit="writes_per_actor",
        bound=bound,
    )


def too_many_requests(bound: int) -> Overloaded:
    return Overloaded(
        f"the server has {bound} requests in flight already",
        advice="Try again later",
        limit="requests_in_flight",
        bound=bound,
    )


def encode_json(document: Any) -> bytes:
    """One JSON document. Half surrogates, which UTF-8 cannot carry, are escaped."""
    text = json.dumps(document, ensure_ascii=False, default=str, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, default=str, separators=(",", ":")).encode()
