"""The schema: show, plan, apply."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.query.limits import Cancellation
from omnigraph.server import documents as d
from omnigraph.server.bodies import ApplyBody, SchemaBody
from omnigraph.server.calls import KeyHeader, MatchHeader, OneCall, Reply, precondition, replayed
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.routes.history import At, Branch

router = APIRouter(tags=["schema"])


@router.get("/schema", responses=d.reading(d.SchemaAnswer, d.SCHEMA_EXAMPLE))
async def schema(call: OneCall, branch: Branch = None, at: At = None) -> Response:
    """The schema, exactly as it was given."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def shown(view: GraphView, _: str | None) -> Reply:
            catalog = view.catalog
            types = [one.table_key for one in catalog.types]
            document = {
                "commit_id": view.commit_id, "schema": catalog.hash, "types": types, "source": catalog.source,
            }  # fmt: skip
            return Reply(document, commit_id=view.commit_id)

        return graph.look(branch, at, shown)

    return await call.read("schema", work)


@router.post("/schema/plan", responses=d.reading(d.PlanAnswer, d.PLAN_EXAMPLE))
async def plan(call: OneCall, body: SchemaBody) -> Response:
    """The steps that lead to a new schema, and whether they are possible. Nothing is written."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.on(body.branch, lambda one: _planned(one, body.schema_))

    return await call.read("schema_plan", work)


@router.post("/schema/apply", responses=d.writing(d.PlanAnswer, d.PLAN_EXAMPLE))
async def apply(call: OneCall, body: ApplyBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Bring a branch to a new schema, in one commit. `allow_data_loss` without `confirm` only shows the plan."""
    if_commit = precondition(match, body.if_commit)

    def applied(one: Graph) -> Reply:
        if body.allow_data_loss and not body.confirm:
            planned = one.schema.plan(as_text(body.schema_))
            planned.check()
            return Reply({"branch": one.branch_name, "commit_id": None, **planned.to_json()})
        receipt = one.schema.apply(
            as_text(body.schema_),
            allow_data_loss=body.allow_data_loss,
            actor=call.actor,
            message=body.message,
            client_key=call.kept(key),
            if_commit=if_commit,
        )
        document = {"branch": one.branch_name, "commit_id": receipt.commit_id, **receipt.result}
        return Reply(document, commit_id=receipt.commit_id, headers=replayed(receipt.replayed))

    return await call.write("schema_apply", lambda graph: graph.on(body.branch, applied), key)


def _planned(one: Graph, text: str) -> Reply:
    return Reply({"branch": one.branch_name, **one.schema.plan(as_text(text)).to_json()})


def as_text(schema: str) -> str:
    """A text that nothing below can take for a path: callers must not reach the server's files."""
    return schema if "{" in schema or "\n" in schema else f"{schema}\n"
