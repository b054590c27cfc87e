"""`load` and `export`: bodies of any size, streamed both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.errors import OmnigraphError
from omnigraph.load.export.export import record_stream
from omnigraph.progress import show_on
from omnigraph.server import documents as d
from omnigraph.server.calls import Call, KeyHeader, MatchHeader, OneCall, Reply, precondition
from omnigraph.server.keys import told_as_given
from omnigraph.server.problems import defect, status_of
from omnigraph.server.routes.history import Branch
from omnigraph.server.streaming import EVENTS_TYPE, NDJSON_TYPE, Progress, Steps, Streamed, event, scratch, spooled

router = APIRouter(tags=["bulk"])

Mode = Literal["append", "merge", "overwrite"]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON_TYPE: {
                "schema": {"type": "string"},
                "example": '{"type": "Person", "data": {"name": "Ada"}}\n{"edge": "Knows", "from": "Ada", "to": "B"}\n',
            }
        },
    }
}


@router.post("/load", responses=d.writing(d.LoadAnswer, d.LOAD_EXAMPLE), openapi_extra=_BODY)
async def load(
    call: OneCall,
    branch: Branch = None,
    mode: Annotated[Mode, Query(description="What becomes of rows that are there.")] = "merge",
    on_error: Annotated[Literal["fail", "skip"], Query(description="Refuse all, or load the other records.")] = "fail",
    on_duplicate: Annotated[Literal["last", "fail"], Query(description="Two records of one id in the body.")] = "last",
    engine: Annotated[
        Literal["auto", "local", "spark"], Query(description="`auto` takes Spark for bodies from 1 MiB.")
    ] = "auto",
    on_conflict: Annotated[
        Literal["retry", "fail"], Query(description="Run it again on the newer state, or fail.")
    ] = "retry",
    message: Annotated[str | None, Query(description="Why, for the history.")] = None,
    if_commit: Annotated[str | None, Query(description="As If-Match.")] = None,
    key: KeyHeader = None,
    match: MatchHeader = None,
) -> Response:
    """Load records, one JSON object per line, in one commit.

    The body has no limit: it goes to a file first. With `Accept: text/event-stream` the answer is a stream of
    `progress` events, ended by `result` or `error`; without it, one document when all is done.
    """
    call.may_write()
    call.named("load")
    options: dict[str, Any] = {
        "mode": mode,
        "on_error": on_error,
        "on_duplicate": on_duplicate,
        "engine": engine,
        "actor": call.actor,
        "message": message,
        "client_key": call.kept(key),
        "if_commit": precondition(match, if_commit),
        "on_conflict": on_conflict,
    }
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(call.service.workers.admitted(call.actor or ""))
        folder = stack.enter_context(scratch())
        path = folder / "body.jsonl"
        size_bytes = await spooled(call.request, path, call.service.workers)
        progress = Progress()
        progress.tell({"name": "received", "size_bytes": size_bytes})
        done = call.service.workers.start(lambda: _load(call, branch, path, options, progress, key))
        # The directory and the place belong to the thread from now on, whatever becomes of the caller.
        kept = stack.pop_all()
        done.add_done_callback(lambda _: asyncio.ensure_future(kept.aclose()))
    if EVENTS_TYPE in call.request.headers.get("accept", ""):
        watched = AsyncExitStack()
        watched.callback(_tell_if_unheard, call, done)
        return Streamed(progress.events(done, lambda: _last(done)), watched, media_type=EVENTS_TYPE)
    return (await call.service.workers.outlived(call.request, done)).response()


@router.get(
    "/export",
    response_class=Response,
    responses={
        **d.reading(None),
        200: {"description": "One JSON object per line.", "content": {NDJSON_TYPE: {"schema": {"type": "string"}}}},
    },
)
async def export(
    call: OneCall,
    branch: Branch = None,
    at: Annotated[str | None, Query(description="This commit, of any branch, instead of a branch's newest.")] = None,
    types: Annotated[list[str] | None, Query(alias="type", description="Only these types.")] = None,
) -> Response:
    """All rows of a branch or a commit as NDJSON, nodes first, in the form that `load` takes."""
    call.named("export")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(call.service.workers.admitted())
        steps = Steps(call.service.workers, lambda: call.graph.meter.operation("export"))
        stack.push_async_callback(steps.close)
        commit_id, rows = await steps.run(lambda: call.graph.look(branch, at, lambda view, _: _rows(view, types)))
        first = await steps.run(lambda: next(rows, b""))  # a refusal must come before the answer has begun
        kept = stack.pop_all()

    async def body() -> AsyncIterator[bytes]:
        block = first
        while block:
            yield block
            block = await steps.run(lambda: next(rows, b""))

    return Streamed(body(), kept, headers={"ETag": f'"{commit_id}"'}, media_type=NDJSON_TYPE)


def _rows(view: GraphView, types: list[str] | None) -> tuple[str, Iterator[bytes]]:
    """Pieces of whole lines; a piece without rows is left out."""
    known = None if types is None else [name if ":" in name else view.table(name).key for name in types]
    return view.commit_id, (piece for piece in record_stream(view.state, known) if piece)


def _load(
    call: Call, branch: str | None, path: Path, options: dict[str, Any], progress: Progress, key: str | None
) -> Reply:
    def loaded(one: Graph) -> Reply:
        given = dict(options)
        if given["on_error"] == "skip":
            given["rejects"] = str(path.parent / "rejects")
        with show_on(progress):
            report = one.load(str(path), **given)
        document = {"branch": one.branch_name, **report.to_json(), "rejects_path": None}
        return Reply(document, commit_id=report.commit_id)

    call.graph.site()
    with call.graph.meter.operation("load"), told_as_given(key):
        try:
            return call.graph.on(branch, loaded)
        except OmnigraphError as error:
            _without_paths(error, f"{path.parent}/")
            raise


def _tell_if_unheard(call: Call, done: asyncio.Future[Reply]) -> None:
    if not done.done():
        done.add_done_callback(lambda ended: call.service.workers.tell_orphan(call.request, ended))


def _last(done: asyncio.Future[Reply]) -> bytes:
    """The event that ends the stream: the document, or the error with the status it would have had."""
    error = done.exception()
    if error is None:
        return event("result", done.result().document)
    known = error if isinstance(error, OmnigraphError) else defect()
    return event("error", {"status": status_of(known), "class": type(known).__name__, **known.to_json()})


def _without_paths(error: OmnigraphError, folder: str) -> None:
    """Records are named by their line alone: where the body lay on this machine is nobody's business."""
    error.message = error.message.replace(folder, "")
    error.details = {name: _cut(value, folder) for name, value in error.details.items() if name != "rejects_path"}


def _cut(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return value.replace(folder, "")
    if isinstance(value, list):
        return [_cut(one, folder) for one in value]
    return {name: _cut(one, folder) for name, one in value.items()} if isinstance(value, dict) else value
