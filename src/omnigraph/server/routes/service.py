"""The server itself: health, metrics, the graphs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

import omnigraph
from omnigraph.errors import OmnigraphError
from omnigraph.log.stamp import INTERNAL_SCHEMA
from omnigraph.query.limits import Cancellation
from omnigraph.server import documents as d
from omnigraph.server.calls import Reply, service_of
from omnigraph.server.hosting import HostedGraph

router = APIRouter(tags=["server"])


@router.get("/healthz", responses=d.serving(d.HealthAnswer, d.HEALTH_EXAMPLE))
async def healthz() -> Response:
    """Whether the server runs, its version, and the storage format it reads and writes."""
    document = {"status": "ok", "version": omnigraph.__version__, "internal_schema_version": INTERNAL_SCHEMA}
    return Reply(document).response()


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text.", "content": {"text/plain": {}}}, **d.problems(401)},
)
async def metrics(request: Request) -> Response:
    """Counters for Prometheus: answers, seconds, and what each operation cost in requests to the store."""
    return Response(service_of(request).metrics.page(), media_type=CONTENT_TYPE_LATEST)


@router.get("/graphs", responses=d.serving(d.GraphsAnswer, d.GRAPHS_EXAMPLE, 401, 503))
async def graphs(request: Request) -> Response:
    """The graphs of this server. One that cannot be opened now says why."""
    service = service_of(request)
    request.scope["omnigraph.operation"] = "graphs"

    def work(_: Cancellation) -> Response:
        service.host.discover()
        return Reply({"graphs": [_facts(one) for one in service.host]}).response()

    return await service.workers.read(request, work)


def _facts(one: HostedGraph) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": one.name, "graph_id": None, "read_only": one.settings.read_only}
    try:
        facts["graph_id"] = one.site().stamp.graph_id
    except OmnigraphError as error:
        facts["problem"] = {"code": error.code}
    return facts
