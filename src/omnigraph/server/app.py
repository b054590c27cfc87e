"""The server: `create_app` builds the application, with its error handlers and the routes about the server itself.

`serve` runs the application as a process: it checks who could reach the server, opens the port and sets up TLS.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import omnigraph
from omnigraph.clock import Clock, IdSource, SystemClock, SystemIds
from omnigraph.config import Config
from omnigraph.errors import InvalidInput, OmnigraphError, Unavailable
from omnigraph.log.stamp import INTERNAL_SCHEMA
from omnigraph.query.limits import Cancellation
from omnigraph.server.calls import Reply, Service, service_of
from omnigraph.server.documents import (
    GRAPHS_EXAMPLE,
    HEALTH_EXAMPLE,
    GraphsAnswer,
    HealthAnswer,
    problem_responses,
    server_responses,
)
from omnigraph.server.hosting import Host, HostedGraph, run_upkeep
from omnigraph.server.logs import Journal, log_to_stderr
from omnigraph.server.metrics import Metrics
from omnigraph.server.middleware import BodyRefused, RequestMiddleware
from omnigraph.server.problems import bad_request_error, error_for_status, error_response
from omnigraph.server.routes import bulk, history, queries
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import VARIABLE, Tokens, tokens_of_environment
from omnigraph.server.workers import Workers

_DESCRIPTION = """Typed property graphs on plain object storage, over HTTP.

Every refusal is `{"error", "code", …}` with a stable code. `Idempotency-Key` makes a write safe to repeat;
`If-Match` makes it conditional on the newest commit. 429 and 503 carry `Retry-After`."""

server_router = APIRouter(tags=["server"])


def create_app(
    settings: ServerSettings,
    *,
    config: Config | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> FastAPI:
    """The ASGI application of one server. Graphs are opened when it starts, or by the first request for them."""
    config, clock, ids = config or Config.from_environment(), clock or SystemClock(), ids or SystemIds()
    journal, metrics = Journal(clock), Metrics()
    service = Service(
        settings,
        Host(settings, metrics, config, clock),
        Workers(settings.limits, metrics, journal),
        metrics,
        journal,
    )

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        with service.host.running():
            try:
                await service.workers.start(lambda: _open_graphs(service))
                async with run_upkeep(service, config):
                    yield
            finally:
                await service.workers.stop()
                journal.write("stopped")

    app = FastAPI(
        title="Omnigraph",
        version=omnigraph.__version__,
        description=_DESCRIPTION,
        lifespan=life,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    app.include_router(server_router)
    routers = (
        queries.router,
        history.branch_router,
        history.router,
        history.schema_router,
        queries.blob_router,
        bulk.router,
    )
    for router in routers:
        app.include_router(router, prefix="/graphs/{graph}")
    _handle_errors(app)
    app.add_middleware(
        RequestMiddleware,
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


def _open_graphs(service: Service) -> None:
    """Open the graphs. One that cannot be opened is tried again by the first request for it."""
    for graph in service.host:
        try:
            graph.runtime()
            with graph.meter.operation("open"):
                graph.with_branch(None, lambda handle: handle.view().catalog)
        except OmnigraphError as error:
            service.journal.write("graph cannot be opened", 30, error, graph=graph.name)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(OmnigraphError)
    async def answer_error(_: Request, error: OmnigraphError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def answer_malformed(_: Request, error: RequestValidationError) -> Response:
        return error_response(bad_request_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def answer_framework_error(_: Request, error: HTTPException) -> Response:
        response = error_response(
            error.error if isinstance(error, BodyRefused) else error_for_status(error.status_code, error.detail)
        )
        response.headers.update(error.headers or {})
        return response


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The document with the token scheme, without the framework's own 422: every refusal has the shape `Problem`."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        schemes = {"bearer": {"type": "http", "scheme": "bearer", "description": "From `omnigraph token create`."}}
        document.setdefault("components", {})["securitySchemes"] = schemes
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["responses"].pop("422", None)
                if path != "/healthz":
                    operation["security"] = [{"bearer": []}, {}]
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"].get("schemas", {}).pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema


@server_router.get("/healthz", responses=server_responses(HealthAnswer, HEALTH_EXAMPLE))
async def healthz() -> Response:
    """Whether the server runs, its version, and the storage format it reads and writes."""
    document = {"status": "ok", "version": omnigraph.__version__, "internal_schema_version": INTERNAL_SCHEMA}
    return Reply(document).response()


@server_router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus text.", "content": {"text/plain": {}}},
        **problem_responses(401),
    },
)
async def metrics(request: Request) -> Response:
    """Counters for Prometheus: answers, seconds, and what each operation cost in requests to the store."""
    return Response(service_of(request).metrics.page(), media_type=CONTENT_TYPE_LATEST)


@server_router.get("/graphs", responses=server_responses(GraphsAnswer, GRAPHS_EXAMPLE, 401, 503))
async def graphs(request: Request) -> Response:
    """The graphs of this server. One that cannot be opened now says why."""
    service = service_of(request)
    request.scope["omnigraph.operation"] = "graphs"

    def work(_: Cancellation) -> Response:
        service.host.discover()
        return Reply({"graphs": [_describe_graph(graph) for graph in service.host]}).response()

    return await service.workers.read(request, work)


def _describe_graph(graph: HostedGraph) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": graph.name, "graph_id": None, "read_only": graph.settings.read_only}
    try:
        facts["graph_id"] = graph.runtime().stamp.graph_id
    except OmnigraphError as error:
        facts["problem"] = {"code": error.code}
    return facts


_BACKLOG = 512
#: Longer than clients keep idle connections: so a connection that they use has not just been closed from this side.
_KEEP_ALIVE_S = 75


def serve(settings: ServerSettings, environment: dict[str, str], *, config: Config | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are answered before the end."""
    check_exposure(settings, environment)
    if not settings.graphs and settings.directory is None:
        raise InvalidInput("there is no graph to serve", code="bad_config", advice="Name one, or a directory of graphs")
    clock = SystemClock()
    log_to_stderr(clock)
    tls_options = _tls_options(settings)
    app = create_app(settings, config=config)
    with open_listener(settings) as listener:
        host, port = listener.getsockname()[:2]
        url_host = f"[{host}]" if ":" in host else host
        names = [graph.name for graph in settings.graphs]
        Journal(clock).write(
            "listening", url=f"{'https' if tls_options else 'http'}://{url_host}:{port}", port=port, graphs=names
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                log_level=logging.WARNING,
                timeout_graceful_shutdown=round(settings.limits.stop_timeout_s),
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                **tls_options,
            )
        )
        # The web server sends itself the signal again at its end; here a requested stop is no failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
        server.run(sockets=[listener])


