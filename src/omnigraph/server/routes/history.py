"""The states of a graph: snapshot, commits, changes and diff; branches; the schema and its changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.errors import InvalidInput
from omnigraph.history.feed import FeedLimits, page_to_json
from omnigraph.query.limits import Cancellation
from omnigraph.server.bodies import ApplyBody, BranchBody, MergeBody, SchemaBody
from omnigraph.server.calls import InjectedCall, KeyHeader, MatchHeader, Reply, precondition, replay_header
from omnigraph.server.documents import (
    BRANCH_EXAMPLE,
    COMMIT_EXAMPLE,
    DIFF_EXAMPLE,
    FEED_EXAMPLE,
    MERGE_EXAMPLE,
    PLAN_EXAMPLE,
    SCHEMA_EXAMPLE,
    SNAPSHOT_EXAMPLE,
    BranchAnswer,
    BranchesAnswer,
    ChangesAnswer,
    CommitAnswer,
    CommitsAnswer,
    DiffAnswer,
    MergeAnswer,
    PlanAnswer,
    SchemaAnswer,
    SnapshotAnswer,
    read_responses,
    write_responses,
)
from omnigraph.server.hosting import HostedGraph

router = APIRouter(tags=["history"])
branch_router = APIRouter(tags=["branches"])
schema_router = APIRouter(tags=["schema"])

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


@branch_router.get("/branches", responses=read_responses(BranchesAnswer, {"branches": ["main", "review/x"]}))
async def branches(call: InjectedCall) -> Response:
    """The names of all branches."""

    def work(graph: HostedGraph, _: Cancellation) -> Reply:
        return Reply({"branches": graph.with_branch(None, lambda handle: handle.branch.list())})

    return await call.read("branch_list", work)


@branch_router.post("/branches", status_code=201, responses=write_responses(BranchAnswer, BRANCH_EXAMPLE, 201))
async def create(call: InjectedCall, body: BranchBody) -> Response:
    """Create a branch. No data is copied."""

    def create_branch(handle: Graph) -> Reply:
        created = handle.branch.create(body.name, body.source, actor=call.actor, message=body.message)
        info = created.view(fresh=False).commits(limit=1)[0]
        facts = {"branch": body.name, "commit_id": info.commit_id, "source": info.parents[0]}
        return Reply(facts, 201, info.commit_id)

    return await call.write("branch_create", lambda graph: graph.with_branch(None, create_branch))


@branch_router.delete("/branches", responses=write_responses(BranchAnswer, {**BRANCH_EXAMPLE, "deleted": True}))
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


@branch_router.post("/branches/merge", responses=write_responses(MergeAnswer, MERGE_EXAMPLE))
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
