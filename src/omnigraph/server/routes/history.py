"""The history: snapshot, commits, changes, diff."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from omnigraph.api.view import GraphView
from omnigraph.errors import InvalidInput
from omnigraph.history.feed import FeedLimits, page_to_json
from omnigraph.query.limits import Cancellation
from omnigraph.server.calls import InjectedCall, Reply
from omnigraph.server.documents import (
    COMMIT_EXAMPLE,
    DIFF_EXAMPLE,
    FEED_EXAMPLE,
    SNAPSHOT_EXAMPLE,
    ChangesAnswer,
    CommitAnswer,
    CommitsAnswer,
    DiffAnswer,
    SnapshotAnswer,
    read_responses,
)
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


async def _page_options(
    kinds: Kinds = None, types: Types = None, ops: Ops = None, limit: PageSize = _PAGE, cursor: Cursor = None
) -> dict[str, Any]:
    """The part of a difference that a caller asks for, as the facade takes it."""
    return {"kinds": kinds or (), "types": types or (), "ops": ops or (), "limit": limit, "cursor": cursor}


PageOptions = Annotated[dict[str, Any], Depends(_page_options)]


@router.get("/snapshot", responses=read_responses(SnapshotAnswer, SNAPSHOT_EXAMPLE))
async def snapshot(
    call: InjectedCall,
    branch: Branch = None,
    at: At = None,
    indexes: Annotated[bool, Query(description="Also how much of its table every index covers.")] = False,
) -> Response:
    """Commit, storage format and tables of a branch or a commit."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def show_snapshot(view: GraphView, name: str | None) -> Reply:
            return Reply({"branch": name, **view.snapshot(indexes=indexes)}, commit_id=view.commit_id)

        return graph.with_view(branch, at, show_snapshot)

    return await call.read("snapshot", work)


@router.get("/commits", responses=read_responses(CommitsAnswer, {"commits": [COMMIT_EXAMPLE]}))
async def commits(
    call: InjectedCall,
    branch: Branch = None,
    at: At = None,
    limit: Annotated[int, Query(ge=0, le=100_000, description="How many at most; 0 for all.")] = 20,
    filters: Annotated[
        list[str] | None, Query(alias="filter", description="`actor=NAME`, `kind=KIND` or `branch=NAME`; repeatable.")
    ] = None,
) -> Response:
    """Commits, the newest first, along first parents; with several filters a commit must pass them all."""
    values = _parse_filters(filters or [])

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        def list_commits(view: GraphView, _: str | None) -> Reply:
            return Reply({"commits": [commit.to_json() for commit in view.commits(limit or None, **values)]})

        return graph.with_view(branch, at, list_commits)

    return await call.read("commits", work)


@router.get("/commits/{commit_id}", responses=read_responses(CommitAnswer, COMMIT_EXAMPLE))
async def commit(call: InjectedCall, commit_id: str) -> Response:
    """One commit: who, when, why, and what it changed."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.with_view(None, commit_id, lambda view, _: Reply(view.commit(), commit_id=view.commit_id))

    return await call.read("commit", work)


@router.get("/commits/{commit_id}/changes", responses=read_responses(DiffAnswer, DIFF_EXAMPLE))
async def commit_changes(call: InjectedCall, commit_id: str, page: PageOptions) -> Response:
    """What one commit changed against its first parent, in pages."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.with_branch(None, lambda handle: Reply(handle.commit_changes(commit_id, **page).to_json()))

    return await call.read("commit_changes", work)


@router.get("/diff", responses=read_responses(DiffAnswer, DIFF_EXAMPLE))
async def diff(
    call: InjectedCall,
    page: PageOptions,
    old: Annotated[str, Query(description="Branch or commit to compare with.", examples=["main"])],
    new: Annotated[str | None, Query(description="Branch or commit; `main` if it is not named.")] = None,
) -> Response:
    """What changed from one branch or commit to another, in pages that stay with the same two commits."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return graph.with_branch(None, lambda handle: Reply(handle.diff_page(old, new, **page).to_json()))

    return await call.read("diff", work)


@router.get("/changes", responses=read_responses(ChangesAnswer, FEED_EXAMPLE, 410))
async def changes(
    call: InjectedCall,
    branch: Branch = None,
    since: Annotated[str | None, Query(description="Cursor of a page, or a commit id; from the birth without.")] = None,
    limit: Annotated[int, Query(ge=1, le=512, description="How many commits at most.")] = 512,
    max_changes: Annotated[
        int,
        Query(alias="changes", ge=1, le=1000, description="How many changes at most; a commit is never cut in two."),
    ] = 1000,
) -> Response:
    """Commits of a branch after a cursor, oldest first, each with its changes; 410 if they cannot be told."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        limits = FeedLimits(commits=limit, changes=max_changes)
        return graph.with_branch(branch, lambda handle: Reply(page_to_json(handle.changes(since, limits=limits))))

    return await call.read("changes", work)


def _parse_filters(filters: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in filters:
        name, equals, value = text.partition("=")
        if not equals or name not in _FILTERS or name in values:
            raise InvalidInput(
                f"filter {text!r} is not understood", code="bad_request", advice=f"Use {', '.join(_FILTERS)}, once each"
            )
        values[name] = value
    return values
