"""One call: who asks, which graph, and how its work reaches a thread and its answer the wire."""

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
from omnigraph.server.hosting import Host, HostedGraph
from omnigraph.server.keys import told_as_given
from omnigraph.server.logs import Journal
from omnigraph.server.metrics import Metrics
from omnigraph.server.problems import encoded
from omnigraph.server.running import Workers
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import Role


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks. Without tokens everybody is nobody, and may write."""

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
    """A document and what goes with it."""

    document: Mapping[str, Any]
    status: int = 200
    commit_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        tag = {"ETag": f'"{self.commit_id}"'} if self.commit_id else {}
        return Response(encoded(self.document), self.status, {**tag, **self.headers}, "application/json")


Work = Callable[[HostedGraph], Reply | Response]


@dataclass(frozen=True)
class Call:
    """One request on one graph."""

    request: Request
    service: Service
    graph: HostedGraph
    identity: Identity

    @property
    def actor(self) -> str | None:
        return self.identity.actor

    async def read(self, operation: str, work: Callable[[HostedGraph, Cancellation], Reply | Response]) -> Response:
        """Run `work` in a thread, answer included; cancelled if the caller leaves."""
        self.named(operation)

        def run(cancellation: Cancellation) -> Response:
            self.graph.site()
            with self.graph.meter.operation(operation):
                return _response(work(self.graph, cancellation))

        return await self.service.workers.read(self.request, run)

    async def write(self, operation: str, work: Work, key: str | None = None) -> Response:
        """Run `work` in a thread to its end, for callers that may write."""
        self.may_write()
        self.named(operation)

        def run() -> Response:
            self.graph.site()
            with self.graph.meter.operation(operation), told_as_given(key):
                return _response(work(self.graph))

        return await self.service.workers.write(self.request, self.actor, key, run)

    def kept(self, key: str | None) -> str | None:
        """The caller's idempotency key as the graph keeps it."""
        return self.graph.kept_key(self.actor, key) if key is not None else None

    def may_write(self) -> None:
        if self.identity.role != "write":
            raise Forbidden(
                f"the token of {self.actor!r} may only read",
                code="read_only_token",
                advice="Use a token with the role write",
                actor=self.actor,
            )

    def named(self, operation: str) -> None:
        self.request.scope["omnigraph.operation"] = operation
        self.request.scope["omnigraph.api"] = self.graph.name


def _response(found: Reply | Response) -> Response:
    return found.response() if isinstance(found, Reply) else found


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _call(
    request: Request,
    graph: Annotated[str, Path(description="Name of the graph, as GET /graphs lists it.", examples=["social"])],
) -> Call:
    service = service_of(request)
    identity: Identity = request.scope.get("omnigraph.identity", Identity())
    return Call(request, service, service.host.get(graph), identity)


OneCall = Annotated[Call, Depends(_call)]
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
    named = if_match.strip().removeprefix("W/").strip('"')
    if if_commit is not None and if_commit != named:
        raise InvalidInput(
            f"If-Match names {named} and if_commit {if_commit}",
            code="bad_request",
            advice="Send one of the two",
        )
    return named


def replayed(is_replayed: bool) -> dict[str, str]:
    """The header that tells an answer from a first one."""
    return {REPLAYED: "true"} if is_replayed else {}
