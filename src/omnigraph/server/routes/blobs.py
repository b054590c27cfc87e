"""The bytes of Blob properties, with ranges."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from omnigraph.errors import NotFound
from omnigraph.query.limits import Cancellation
from omnigraph.server import documents as d
from omnigraph.server.calls import OneCall
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.routes.history import At, Branch

router = APIRouter(tags=["blobs"])

_BYTES = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "All bytes.", "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}},
    206: {"description": "The range asked for.", "content": {_BYTES: {"schema": {"type": "string"}}}},
    304: {"description": "The caller has these bytes already."},
    416: {"description": "The range is outside of the value.", "content": {_BYTES: {"schema": {"type": "string"}}}},
}


@router.get("/blob", response_class=Response, responses={**d.reading(None), **_ANSWERS})
async def blob(
    call: OneCall,
    type_name: Annotated[str, Query(alias="type", description="Type of the entity.", examples=["Document"])],
    row_id: Annotated[str, Query(alias="id", description="Id of the entity.")],
    name: Annotated[str, Query(alias="property", description="Property that holds the bytes.")],
    branch: Branch = None,
    at: At = None,
    wanted: Annotated[str | None, Header(alias="Range")] = None,
    known: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """The bytes of one property of one entity. The ETag is a hash of them."""

    def work(graph: HostedGraph, _: Cancellation) -> Response:
        data = graph.look(branch, at, lambda view, _: view.blob(type_name, row_id, name))
        if data is None:
            raise NotFound(f"`{name}` of {type_name} {row_id!r} is null", code="no_blob", type=type_name, id=row_id)
        return _answer(data, wanted, known)

    return await call.read("blob", work)


def _answer(data: bytes, wanted: str | None, known: str | None) -> Response:
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    if known is not None and tag in known:
        return Response(None, 304, headers)
    found = _RANGE.fullmatch(wanted.strip()) if wanted else None
    if found is None or found.groups() == ("", ""):
        return Response(data, 200, headers, _BYTES)
    first, last = _bounds(found[1], found[2], len(data))
    if first > last:
        return Response(b"", 416, {**headers, "Content-Range": f"bytes */{len(data)}"}, _BYTES)
    told = {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
    return Response(data[first : last + 1], 206, told, _BYTES)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Both ends inclusive; first > last if nothing is in there. `-n` means the last n bytes."""
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else (1, 0)
    return int(first), min(int(last) if last else size - 1, size - 1)
