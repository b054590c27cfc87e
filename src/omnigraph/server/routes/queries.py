"""`query`, `mutate`, and stored queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.remote.wire import ARROW_TYPE, encode_arrow
from omnigraph.api.view import GraphView
from omnigraph.commit.publish_plan import Receipt
from omnigraph.errors import InvalidInput
from omnigraph.query.limits import Cancellation, QueryLimits
from omnigraph.query.run.result import Result
from omnigraph.server import documents as d
from omnigraph.server.bodies import MutateBody, QueryBody, StoredBody
from omnigraph.server.calls import Call, KeyHeader, MatchHeader, OneCall, Reply, precondition, replayed
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.stored import described, is_mutation

router = APIRouter(tags=["queries"])


@router.post("/query", responses=d.reading(d.QueryAnswer, d.QUERY_EXAMPLE))
async def query(call: OneCall, body: QueryBody) -> Response:
    """Run a reading query on a branch as it is now, or at a commit."""
    return await _read(call, body)


@router.post("/mutate", responses=d.writing(d.WriteAnswer, d.WRITE_EXAMPLE))
async def mutate(call: OneCall, body: MutateBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Insert, update and delete, in one commit or not at all. Without a match nothing is committed."""
    batch = tuple({**body.params, **one} for one in body.batch) if body.batch is not None else (body.params,)
    change = _Change(body.source, batch, body.name, body.strict, body.branch, body.message, body.on_conflict)
    return await change.run(call, key, precondition(match, body.if_commit))


@router.get("/queries", responses=d.reading(d.QueriesAnswer, d.QUERIES_EXAMPLE))
async def queries(call: OneCall, branch: str | None = None) -> Response:
    """The stored queries as typed tools: a JSON schema of their parameters, and their columns."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        known, problems = graph.stored.read()
        catalog = graph.on(branch, lambda one: one.view().catalog)
        tools = [described(one, catalog) for _, one in sorted(known.items())]
        return Reply({"queries": tools, "problems": problems})

    return await call.read("queries", work)


@router.post("/queries/{name}", responses=d.writing(d.QueryAnswer, d.QUERY_EXAMPLE))
async def stored(
    call: OneCall, name: str, body: StoredBody, key: KeyHeader = None, match: MatchHeader = None
) -> Response:
    """Call a stored query; one that changes the graph answers as `mutate` does."""

    def looked_up(_: Cancellation) -> tuple[str, bool]:
        found = call.graph.stored.get(name)
        return found.source, call.graph.on(body.branch, lambda one: is_mutation(found, one.view().catalog))

    source, changes = await call.service.workers.read(call.request, looked_up)
    if not changes:
        return await _read(
            call, QueryBody(source=source, params=body.params, name=name, branch=body.branch, at=body.at)
        )
    if body.at is not None:
        raise InvalidInput("a commit cannot be changed", code="bad_request", advice="Leave out `at`")
    change = _Change(source, (body.params,), name, False, body.branch, body.message)
    return await change.run(call, key, precondition(match, body.if_commit))


async def _read(call: Call, body: QueryBody) -> Response:
    wants_arrow = ARROW_TYPE in call.request.headers.get("accept", "")
    bounds = call.service.settings.limits

    def work(graph: HostedGraph, cancellation: Cancellation) -> Reply | Response:
        limits = QueryLimits(bounds.query_memory_bytes, bounds.query_timeout_s, cancellation=cancellation)

        def ask(view: GraphView, _: str | None) -> Reply | Response:
            if body.explain or body.profile:
                found = view.explain(body.source, body.params, name=body.name, limits=limits, profile=body.profile)
                return Reply(found.to_json(), commit_id=view.commit_id)
            result = view.query(body.source, body.params, name=body.name, limits=limits)
            return _arrow(result) if wants_arrow else Reply(result.to_json(), commit_id=result.commit_id)

        return graph.look(body.branch, body.at, ask)

    return await call.read("query", work)


def _arrow(result: Result) -> Response:
    return Response(encode_arrow(result), 200, {"ETag": f'"{result.commit_id}"'}, ARROW_TYPE)


@dataclass(frozen=True)
class _Change:
    """A mutation as the facade takes it."""

    source: str
    batch: tuple[dict[str, Any], ...]
    name: str | None
    strict: bool
    branch: str | None
    message: str | None
    on_conflict: Literal["retry", "fail"] = "retry"

    async def run(self, call: Call, key: str | None, if_commit: str | None) -> Response:
        def done(one: Graph) -> Reply:
            receipt = one.mutate_many(
                self.source,
                self.batch,
                name=self.name,
                strict=self.strict,
                actor=call.actor,
                message=self.message,
                client_key=call.kept(key),
                if_commit=if_commit,
                on_conflict=self.on_conflict,
            )
            return receipt_reply(one.branch_name, receipt)

        return await call.write("mutate", lambda graph: graph.on(self.branch, done), key)


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
    return Reply(document, commit_id=receipt.commit_id, headers=replayed(receipt.replayed))
