"""One call: who asks, for which graph, how its work runs in a thread, and how its result becomes a response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Path
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.remote.decode import REPLAYED
from omnigraph.errors import Forbidden, InvalidInput
from omnigraph.query.limits import Cancellation
from omnigraph.server.hosting import Host, HostedGraph, restore_client_key
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import encode_json
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import Role
from omnigraph.server.workers import Workers


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. On a server without tokens callers have no name, and all may write."""

    actor: str | None = None
    role: Role = "write"


@dataclass(frozen=True)
class Service:
    """The parts of one server that routes use."""

    settings: ServerSettings
    host: Host
    workers: Workers
    metrics: Metrics
    journal: Journal


@dataclass(frozen=True)
class Reply:
    """A JSON document, its status and its headers."""

    document: Mapping[str, Any]
    status: int = 200
    commit_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        tag = {"ETag": f'"{self.commit_id}"'} if self.commit_id else {}
        return Response(encode_json(self.document), self.status, {**tag, **self.headers}, "application/json")


Work = Callable[[HostedGraph], Reply | Response]


@dataclass(frozen=True)
class GraphCall:
    """One request on one graph."""

    request: Request
    service: Service
    graph: HostedGraph
    identity: Identity

    @property
    def actor(self) -> str | None:
        return self.identity.actor

    async def read(self, operation: str, work: Callable[[HostedGraph, Cancellation], Reply | Response]) -> Response:
        """Run `work` in a thread and encode its answer there; cancelled if the caller leaves."""
        self.set_operation(operation)

        def run(cancellation: Cancellation) -> Response:
            self.graph.runtime()
            with self.graph.meter.operation(operation):
                return _to_response(work(self.graph, cancellation))

        return await self.service.workers.read(self.request, run)

    async def write(self, operation: str, work: Work, key: str | None = None) -> Response:
        """Run `work` in a thread to its end, for callers that may write."""
        self.require_write_role()
        self.set_operation(operation)

        def run() -> Response:
            self.graph.runtime()
            with self.graph.meter.operation(operation), restore_client_key(key):
                return _to_response(work(self.graph))

        return await self.service.workers.write(self.request, self.actor, key, run)

    def graph_key(self, key: str | None) -> str | None:
        """The caller's idempotency key as the graph stores it."""
        return self.graph.graph_key(self.actor, key) if key is not None else None

    def require_write_role(self) -> None:
        if self.identity.role != "write":
            raise Forbidden(
                f"the token of {self.actor!r} may only read",
                code="read_only_token",
                advice="Use a token with the role write",
                actor=self.actor,
            )

    def set_operation(self, operation: str) -> None:
        self.request.scope["omnigraph.operation"] = operation
        self.request.scope["omnigraph.graph"] = self.graph.name


def _to_response(answer: Reply | Response) -> Response:
    return answer.response() if isinstance(answer, Reply) else answer


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _call(
    request: Request,
    graph: Annotated[str, Path(description="Name of the graph, as GET /graphs lists it.", examples=["social"])],
) -> GraphCall:
    service = service_of(request)
    identity: Identity = request.scope.get("omnigraph.identity", Identity())
    return GraphCall(request, service, service.host.get(graph), identity)


InjectedCall = Annotated[GraphCall, Depends(_call)]
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Makes the write safe to repeat: a caller uses a key once; for 7 days it answers what it led to.",
        examples=["01JCZ0000000000000000000AD"],
    ),
]
MatchHeader = Annotated[
    str | None,
    Header(alias="If-Match", description='Only if this is still the newest commit: `"<commit id>"`; else 412.'),
]


def precondition(if_match: str | None, if_commit: str | None) -> str | None:
    """The commit that header and body agree on."""
    if if_match is None or if_match.strip() == "*":
        return if_commit
    commit_id = if_match.strip().removeprefix("W/").strip('"')
    if if_commit is not None and if_commit != commit_id:
        raise InvalidInput(
            f"If-Match names {commit_id} and if_commit {if_commit}",
            code="bad_request",
            advice="Send one of the two",
        )
    return commit_id


def replay_header(is_replayed: bool) -> dict[str, str]:
    """The header that marks the answer to a repeated request."""
    return {REPLAYED: "true"} if is_replayed else {}
