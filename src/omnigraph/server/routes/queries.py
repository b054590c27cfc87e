"""`query`, `mutate`, stored queries, and the bytes of Blob properties."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.remote.wire import ARROW_TYPE, encode_arrow
from omnigraph.api.view import GraphView
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.query.limits import Cancellation, QueryLimits
from omnigraph.query.run.result import Result
from omnigraph.server.bodies import MutateBody, QueryBody, StoredBody
from omnigraph.server.calls import GraphCall, InjectedCall, KeyHeader, MatchHeader, Reply, precondition, replay_header
from omnigraph.server.documents import (
    QUERIES_EXAMPLE,
    QUERY_EXAMPLE,
    WRITE_EXAMPLE,
    QueriesAnswer,
    QueryAnswer,
    WriteAnswer,
    read_responses,
    write_responses,
)
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.routes.history import At, Branch
from omnigraph.server.stored import describe_query, is_mutation

router = APIRouter(tags=["queries"])
blob_router = APIRouter(tags=["blobs"])

_BYTES = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_BLOB_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "All bytes.", "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}},
    206: {"description": "The range asked for.", "content": {_BYTES: {"schema": {"type": "string"}}}},
    304: {"description": "The caller has these bytes already."},
    416: {"description": "The range is outside of the value.", "content": {_BYTES: {"schema": {"type": "string"}}}},
}


@router.post("/query", responses=read_responses(QueryAnswer, QUERY_EXAMPLE))
async def query(call: InjectedCall, body: QueryBody) -> Response:
    """Run a reading query on a branch as it is now, or at a commit."""
    return await _read(call, body)


@router.post("/mutate", responses=write_responses(WriteAnswer, WRITE_EXAMPLE))
async def mutate(call: InjectedCall, body: MutateBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Insert, update and delete, in one commit or not at all. Without a match nothing is committed."""
    batch = tuple({**body.params, **params} for params in body.batch) if body.batch is not None else (body.params,)
    mutation = _RemoteMutation(body.source, batch, body.name, body.strict, body.branch, body.message, body.on_conflict)
    return await mutation.run(call, key, precondition(match, body.if_commit))


