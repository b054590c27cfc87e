"""The OpenAPI document, and whatever can be generated from it: no 5xx, no answer that it does not name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.bed import ADD, Door, Server

#: Nothing that is sent there can be wrong: a text is a text.
FREE = ("/healthz", "/metrics", "/graphs", "/graphs/{graph}/branches GET", "/graphs/{graph}/commits/{commit_id}")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUTES = {
    "/healthz": {"get"},
    "/metrics": {"get"},
    "/graphs": {"get"},
    "/graphs/{graph}/snapshot": {"get"},
    "/graphs/{graph}/query": {"post"},
    "/graphs/{graph}/mutate": {"post"},
    "/graphs/{graph}/load": {"post"},
    "/graphs/{graph}/export": {"get"},
    "/graphs/{graph}/branches": {"get", "post", "delete"},
    "/graphs/{graph}/branches/merge": {"post"},
    "/graphs/{graph}/commits": {"get"},
    "/graphs/{graph}/commits/{commit_id}": {"get"},
    "/graphs/{graph}/commits/{commit_id}/changes": {"get"},
    "/graphs/{graph}/changes": {"get"},
    "/graphs/{graph}/diff": {"get"},
    "/graphs/{graph}/schema": {"get"},
    "/graphs/{graph}/schema/plan": {"post"},
    "/graphs/{graph}/schema/apply": {"post"},
    "/graphs/{graph}/blob": {"get"},
    "/graphs/{graph}/queries": {"get"},
    "/graphs/{graph}/queries/{name}": {"post"},
}


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    openapi: dict[str, Any] = httpx.get(f"{server.url}/openapi.json", trust_env=False).json()
    return openapi


def test_every_route_is_documented(door: Door) -> None:
    document = door.call("GET", "/openapi.json").document
    assert document["openapi"].startswith("3.1")
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            statuses = set(operation["responses"])
            assert "422" not in statuses
            if path.startswith("/graphs/"):
                assert {"400", "401", "404", "503"} <= statuses
                assert operation["security"] == [{"bearer": []}, {}]
            if method in ("post", "delete") and path.rpartition("/")[2] not in ("query", "plan"):
                assert {"403", "409", "412", "429"} <= statuses, path
            good = operation["responses"][min(statuses)]
            if "application/json" in good.get("content", {}):
                assert "example" in good["content"]["application/json"], path


def test_the_docs_page(door: Door) -> None:
    outcome = door.call("GET", "/docs")
    assert outcome.status == 200
    assert b"swagger" in outcome.document.lower()


@pytest.mark.parametrize("examples", [6, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(
    ("route", "method"), sorted((route, method.upper()) for route, found in ROUTES.items() for method in found)
)
def test_whatever_is_sent_the_answer_is_a_documented_one(
    door: Door, document: dict[str, Any], route: str, method: str, mode: GenerationMode, examples: int
) -> None:
    door.mutate(ADD, {"n": "Ada"})
    operation = schemathesis.openapi.from_dict(document)[route][method]
    if mode is GenerationMode.NEGATIVE and (route in FREE or f"{route} {method}" in FREE):
        return

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def ask(case: Any) -> None:
        if "graph" in case.path_parameters:
            case.path_parameters["graph"] = door.name
        if case.query.get("engine") in ("auto", "spark"):
            case.query["engine"] = "local"
        case.call_and_validate(base_url=door.url, checks=CHECKS, timeout=60)

    ask()
