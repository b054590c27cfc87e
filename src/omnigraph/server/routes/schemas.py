"""The schema: show, plan, apply."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.query.limits import Cancellation
from omnigraph.server.bodies import ApplyBody, SchemaBody
from omnigraph.server.calls import InjectedCall, KeyHeader, MatchHeader, Reply, precondition, replay_header
from omnigraph.server.documents import (
    PLAN_EXAMPLE,
    SCHEMA_EXAMPLE,
    PlanAnswer,
    SchemaAnswer,
    read_responses,
    write_responses,
)
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.routes.history import At, Branch

router = APIRouter(tags=["schema"])


@router.get("/schema", responses=read_responses(SchemaAnswer, SCHEMA_EXAMPLE))
async def schema(call: InjectedCall, branch: Branch = None, at: At = None) -> Response:
    """The schema, exactly as it was given."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def show_schema(view: GraphView, _: str | None) -> Reply:
            catalog = view.catalog
            types = [type_def.table_key for type_def in catalog.types]
            document = {
                "commit_id": view.commit_id, "schema": catalog.hash, "types": types, "source": catalog.source,
            }  # fmt: skip
            return Reply(document, commit_id=view.commit_id)

        return graph.with_view(branch, at, show_schema)

    return await call.read("schema", work)


@router.post("/schema/plan", responses=read_responses(PlanAnswer, PLAN_EXAMPLE))
async def plan(call: InjectedCall, body: SchemaBody) -> Response:
    """The steps that lead to a new schema, and whether they are possible. Nothing is written."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.with_branch(body.branch, lambda handle: _plan_change(handle, body.schema_))

    return await call.read("schema_plan", work)


@router.post("/schema/apply", responses=write_responses(PlanAnswer, PLAN_EXAMPLE))
async def apply(call: InjectedCall, body: ApplyBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Bring a branch to a new schema, in one commit. `allow_data_loss` without `confirm` only shows the plan."""
    if_commit = precondition(match, body.if_commit)

    def apply_schema(handle: Graph) -> Reply:
        if body.allow_data_loss and not body.confirm:
            schema_plan = handle.schema.plan(as_text(body.schema_))
            schema_plan.check()
            return Reply({"branch": handle.branch_name, "commit_id": None, **schema_plan.to_json()})
        receipt = handle.schema.apply(
            as_text(body.schema_),
            allow_data_loss=body.allow_data_loss,
            actor=call.actor,
            message=body.message,
            client_key=call.graph_key(key),
            if_commit=if_commit,
        )
        document = {"branch": handle.branch_name, "commit_id": receipt.commit_id, **receipt.result}
        return Reply(document, commit_id=receipt.commit_id, headers=replay_header(receipt.replayed))

    return await call.write("schema_apply", lambda graph: graph.with_branch(body.branch, apply_schema), key)


def _plan_change(handle: Graph, text: str) -> Reply:
    return Reply({"branch": handle.branch_name, **handle.schema.plan(as_text(text)).to_json()})


def as_text(schema: str) -> str:
    """The text, changed so that the facade cannot take it for a path: callers must not reach the server's files."""
    return schema if "{" in schema or "\n" in schema else f"{schema}\n"