def _tls_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of the web server for TLS; raises for files that it could not use."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return {}
    if cert is None:
        raise InvalidInput("there is a TLS key without a certificate", code="bad_tls", advice="Give --tls-cert as well")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInput(
            f"the certificate {cert} cannot be used: {error}",
            code="bad_tls",
            advice="Give a PEM file with the certificate chain, and its key in --tls-key or in the same file",
        ) from error
    return {"ssl_certfile": str(cert), "ssl_keyfile": str(key) if key is not None else None}


def check_exposure(settings: ServerSettings, environment: dict[str, str]) -> None:
    """Refuse to let callers from other machines in without tokens, unless `allow_unauthenticated` is set."""
    needs_tokens = settings.tokens is not None or bool(environment.get(VARIABLE, "").strip())
    if needs_tokens or settings.allow_unauthenticated or is_loopback(settings.host):
        return
    raise InvalidInput(
        f"{settings.host} can be reached from other machines and there are no tokens",
        code="unauthenticated_server",
        advice="Give --tokens FILE (see `omnigraph token create`), or --allow-unauthenticated to let everybody write",
        host=settings.host,
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_listener(settings: ServerSettings) -> socket.socket:
    """A socket for the web server; port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # By the protocol's name: only then asyncio sends small answers at once, instead of after a delayed ACK of 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}",
            code="address_in_use",
            advice="Choose another --host or --port",
        ) from error
    return listener
