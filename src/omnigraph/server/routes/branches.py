"""Branches: list, create, delete, merge."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.query.limits import Cancellation
from omnigraph.server.bodies import BranchBody, MergeBody
from omnigraph.server.calls import InjectedCall, KeyHeader, MatchHeader, Reply, precondition
from omnigraph.server.documents import (
    BRANCH_EXAMPLE,
    MERGE_EXAMPLE,
    BranchAnswer,
    BranchesAnswer,
    MergeAnswer,
    read_responses,
    write_responses,
)
from omnigraph.server.hosting import HostedGraph

router = APIRouter(tags=["branches"])


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
