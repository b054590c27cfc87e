"""Branches: list, create, delete, merge."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.query.limits import Cancellation
from omnigraph.server import documents as d
from omnigraph.server.bodies import BranchBody, MergeBody
from omnigraph.server.calls import KeyHeader, MatchHeader, OneCall, Reply, precondition
from omnigraph.server.hosting import HostedGraph

router = APIRouter(tags=["branches"])


@router.get("/branches", responses=d.reading(d.BranchesAnswer, {"branches": ["main", "review/x"]}))
async def branches(call: OneCall) -> Response:
    """The names of all branches."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return Reply({"branches": graph.on(None, lambda one: one.branch.list())})

    return await call.read("branch_list", work)


@router.post("/branches", status_code=201, responses=d.writing(d.BranchAnswer, d.BRANCH_EXAMPLE, 201))
async def create(call: OneCall, body: BranchBody) -> Response:
    """Create a branch. No data is copied."""

    def made(one: Graph) -> Reply:
        created = one.branch.create(body.name, body.source, actor=call.actor, message=body.message)
        info = created.view(fresh=False).commits(limit=1)[0]
        facts = {"branch": body.name, "commit_id": info.commit_id, "source": info.parents[0]}
        return Reply(facts, 201, info.commit_id)

    return await call.write("branch_create", lambda graph: graph.on(None, made))


@router.delete("/branches", responses=d.writing(d.BranchAnswer, {**d.BRANCH_EXAMPLE, "deleted": True}))
async def delete(
    call: OneCall,
    name: Annotated[str, Query(description="Name of the branch.", examples=["review/x"])],
    message: str | None = None,
) -> Response:
    """Delete a branch. Its commits stay readable by their ids, and branches made from it live on."""

    def work(graph: HostedGraph) -> Reply:
        def deleted(one: Graph) -> Reply:
            one.branch.delete(name, actor=call.actor, message=message)
            return Reply({"branch": name, "commit_id": last, "deleted": True})

        last = _newest(graph, name)
        reply = graph.on(None, deleted)
        graph.forget(name)
        return reply

    return await call.write("branch_delete", work)


@router.post("/branches/merge", responses=d.writing(d.MergeAnswer, d.MERGE_EXAMPLE))
async def merge(call: OneCall, body: MergeBody, key: KeyHeader = None, match: MatchHeader = None) -> Response:
    """Merge a branch into another, in one commit; 409 with all conflicts and nothing written if there are any."""
    if_commit = precondition(match, body.if_commit)

    def merged(one: Graph) -> Reply:
        report = one.branch.merge(
            body.source,
            body.into or one.branch_name,
            cell_level=body.cell_level,
            resolve=body.resolve,
            per_entity={(each.table_key, each.id): each.take for each in body.per_entity},
            dry_run=body.dry_run,
            delete_branch=body.delete_branch,
            actor=call.actor,
            message=body.message,
            client_key=call.kept(key),
            if_commit=if_commit,
        )
        return Reply(report.to_json(), commit_id=report.commit_id)

    return await call.write("merge", lambda graph: graph.on(None, merged), key)


def _newest(graph: HostedGraph, name: str) -> str | None:
    """Where the branch stands; `main` is refused by the deed itself."""
    if name.casefold() == "main":
        return None
    return graph.on(None, lambda one: one.on_branch(name).view(fresh=False).commit_id)
