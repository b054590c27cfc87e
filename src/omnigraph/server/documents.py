"""Shapes, examples and every status of every route, for the OpenAPI document.

Class names of this module are names of components in that document: part of the public contract.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_COMMIT = "01JCZ0000000000000000000AB.7"


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow")


class Problem(_Document):
    """Any refusal. `code` is stable; further fields depend on it."""

    error: str = Field(description="What went wrong and what to do, for people.")
    code: str = Field(description="What went wrong, for programs.")


class Column(_Document):
    name: str
    type: str


class QueryAnswer(_Document):
    """Rows at one commit; or, if it was asked for, how the query is run."""

    commit_id: str
    columns: list[Column] = []
    rows: list[dict[str, Any]] | int = []
    warnings: list[str] = []


class WriteAnswer(_Document):
    """A commit; `commit_id` is null if there was nothing to do."""

    branch: str
    commit_id: str | None
    counts: dict[str, int]
    replayed: bool
    attempts: int


class LoadAnswer(_Document):
    """What a load did; `counts` go by table."""

    branch: str
    commit_id: str | None
    counts: dict[str, dict[str, int]]
    rejects: int


class SnapshotAnswer(_Document):
    branch: str | None
    graph_id: str
    internal_schema: int
    commit_id: str
    tables: list[dict[str, Any]]


class BranchesAnswer(_Document):
    branches: list[str]


class BranchAnswer(_Document):
    branch: str
    commit_id: str


class MergeAnswer(_Document):
    outcome: str
    commit_id: str | None
    counts: dict[str, int]
    dry_run: bool
    branch_deleted: bool


class CommitsAnswer(_Document):
    commits: list[dict[str, Any]]


class CommitAnswer(_Document):
    commit_id: str
    seq: int
    parents: list[str]
    kind: str
    members: list[dict[str, Any]]
    touched: list[dict[str, Any]]


class ChangesAnswer(_Document):
    commits: list[dict[str, Any]]
    cursor: str
    more: bool


class DiffAnswer(_Document):
    old: str | None
    new: str
    changes: list[dict[str, Any]]
    cursor: str | None


class SchemaAnswer(_Document):
    commit_id: str
    schema_: str = Field(alias="schema")
    types: list[str]
    source: str


class PlanAnswer(_Document):
    branch: str


class QueriesAnswer(_Document):
    queries: list[dict[str, Any]]
    problems: list[dict[str, str]]


class GraphsAnswer(_Document):
    graphs: list[dict[str, Any]]


class HealthAnswer(_Document):
    status: str
    version: str
    internal_schema_version: int


_PROBLEMS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "Parse, type and validation errors, with all violations; malformed requests; what this version cannot do.",
        {
            "error": "node:Person 'Ada': age 200 is above 150 (and 1 more)",
            "code": "constraint_violation",
            "violations": [{"type": "Person", "id": "Ada", "message": "age 200 is above 150"}],
        },
    ),
    401: (
        "No token, or one that is not known or has expired.",
        {"error": "this server needs a token. Send `Authorization: Bearer …`", "code": "unauthenticated"},
    ),
    403: (
        "The token's role does not allow it, or the object store refused the server's credentials.",
        {"error": "the token of 'bob' may only read. Use a token with the role write", "code": "read_only_token"},
    ),
    404: (
        "No such graph, branch, commit, type or stored query.",
        {"error": "there is no branch 'x'", "code": "not_found"},
    ),
    408: (
        "Too little of the body came in too long a time.",
        {
            "error": "too little of the request body came within 30 s. Send it again without pauses",
            "code": "slow_body",
            "limit": "body_timeout_s",
            "bound": 30.0,
        },
    ),
    409: (
        "Another writer was there first: read again and decide.",
        {
            "error": "stale view of 'edge:Knows': expected table version 5 but current is 7; refresh and retry",
            "code": "conflict",
            "manifest_conflict": {"table_key": "edge:Knows", "expected": 5, "actual": 7},
        },
    ),
    410: (
        "The change feed has a gap: read the graph anew and go on from its commit.",
        {"error": "the change feed has a gap: the branch was deleted", "code": "change_feed_gap"},
    ),
    412: (
        "`If-Match` or `if_commit` does not name the newest commit any more.",
        {
            "error": "the branch is at 01J….9, not at 01J….7. Read again and decide anew",
            "code": "precondition_failed",
            "expected": "01J….7",
            "actual": "01J….9",
        },
    ),
    413: (
        "A limit was exceeded; its name and bound are told.",
        {
            "error": "the request body is larger than 8388608 bytes",
            "code": "limit_exceeded",
            "limit": "request_body_bytes",
            "bound": 8388608,
        },
    ),
    429: (
        "This actor has too many writes in flight.",
        {
            "error": "16 writes of this actor are in flight already. Wait for one of them to end",
            "code": "too_many_writes",
            "bound": 16,
        },
    ),
    503: (
        "The object store did not answer, the server is busy, or the outcome of a write could not be learned.",
        {"error": "the server has 256 requests in flight already. Try again later", "code": "overloaded"},
    ),
}

_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}}
_READ_REFUSALS = (400, 401, 403, 404, 408, 413, 503)
_WRITE_REFUSALS = (400, 401, 403, 404, 408, 409, 412, 413, 429, 503)


def read_responses(model: type[BaseModel] | None, example: Any = None, *more: int) -> dict[int | str, dict[str, Any]]:
    """All responses of a route that reads."""
    return _responses(200, model, example, (*_READ_REFUSALS, *more))


def write_responses(
    model: type[BaseModel] | None, example: Any = None, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """All responses of a route that writes."""
    return _responses(status, model, example, _WRITE_REFUSALS)


def server_responses(model: type[BaseModel], example: Any, *refusals: int) -> dict[int | str, dict[str, Any]]:
    """All responses of a route about the server itself."""
    return _responses(200, model, example, refusals)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _problem_response(status) for status in sorted(statuses)}


def _responses(
    status: int, model: type[BaseModel] | None, example: Any, refusals: tuple[int, ...]
) -> dict[int | str, dict[str, Any]]:
    success: dict[str, Any] = {"description": "Done."}
    if model is not None:
        success["model"] = model
        success["content"] = {"application/json": {"example": example}}
    return {status: success, **problem_responses(*refusals)}


def _problem_response(status: int) -> dict[str, Any]:
    description, example = _PROBLEMS[status]
    response: dict[str, Any] = {
        "description": description,
        "model": Problem,
        "content": {"application/json": {"example": example}},
    }
    return {**response, "headers": _RETRY_AFTER} if status in (429, 503) else response


COMMIT_EXAMPLE = {
    "commit_id": _COMMIT,
    "seq": 7,
    "parents": ["01JCZ0000000000000000000AB.6"],
    "kind": "mutate",
    "actor": "ada",
    "created_at": "2026-01-31T12:00:00.000Z",
    "message": None,
    "branch": "main",
}
CHANGE_EXAMPLE = {
    "op": "insert",
    "kind": "node",
    "type": "Person",
    "id": "Ada",
    "before": None,
    "after": {"id": "Ada", "name": "Ada", "age": 36},
}
QUERY_EXAMPLE = {"commit_id": _COMMIT, "columns": [{"name": "name", "type": "String"}], "rows": [{"name": "Ada"}]}
WRITE_EXAMPLE = {
    "branch": "main",
    "commit_id": _COMMIT,
    "counts": {"inserted": 1, "updated": 0, "deleted": 0},
    "replayed": False,
    "attempts": 1,
}
LOAD_EXAMPLE = {
    "branch": "main",
    "commit_id": _COMMIT,
    "counts": {"node:Person": {"inserted": 2, "updated": 0, "deleted": 0}},
    "rejects": 0,
    "rejects_by_code": {},
    "sample": [],
    "duplicates": 0,
    "engine": "local",
    "replayed": False,
    "attempts": 1,
}
SNAPSHOT_EXAMPLE = {
    "branch": "main",
    "graph_id": "01JCZ0000000000000000000AA",
    "internal_schema": 1,
    "commit_id": _COMMIT,
    "tables": [{"table_key": "node:Person", "rows": 1, "overlay_entries": 1, "changed_seq": 7}],
}
BRANCH_EXAMPLE = {"branch": "review/x", "commit_id": "01JCZ0000000000000000000AC.0", "source": _COMMIT}
MERGE_EXAMPLE = {
    "outcome": "merged",
    "commit_id": _COMMIT,
    "counts": {"inserted": 1, "updated": 0, "deleted": 0},
    "dry_run": False,
    "branch_deleted": False,
}
FEED_EXAMPLE = {
    "commits": [{"commit_id": _COMMIT, "kind": "mutate", "actor": "ada", "changes": [CHANGE_EXAMPLE]}],
    "cursor": "WzEsICIwMUpD…",
    "more": False,
}
DIFF_EXAMPLE = {"old": "01JCZ0000000000000000000AB.6", "new": _COMMIT, "changes": [CHANGE_EXAMPLE], "cursor": None}
SCHEMA_EXAMPLE = {
    "commit_id": _COMMIT,
    "schema": "5f2d…",
    "types": ["node:Person"],
    "source": "node Person { name: String @key }\n",
}
PLAN_EXAMPLE = {"branch": "main", "supported": True, "steps": [], "refused": []}
QUERIES_EXAMPLE = {
    "queries": [
        {
            "name": "find",
            "file": "people.gq",
            "kind": "query",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": "string"}},
                "required": ["n"],
                "additionalProperties": False,
            },
            "columns": [{"name": "name", "type": "String"}],
        }
    ],
    "problems": [],
}
GRAPHS_EXAMPLE = {"graphs": [{"name": "social", "graph_id": "01JCZ0000000000000000000AA", "read_only": False}]}
HEALTH_EXAMPLE = {"status": "ok", "version": "0.1.0", "internal_schema_version": 1}
