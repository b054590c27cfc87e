"""`load` and `export`: bodies of any size, streamed both ways with bounded memory, and progress as it happens."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.api import Graph
from omnigraph.api.view import GraphView
from omnigraph.errors import OmnigraphError
from omnigraph.load.export.export import record_stream
from omnigraph.progress import Standing, show_on
from omnigraph.server.calls import GraphCall, InjectedCall, KeyHeader, MatchHeader, Reply, precondition
from omnigraph.server.documents import LOAD_EXAMPLE, LoadAnswer, read_responses, write_responses
from omnigraph.server.hosting import restore_client_key
from omnigraph.server.problems import http_status, internal_error
from omnigraph.server.routes.history import Branch
from omnigraph.server.workers import ClientLeft, Workers

router = APIRouter(tags=["bulk"])

A = TypeVar("A")

EVENTS_TYPE = "text/event-stream"
NDJSON_TYPE = "application/x-ndjson"
_CHUNK_BYTES = 1 << 20
_PING_S = 15.0
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


@router.post("/load", responses=write_responses(LoadAnswer, LOAD_EXAMPLE), openapi_extra=_BODY)
async def load(
    call: InjectedCall,
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
    call.require_write_role()
    call.set_operation("load")
    options: dict[str, Any] = {
        "mode": mode,
        "on_error": on_error,
        "on_duplicate": on_duplicate,
        "engine": engine,
        "actor": call.actor,
        "message": message,
        "client_key": call.graph_key(key),
        "if_commit": precondition(match, if_commit),
        "on_conflict": on_conflict,
    }
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(call.service.workers.hold_slot(call.actor or ""))
        folder = stack.enter_context(scratch_directory())
        path = folder / "body.jsonl"
        size_bytes = await spool_body(call.request, path, call.service.workers)
        progress = ProgressEvents()
        progress.report({"name": "received", "size_bytes": size_bytes})
        future = call.service.workers.start(lambda: _load(call, branch, path, options, progress, key))
        # The directory and the slot belong to the thread from now on, even if the caller leaves.
        resources = stack.pop_all()
        future.add_done_callback(lambda _: asyncio.ensure_future(resources.aclose()))
    if EVENTS_TYPE in call.request.headers.get("accept", ""):
        on_end = AsyncExitStack()
        on_end.callback(_log_if_unfinished, call, future)
        return StreamedResponse(progress.events(future, lambda: _last_event(future)), on_end, media_type=EVENTS_TYPE)
    return (await call.service.workers.await_write(call.request, future)).response()


@router.get(
    "/export",
    response_class=Response,
    responses={
        **read_responses(None),
        200: {"description": "One JSON object per line.", "content": {NDJSON_TYPE: {"schema": {"type": "string"}}}},
    },
)
async def export(
    call: InjectedCall,
    branch: Branch = None,
    at: Annotated[str | None, Query(description="This commit, of any branch, instead of a branch's newest.")] = None,
    types: Annotated[list[str] | None, Query(alias="type", description="Only these types.")] = None,
) -> Response:
    """All rows of a branch or a commit as NDJSON, nodes first, in the form that `load` takes."""
    call.set_operation("export")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(call.service.workers.hold_slot())
        steps = StreamSteps(call.service.workers, lambda: call.graph.meter.operation("export"))
        stack.push_async_callback(steps.close)
        commit_id, rows = await steps.run(lambda: call.graph.with_view(branch, at, lambda view, _: _rows(view, types)))
        first = await steps.run(lambda: next(rows, b""))  # a refusal must come before the answer has begun
        resources = stack.pop_all()

    async def body() -> AsyncIterator[bytes]:
        block = first
        while block:
            yield block
            block = await steps.run(lambda: next(rows, b""))

    return StreamedResponse(body(), resources, headers={"ETag": f'"{commit_id}"'}, media_type=NDJSON_TYPE)


def _rows(view: GraphView, types: list[str] | None) -> tuple[str, Iterator[bytes]]:
    """The commit id, and its records as pieces of whole lines; pieces without rows are left out."""
    table_keys = None if types is None else [name if ":" in name else view.table(name).key for name in types]
    return view.commit_id, (piece for piece in record_stream(view.state, table_keys) if piece)


def _load(
    call: GraphCall, branch: str | None, path: Path, options: dict[str, Any], progress: ProgressEvents, key: str | None
) -> Reply:
    def load_body(handle: Graph) -> Reply:
        load_options = dict(options)
        if options["on_error"] == "skip":
            load_options["rejects"] = str(path.parent / "rejects")
        with show_on(progress):
            report = handle.load(str(path), **load_options)
        document = {"branch": handle.branch_name, **report.to_json(), "rejects_path": None}
        return Reply(document, commit_id=report.commit_id)

    call.graph.runtime()
    with call.graph.meter.operation("load"), restore_client_key(key):
        try:
            return call.graph.with_branch(branch, load_body)
        except OmnigraphError as error:
            _remove_paths(error, f"{path.parent}/")
            raise


def _log_if_unfinished(call: GraphCall, future: asyncio.Future[Reply]) -> None:
    if not future.done():
        future.add_done_callback(lambda ended: call.service.workers.log_orphan(call.request, ended))


def _last_event(future: asyncio.Future[Reply]) -> bytes:
    """The event that ends the stream: the document, or the error with the status it would have had."""
    error = future.exception()
    if error is None:
        return encode_event("result", future.result().document)
    refusal = error if isinstance(error, OmnigraphError) else internal_error()
    return encode_event("error", {"status": http_status(refusal), "class": type(refusal).__name__, **refusal.to_json()})


def _remove_paths(error: OmnigraphError, folder: str) -> None:
    """Name records by their line alone: callers must not learn where the body lies on this machine."""
    error.message = error.message.replace(folder, "")
    error.details = {
        name: _remove_folder(value, folder) for name, value in error.details.items() if name != "rejects_path"
    }


def _remove_folder(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return value.replace(folder, "")
    if isinstance(value, list):
        return [_remove_folder(item, folder) for item in value]
    return {name: _remove_folder(item, folder) for name, item in value.items()} if isinstance(value, dict) else value


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for one request; it is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-http-") as folder:
        yield Path(folder)


async def spool_body(request: Request, path: Path, workers: Workers) -> int:
    """Write the request's body to a file, a chunk at a time, and return its size. Raises if the body breaks off."""
    size = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        pending = bytearray()
        async for chunk in request.stream():
            pending += chunk
            size += len(chunk)
            if len(pending) >= _CHUNK_BYTES:
                block, pending = bytes(pending), bytearray()
                await workers.start(lambda block=block: _write(descriptor, block))  # type: ignore[misc]
        _write(descriptor, bytes(pending))
    except ClientDisconnect:
        raise ClientLeft from None
    finally:
        os.close(descriptor)
    return size