@router.get("/queries", responses=read_responses(QueriesAnswer, QUERIES_EXAMPLE))
async def queries(call: InjectedCall, branch: str | None = None) -> Response:
    """The stored queries as typed tools: a JSON schema of their parameters, and their columns."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        stored_queries, problems = graph.stored.read()
        catalog = graph.with_branch(branch, lambda handle: handle.view().catalog)
        tools = [describe_query(query, catalog) for _, query in sorted(stored_queries.items())]
        return Reply({"queries": tools, "problems": problems})

    return await call.read("queries", work)


@router.post("/queries/{name}", responses=write_responses(QueryAnswer, QUERY_EXAMPLE))
async def stored(
    call: InjectedCall, name: str, body: StoredBody, key: KeyHeader = None, match: MatchHeader = None
) -> Response:
    """Call a stored query; one that changes the graph answers as `mutate` does."""

    def look_up(_: Cancellation) -> tuple[str, bool]:
        query = call.graph.stored.get(name)
        return query.source, call.graph.with_branch(
            body.branch, lambda handle: is_mutation(query, handle.view().catalog)
        )

    source, is_write = await call.service.workers.read(call.request, look_up)
    if not is_write:
        return await _read(
            call, QueryBody(source=source, params=body.params, name=name, branch=body.branch, at=body.at)
        )
    if body.at is not None:
        raise InvalidInput("a commit cannot be changed", code="bad_request", advice="Leave out `at`")
    mutation = _RemoteMutation(source, (body.params,), name, False, body.branch, body.message)
    return await mutation.run(call, key, precondition(match, body.if_commit))


async def _read(call: GraphCall, body: QueryBody) -> Response:
    wants_arrow = ARROW_TYPE in call.request.headers.get("accept", "")
    server_limits = call.service.settings.limits

    def work(graph: HostedGraph, cancellation: Cancellation) -> Reply | Response:
        limits = QueryLimits(server_limits.query_memory_bytes, server_limits.query_timeout_s, cancellation=cancellation)

        def run_query(view: GraphView, _: str | None) -> Reply | Response:
            if body.explain or body.profile:
                explanation = view.explain(
                    body.source, body.params, name=body.name, limits=limits, profile=body.profile
                )
                return Reply(explanation.to_json(), commit_id=view.commit_id)
            result = view.query(body.source, body.params, name=body.name, limits=limits)
            return _arrow_response(result) if wants_arrow else Reply(result.to_json(), commit_id=result.commit_id)

        return graph.with_view(body.branch, body.at, run_query)

    return await call.read("query", work)


def _arrow_response(result: Result) -> Response:
    return Response(encode_arrow(result), 200, {"ETag": f'"{result.commit_id}"'}, ARROW_TYPE)


@dataclass(frozen=True)
class _RemoteMutation:
    """One mutation that a caller sent, ready for the facade."""

    source: str
    batch: tuple[dict[str, Any], ...]
    name: str | None
    strict: bool
    branch: str | None
    message: str | None
    on_conflict: Literal["retry", "fail"] = "retry"

    async def run(self, call: GraphCall, key: str | None, if_commit: str | None) -> Response:
        def run_mutation(handle: Graph) -> Reply:
            receipt = handle.mutate_many(
                self.source,
                self.batch,
                name=self.name,
                strict=self.strict,
                actor=call.actor,
                message=self.message,
                client_key=call.graph_key(key),
                if_commit=if_commit,
                on_conflict=self.on_conflict,
            )
            return receipt_reply(handle.branch_name, receipt)

        return await call.write("mutate", lambda graph: graph.with_branch(self.branch, run_mutation), key)


def receipt_reply(branch: str, receipt: Receipt) -> Reply:
    """The shape shared with `omnigraph mutate --json`."""
    document = {
        "branch": branch,
        "commit_id": receipt.commit_id,
        "counts": dict(receipt.counts),
        "replayed": receipt.replayed,
        "attempts": receipt.attempts,
        "waited_s": receipt.waited_s,
    }
    return Reply(document, commit_id=receipt.commit_id, headers=replay_header(receipt.replayed))


@blob_router.get("/blob", response_class=Response, responses={**read_responses(None), **_BLOB_RESPONSES})
async def blob(
    call: InjectedCall,
    type_name: Annotated[str, Query(alias="type", description="Type of the entity.", examples=["Document"])],
    row_id: Annotated[str, Query(alias="id", description="Id of the entity.")],
    name: Annotated[str, Query(alias="property", description="Property that holds the bytes.")],
    branch: Branch = None,
    at: At = None,
    byte_range: Annotated[str | None, Header(alias="Range")] = None,
    if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """The bytes of one property of one entity. The ETag is a hash of them."""

    def work(graph: HostedGraph, _: Cancellation) -> Response:
        data = graph.with_view(branch, at, lambda view, _: view.blob(type_name, row_id, name))
        if data is None:
            raise NotFound(f"`{name}` of {type_name} {row_id!r} is null", code="no_blob", type=type_name, id=row_id)
        return _blob_response(data, byte_range, if_none_match)

    return await call.read("blob", work)


def _blob_response(data: bytes, byte_range: str | None, if_none_match: str | None) -> Response:
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {"ETag": tag, "Accept-Ranges": "bytes"}
    if if_none_match is not None and tag in if_none_match:
        return Response(None, 304, headers)
    match = _RANGE.fullmatch(byte_range.strip()) if byte_range else None
    if match is None or match.groups() == ("", ""):
        return Response(data, 200, headers, _BYTES)
    first, last = _first_and_last_byte(match[1], match[2], len(data))
    if first > last:
        return Response(b"", 416, {**headers, "Content-Range": f"bytes */{len(data)}"}, _BYTES)
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return Response(data[first : last + 1], 206, headers, _BYTES)


def _first_and_last_byte(first: str, last: str, size: int) -> tuple[int, int]:
    """Both ends inclusive; first > last if the range is empty. `-n` means the last n bytes."""
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else (1, 0)
    return int(first), min(int(last) if last else size - 1, size - 1)
