"""The history: snapshot, commits, changes, diff."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from omnigraph.api.view import GraphView
from omnigraph.errors import InvalidInput
from omnigraph.history.feed import FeedLimits, page_json
from omnigraph.query.limits import Cancellation
from omnigraph.server import documents as d
from omnigraph.server.calls import OneCall, Reply
from omnigraph.server.hosting import HostedGraph

router = APIRouter(tags=["history"])

_FILTERS = ("actor", "kind", "branch")
_PAGE = 1000
Branch = Annotated[str | None, Query(description="Branch; `main` if it is not named.")]
At = Annotated[str | None, Query(description="This commit, of any branch, instead of a branch's newest.")]
Kinds = Annotated[list[Literal["node", "edge"]] | None, Query(alias="kind", description="Only these kinds.")]
Types = Annotated[list[str] | None, Query(alias="type", description="Only these types.")]
Ops = Annotated[list[Literal["insert", "update", "delete"]] | None, Query(alias="op", description="Only these.")]
Cursor = Annotated[str | None, Query(description="Go on after the page that gave this cursor.")]
PageSize = Annotated[int, Query(ge=1, le=10_000, description="How many changes at most.")]


async def _page(
    kinds: Kinds = None, types: Types = None, ops: Ops = None, limit: PageSize = _PAGE, cursor: Cursor = None
) -> dict[str, Any]:
    """What a caller wants of a difference, as the facade takes it."""
    return {"kinds": kinds or (), "types": types or (), "ops": ops or (), "limit": limit, "cursor": cursor}


WantedPage = Annotated[dict[str, Any], Depends(_page)]


@router.get("/snapshot", responses=d.reading(d.SnapshotAnswer, d.SNAPSHOT_EXAMPLE))
async def snapshot(
    call: OneCall,
    branch: Branch = None,
    at: At = None,
    indexes: Annotated[bool, Query(description="Also how much of its table every index covers.")] = False,
) -> Response:
    """Commit, storage format and tables of a branch or a commit."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def shown(view: GraphView, name: str | None) -> Reply:
            return Reply({"branch": name, **view.snapshot(indexes=indexes)}, commit_id=view.commit_id)

        return graph.look(branch, at, shown)

    return await call.read("snapshot", work)


@router.get("/commits", responses=d.reading(d.CommitsAnswer, {"commits": [d.COMMIT_EXAMPLE]}))
async def commits(
    call: OneCall,
    branch: Branch = None,
    at: At = None,
    limit: Annotated[int, Query(ge=0, le=100_000, description="How many at most; 0 for all.")] = 20,
    filters: Annotated[
        list[str] | None, Query(alias="filter", description="`actor=NAME`, `kind=KIND` or `branch=NAME`; repeatable.")
    ] = None,
) -> Response:
    """Commits, the newest first, along first parents; with several filters a commit must pass them all."""
    wanted = _filters(filters or [])

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def listed(view: GraphView, _: str | None) -> Reply:
            return Reply({"commits": [one.to_json() for one in view.commits(limit or None, **wanted)]})

        return graph.look(branch, at, listed)

    return await call.read("commits", work)


@router.get("/commits/{commit_id}", responses=d.reading(d.CommitAnswer, d.COMMIT_EXAMPLE))
async def commit(call: OneCall, commit_id: str) -> Response:
    """One commit: who, when, why, and what it changed."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.look(None, commit_id, lambda view, _: Reply(view.commit(), commit_id=view.commit_id))

    return await call.read("commit", work)


@router.get("/commits/{commit_id}/changes", responses=d.reading(d.DiffAnswer, d.DIFF_EXAMPLE))
async def commit_changes(call: OneCall, commit_id: str, page: WantedPage) -> Response:
    """What one commit changed against its first parent, in pages."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.on(None, lambda one: Reply(one.commit_changes(commit_id, **page).to_json()))

    return await call.read("commit_changes", work)


@router.get("/diff", responses=d.reading(d.DiffAnswer, d.DIFF_EXAMPLE))
async def diff(
    call: OneCall,
    page: WantedPage,
    old: Annotated[str, Query(description="Branch or commit to compare with.", examples=["main"])],
    new: Annotated[str | None, Query(description="Branch or commit; `main` if it is not named.")] = None,
) -> Response:
    """What changed from one branch or commit to another, in pages that stay with the same two commits."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.on(None, lambda one: Reply(one.diff_page(old, new, **page).to_json()))

    return await call.read("diff", work)


@router.get("/changes", responses=d.reading(d.ChangesAnswer, d.FEED_EXAMPLE, 410))
async def changes(
    call: OneCall,
    branch: Branch = None,
    since: Annotated[str | None, Query(description="Cursor of a page, or a commit id; from the birth without.")] = None,
    limit: Annotated[int, Query(ge=1, le=512, description="How many commits at most.")] = 512,
    most: Annotated[
        int,
        Query(alias="changes", ge=1, le=1000, description="How many changes at most; a commit is never cut in two."),
    ] = 1000,
) -> Response:
    """Commits of a branch after a cursor, oldest first, each with its changes; 410 if they cannot be told."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        limits = FeedLimits(commits=limit, changes=most)
        return graph.on(branch, lambda one: Reply(page_json(one.changes(since, limits=limits))))

    return await call.read("changes", work)


def _filters(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or name not in _FILTERS or name in found:
            raise InvalidInput(
                f"filter {one!r} is not understood", code="bad_request", advice=f"Use {', '.join(_FILTERS)}, once each"
            )
        found[name] = value
    return found