def _write(descriptor: int, block: bytes) -> None:
    while block:
        block = block[os.write(descriptor, block) :]


class StreamSteps:
    """One operation whose steps run in threads, one after the other and all in the same context.

    A thread is held only during a step, not while a slow caller reads.
    """

    def __init__(self, workers: Workers, operation: Callable[[], AbstractContextManager[None]]) -> None:
        self._workers = workers
        self._context = copy_context()
        self._operation = operation()
        self._turn = Lock()
        self._has_begun = False

    async def run(self, work: Callable[[], A]) -> A:
        return await asyncio.shield(self._workers.start(lambda: self._in_turn(lambda: self._step(work))))

    async def close(self) -> None:
        """End the operation, after the step that may still run: one context cannot be in two threads."""
        await asyncio.shield(self._workers.start(lambda: self._in_turn(self._end)))

    def _in_turn(self, work: Callable[[], A]) -> A:
        with self._turn:
            return self._context.run(work)

    def _end(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self._operation.__exit__(None, None, None)

    def _step(self, work: Callable[[], A]) -> A:
        if not self._has_begun:
            self._operation.__enter__()
            self._has_begun = True
        return work()


class StreamedResponse(StreamingResponse):
    """A streamed answer that releases its resources when it ends, also if nobody reads it."""

    def __init__(self, body: AsyncIterator[bytes], resources: AsyncExitStack, **options: Any) -> None:
        super().__init__(body, **options)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)


def encode_event(name: str, document: Any) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False, default=str)}\n\n".encode()


class ProgressEvents:
    """A `Display` that turns the progress which a thread reports into events on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def report(self, step: Any) -> None:
        """Pass a step from the thread that does the work to the event loop."""
        with suppress(RuntimeError):  # the loop is gone: the server stops
            self._loop.call_soon_threadsafe(self._queue.put_nowait, step)

    def show(self, standing: Standing) -> None:
        self.report(asdict(standing))

    def finish(self, standing: Standing) -> None:
        self.report({**asdict(standing), "finished": True})

    def close(self) -> None:
        """Nothing to release: the last event is the operation's own answer."""

    async def events(self, future: asyncio.Future[Any], last_event: Callable[[], bytes]) -> AsyncIterator[bytes]:
        """Events until `future` is done, then the last one. A comment every few seconds keeps idle connections open."""
        while not future.done() or not self._queue.empty():
            step = asyncio.ensure_future(self._queue.get())
            both: set[asyncio.Future[Any]] = {step, future}
            await asyncio.wait(both, timeout=_PING_S, return_when="FIRST_COMPLETED")
            if step.done():
                yield encode_event("progress", step.result())
            else:
                step.cancel()
                if not future.done():
                    yield b": still at work\n\n"
        yield last_event()
