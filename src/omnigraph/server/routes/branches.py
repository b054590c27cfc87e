"""Branches: list, create, delete, merge. The schema of a branch: show, plan, apply."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.query.limits import Cancellation
from omnigraph.server.bodies import ApplyBody, BranchBody, MergeBody, SchemaBody
from omnigraph.server.calls import InjectedCall, KeyHeader, MatchHeader, Reply, precondition, replay_header
from omnigraph.server.documents import (
    BRANCH_EXAMPLE,
    MERGE_EXAMPLE,
    PLAN_EXAMPLE,
    SCHEMA_EXAMPLE,
    BranchAnswer,
    BranchesAnswer,
    MergeAnswer,
    PlanAnswer,
    SchemaAnswer,
    read_responses,
    write_responses,
)
from omnigraph.server.hosting import HostedGraph
from omnigraph.server.routes.history import At, Branch

router = APIRouter(tags=["branches"])
schema_router = APIRouter(tags=["schema"])


@router.get("/branches", responses=read_responses(BranchesAnswer, {"branches": ["main", "review/x"]}))
async def branches(call: InjectedCall) -> Response:
    """The names of all branches."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return Reply({"branches": graph.with_branch(None, lambda handle: handle.branch.list())})

    return await call.read("branch_list", work)


@router.post("/branches", status_code=201, responses=write_responses(BranchAnswer, BRANCH_EXAMPLE, 201))
async def create(call: InjectedCall, body: BranchBody) -> Response:
    """Create a branch. No data is copied."""

    def create_branch(handle: Graph) -> Reply:
        created = handle.branch.create(body.name, body.source, actor=call.actor, message=body.message)
        info = created.view(fresh=False).commits(limit=1)[0]
        facts = {"branch": body.name, "commit_id": info.commit_id, "source": info.parents[0]}
        return Reply(facts, 201, info.commit_id)

    return await call.write("branch_create", lambda graph: graph.with_branch(None, create_branch))


@router.delete("/branches", responses=write_responses(BranchAnswer, {**BRANCH_EXAMPLE, "deleted": True}))
async def delete(
    call: InjectedCall,
    name: Annotated[str, Query(description="Name of the branch.", examples=["review/x"])],
    message: str | None = None,
) -> Response:
    """Delete a branch. Its commits stay readable by their ids, and branches made from it live on."""

    def work(graph: HostedGraph) -> Reply:
        def delete_branch(handle: Graph) -> Reply:
            handle.branch.delete(name, actor=call.actor, message=message)
            return Reply({"branch": name, "commit_id": last_commit_id, "deleted": True})

        last_commit_id = _newest_commit_id(graph, name)
        reply = graph.with_branch(None, delete_branch)
        graph.forget(name)
        return reply

    return await call.write("branch_delete", work)


@router.post("/branches/merge", responses=write_responses(MergeAnswer, MERGE_EXAMPLE))
async def merge(call: InjectedCall, body: MergeBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Merge a branch into another, in one commit; 409 with all conflicts and nothing written if there are any."""
    if_commit = precondition(match, body.if_commit)

    def merge_branch(handle: Graph) -> Reply:
        report = handle.branch.merge(
            body.source,
            body.into or handle.branch_name,
            cell_level=body.cell_level,
            resolve=body.resolve,
            per_entity={(entity.table_key, entity.id): entity.take for entity in body.per_entity},
            dry_run=body.dry_run,
            delete_branch=body.delete_branch,
            actor=call.actor,
            message=body.message,
            client_key=call.graph_key(key),
            if_commit=if_commit,
        )
        return Reply(report.to_json(), commit_id=report.commit_id)

    return await call.write("merge", lambda graph: graph.with_branch(None, merge_branch), key)


def _newest_commit_id(graph: HostedGraph, name: str) -> str | None:
    """The newest commit of the branch; None for `main`, which the deletion itself refuses."""
    if name.casefold() == "main":
        return None
    return graph.with_branch(None, lambda handle: handle.on_branch(name).view(fresh=False).commit_id)


@schema_router.get("/schema", responses=read_responses(SchemaAnswer, SCHEMA_EXAMPLE))
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


@schema_router.post("/schema/plan", responses=read_responses(PlanAnswer, PLAN_EXAMPLE))
async def plan(call: InjectedCall, body: SchemaBody) -> Response:
    """The steps that lead to a new schema, and whether they are possible. Nothing is written."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.with_branch(body.branch, lambda handle: _plan_change(handle, body.schema_))

    return await call.read("schema_plan", work)


@schema_router.post("/schema/apply", responses=write_responses(PlanAnswer, PLAN_EXAMPLE))
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
