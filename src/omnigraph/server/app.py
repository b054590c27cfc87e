"""The application: routes, errors, life cycle."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import omnigraph
from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.errors import OmnigraphError
from omnigraph.server.background import upkeep
from omnigraph.server.calls import Service
from omnigraph.server.door import BodyRefused, Door
from omnigraph.server.hosting import Host
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import answer_of, by_status, malformed
from omnigraph.server.routes import blobs, branches, bulk, history, queries, schemas, service
from omnigraph.server.running import Workers
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import Tokens, tokens_of_environment

_DESCRIPTION = """Typed property graphs on plain object storage, over HTTP.

Every refusal is `{"error", "code", …}` with a stable code. `Idempotency-Key` makes a write safe to repeat;
`If-Match` makes it conditional on the newest commit. 429 and 503 carry `Retry-After`."""


def create_app(
    settings: ServerSettings,
    *,
    config: Config | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> FastAPI:
    """The ASGI application of one server. Graphs are opened when it starts, or when they are first asked for."""
    config, clock, ids = config or Config.from_environment(), clock or SystemClock(), ids or SystemIds()
    journal, metrics = Journal(clock), Metrics()
    parts = Service(
        settings,
        Host(settings, metrics, config, clock),
        Workers(settings.limits, metrics, journal),
        metrics,
        journal,
    )

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        with parts.host.running():
            try:
                await parts.workers.start(lambda: _warm(parts))
                async with upkeep(parts, config):
                    yield
            finally:
                await parts.workers.stop()
                journal.tell("stopped")

    app = FastAPI(
        title="Omnigraph",
        version=omnigraph.__version__,
        description=_DESCRIPTION,
        lifespan=life,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service = parts
    app.include_router(service.router)
    for module in (queries, branches, history, schemas, blobs, bulk):
        app.include_router(module.router, prefix="/graphs/{graph}")
    _handle_errors(app)
    app.add_middleware(
        Door,
        tokens=Tokens(clock, tokens_of_environment(ids, os.environ), settings.tokens),
        metrics=metrics,
        journal=journal,
        clock=clock,
        ids=ids,
        body_bytes=settings.limits.request_body_bytes,
        body_timeout_s=settings.limits.body_timeout_s,
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _warm(parts: Service) -> None:
    """Open what can be opened; the rest is tried again when it is asked for."""
    for one in parts.host:
        try:
            one.site()
            with one.meter.operation("open"):
                one.on(None, lambda graph: graph.view().catalog)
        except OmnigraphError as error:
            parts.journal.tell("graph cannot be opened", 30, error, graph=one.name)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(OmnigraphError)
    async def known(_: Request, error: OmnigraphError) -> Response:
        return answer_of(error)

    @app.exception_handler(RequestValidationError)
    async def wrong_shape(_: Request, error: RequestValidationError) -> Response:
        return answer_of(malformed(error.errors()))

    @app.exception_handler(HTTPException)
    async def of_the_framework(_: Request, error: HTTPException) -> Response:
        answer = answer_of(
            error.error if isinstance(error, BodyRefused) else by_status(error.status_code, error.detail)
        )
        answer.headers.update(error.headers or {})
        return answer


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The document with the token scheme; the framework's own 422 is gone, since every refusal has our shape."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        schemes = {"bearer": {"type": "http", "scheme": "bearer", "description": "From `omnigraph token create`."}}
        made.setdefault("components", {})["securitySchemes"] = schemes
        for path, methods in made["paths"].items():
            for operation in methods.values():
                operation["responses"].pop("422", None)
                if path != "/healthz":
                    operation["security"] = [{"bearer": []}, {}]
        for name in ("HTTPValidationError", "ValidationError"):
            made["components"].get("schemas", {}).pop(name, None)
        app.openapi_schema = made
    return app.openapi_schema
