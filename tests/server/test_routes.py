"""Every route once, on a real server: what it answers is what the facade and the command line say. S158."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import run
from tests.server.bed import ADD, AGE, ALL, PEOPLE, Door, metric


def test_health(door: Door) -> None:
    outcome = door.call("GET", "/healthz")
    assert outcome.status == 200
    assert outcome.document == {"status": "ok", "version": og.__version__, "internal_schema_version": 1}


def test_the_graphs_of_the_server(door: Door) -> None:
    graphs = door.call("GET", "/graphs").document["graphs"]
    own_graph = next(graph for graph in graphs if graph["name"] == door.name)
    assert own_graph == {"name": door.name, "graph_id": door.open_embedded().graph_id, "read_only": False}
    # A graph is also found by its own id.
    again = door.call("GET", f"/graphs/{own_graph['graph_id']}/snapshot")
    assert again.document["graph_id"] == own_graph["graph_id"]


def test_mutate_and_query(door: Door) -> None:
    written = door.mutate(ADD, {"n": "Ada", "a": 36}, message="first")
    assert written.status == 200
    assert written.document["counts"] == {"inserted": 1, "updated": 0, "deleted": 0}
    assert written.headers["etag"] == f'"{written.document["commit_id"]}"'
    result = door.query()
    assert result.document == {
        "commit_id": written.document["commit_id"],
        "columns": [{"name": "name", "type": "String"}, {"name": "age", "type": "I32?"}],
        "rows": [{"name": "Ada", "age": 36}],
    }
    assert door.open_embedded().commits(1)[0].message == "first"


def test_a_batch_is_one_commit(door: Door) -> None:
    batch = [{"n": "Ada"}, {"n": "Bo", "a": 2}]
    receipt = door.mutate(ADD, {"a": 1}, batch=batch)
    assert receipt.document["counts"]["inserted"] == 2
    rows = door.query().document["rows"]
    assert rows == [{"name": "Ada", "age": 1}, {"name": "Bo", "age": 2}]
    assert len(door.open_embedded().commits()) == 2  # with the birth of the graph


def test_nothing_to_do_is_no_commit(door: Door) -> None:
    receipt = door.mutate(AGE, {"n": "nobody", "a": 1})
    assert (receipt.status, receipt.document["commit_id"]) == (200, None)


def test_query_at_a_commit_and_on_a_branch(door: Door) -> None:
    first = door.mutate(ADD, {"n": "Ada"}).document["commit_id"]
    door.mutate(ADD, {"n": "Bo"})
    assert [row["name"] for row in door.query(at=first).document["rows"]] == ["Ada"]
    response = door.post("branches", {"name": "review/x", "source": first})
    assert response.status == 201
    assert response.document["source"] == first
    door.mutate(ADD, {"n": "Cy"}, branch="review/x")
    assert [row["name"] for row in door.query(branch="review/x").document["rows"]] == ["Ada", "Cy"]
    both = door.query(branch="review/x", at=first)
    assert (both.status, both.code) == (400, "bad_request")


def test_explain(door: Door) -> None:
    result = door.query(explain=True)
    assert result.status == 200
    assert "plan" in result.document


def test_branches(door: Door) -> None:
    door.post("branches", {"name": "x"})
    assert door.get("branches").document == {"branches": ["main", "x"]}
    again = door.post("branches", {"name": "x"})
    assert (again.status, again.document["code"]) == (409, again.code)
    newest = door.get("snapshot", branch="x").document["commit_id"]
    outcome = door.call("DELETE", f"/graphs/{door.name}/branches", params={"name": "x"})
    assert outcome.document == {"branch": "x", "commit_id": newest, "deleted": True}
    assert door.get("branches").document == {"branches": ["main"]}
    assert door.query(branch="x").status == 404
    assert door.call("DELETE", f"/graphs/{door.name}/branches", params={"name": "main"}).code == "reserved_branch"


def test_a_branch_made_again_is_found(door: Door) -> None:
    """The server keeps handles warm; one of a branch that somebody else replaced must not stick."""
    door.post("branches", {"name": "x"})
    door.mutate(ADD, {"n": "Old"}, branch="x")
    elsewhere = door.open_embedded()
    elsewhere.branch.delete("x")
    elsewhere.branch.create("x")
    assert door.query(branch="x").document["rows"] == []
    assert door.mutate(ADD, {"n": "New"}, branch="x").status == 200


def test_merge(door: Door) -> None:
    door.mutate(ADD, {"n": "Ada", "a": 1})
    door.post("branches", {"name": "x"})
    door.mutate(ADD, {"n": "Bo"}, branch="x")
    tried = door.post("branches/merge", {"source": "x", "dry_run": True}).document
    assert (tried["outcome"], tried["commit_id"], tried["dry_run"]) == ("fast_forward", None, True)
    door.mutate(ADD, {"n": "Cy"})
    response = door.post("branches/merge", {"source": "x", "delete_branch": True})
    assert (response.document["outcome"], response.document["branch_deleted"]) == ("merged", True)
    assert door.names() == ["Ada", "Bo", "Cy"]


def test_commits(door: Door) -> None:
    door.mutate(ADD, {"n": "Ada"})
    newest = door.mutate(ADD, {"n": "Bo"}).document["commit_id"]
    commits = door.get("commits").document["commits"]
    assert [commit["kind"] for commit in commits] == ["mutate", "mutate", "init"]
    assert commits == [commit.to_json() for commit in door.open_embedded().commits()]
    assert len(door.get("commits", limit=1).document["commits"]) == 1
    assert [commit["kind"] for commit in door.get("commits", filter="kind=init").document["commits"]] == ["init"]
    assert door.get("commits", filter="colour=red").code == "bad_request"
    commit_document = door.get(f"commits/{newest}").document
    assert commit_document == door.open_embedded().at(newest).commit()
    changed = door.get(f"commits/{newest}/changes").document
    assert [(change["op"], change["id"]) for change in changed["changes"]] == [("insert", "Bo")]
    assert door.get("commits/no.5").status in (400, 404)


def test_diff_and_changes(door: Door) -> None:
    start = door.get("snapshot").document["commit_id"]
    door.mutate(ADD, {"n": "Ada"})
    door.mutate(ADD, {"n": "Bo"})
    page = door.get("diff", old=start, limit=1).document
    assert [change["id"] for change in page["changes"]] == ["Ada"]
    second_page = door.get("diff", old=start, cursor=page["cursor"]).document
    assert ([change["id"] for change in second_page["changes"]], second_page["cursor"]) == (["Bo"], None)
    assert door.get("diff", old=start, op="delete").document["changes"] == []
    feed = door.get("changes", since=start).document
    assert [commit["changes"][0]["id"] for commit in feed["commits"]] == ["Ada", "Bo"]
    assert door.get("changes", since=feed["cursor"]).document["commits"] == []


def test_a_gap_in_the_feed_is_410(door: Door) -> None:
    door.post("branches", {"name": "x"})
    cursor = door.get("changes", branch="x").document["cursor"]
    door.call("DELETE", f"/graphs/{door.name}/branches", params={"name": "x"})
    door.post("branches", {"name": "x"})
    response = door.get("changes", branch="x", since=cursor)
    assert (response.status, response.code) == (410, "change_feed_gap")


def test_schema(door: Door) -> None:
    schema_document = door.get("schema").document
    assert schema_document["source"] == PEOPLE
    assert "node:Person" in schema_document["types"]
    wider = PEOPLE + "node City { name: String @key }\n"
    planned = door.post("schema/plan", {"schema": wider}).document
    assert (planned["branch"], planned["supported"]) == ("main", True)
    applied = door.post("schema/apply", {"schema": wider, "message": "cities"}).document
    assert applied["commit_id"] == door.get("snapshot").document["commit_id"]
    assert [step["step"] for step in applied["steps"]] == [step["step"] for step in planned["steps"]]
    dropping = door.post("schema/apply", {"schema": PEOPLE, "allow_data_loss": True}).document
    assert dropping["commit_id"] is None  # a preview
    assert "node:City" in door.get("schema").document["types"]


def test_a_schema_is_never_a_path(door: Door, tmp_path: Path) -> None:
    """S160: a text that would be a path here must not be read from the server's disk."""
    secret = tmp_path / "secret.pg"
    secret.write_text("node Secret { name: String @key }\n")
    for route in ("schema/plan", "schema/apply"):
        response = door.post(route, {"schema": str(secret)})
        assert response.status == 400
        assert "Secret" not in json.dumps(response.document)


def test_blobs(door: Door) -> None:
    add = "query doc($n: String, $b: Blob) { insert Doc { name: $n, content: $b } }"
    door.mutate(add, {"n": "x", "b": "base64:aGVsbG8gd29ybGQ="})
    where = {"type": "Doc", "id": "x", "property": "content"}
    response = door.get("blob", **where)
    assert (response.status, response.document) == (200, b"hello world")
    path = f"/graphs/{door.name}/blob"
    ranges = {"bytes=0-4": b"hello", "bytes=6-": b"world", "bytes=-5": b"world", "bytes=6-999": b"world"}
    for requested_range, expected in ranges.items():
        part = door.call("GET", path, params=where, headers={"Range": requested_range})
        assert (part.status, part.document) == (206, expected), requested_range
    assert door.call("GET", path, params=where, headers={"Range": "bytes=99-"}).status == 416
    assert door.call("GET", path, params=where, headers={"If-None-Match": response.headers["etag"]}).status == 304
    assert door.get("blob", **{**where, "id": "y"}).code == "no_such_entity"
    assert door.get("blob", **{**where, "property": "name"}).code == "not_a_blob"


def test_unknown_names(door: Door) -> None:
    assert door.call("GET", "/graphs/nothing/snapshot").code == "no_such_graph"
    assert door.call("GET", "/elsewhere").code == "no_such_route"
    wrong = door.call("PUT", f"/graphs/{door.name}/mutate")
    assert (wrong.status, wrong.code, wrong.headers["allow"]) == (405, "method_not_allowed", "POST")
    assert door.query(branch="nothing").status == 404
    assert door.get("queries").document == {"queries": [], "problems": []}
    assert door.post("queries/nothing", {}).code == "no_such_query"


def test_fields_that_do_not_exist_are_refused(door: Door) -> None:
    result = door.query(brunch="x")
    assert (result.status, result.code) == (400, "bad_request")
    assert result.document["violations"] == [
        {"where": "body.brunch", "message": "Extra inputs are not permitted"},
    ]


def test_request_ids(door: Door) -> None:
    outcome = door.call("GET", "/healthz", headers={"X-Request-Id": "abc-1"})
    assert outcome.headers["x-request-id"] == "abc-1"
    odd = door.call("GET", "/healthz", headers={"X-Request-Id": "a b\tc"})
    assert len(odd.headers["x-request-id"]) == 26


SAME: list[tuple[str, dict[str, Any], list[str]]] = [
    ("snapshot", {}, ["snapshot"]),
    ("commits", {}, ["commit", "list"]),
    ("branches", {}, ["branch", "list"]),
    ("schema", {}, ["schema", "show"]),
    ("changes", {}, ["changes"]),
    ("diff", {"old": "x"}, ["diff", "x", "main"]),
]


@pytest.mark.parametrize(("route", "query", "words"), SAME, ids=[one[0] for one in SAME])
def test_the_same_json_as_the_command_line(
    door: Door, route: str, query: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """S158."""
    door.post("branches", {"name": "x"})
    door.mutate(ADD, {"n": "Ada"})
    over_http = door.get(route, **query).document
    capsys.readouterr()
    assert run([*words, "--graph", str(door.place), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == over_http


def test_queries_give_the_same_json_as_the_command_line(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """S158."""
    door.mutate(ADD, {"n": "Ada", "a": 36})
    capsys.readouterr()
    assert run(["query", str(door.place), "-e", ALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == door.query().document


def test_metrics_tell_operations(door: Door) -> None:
    before = door.call("GET", "/metrics").document.decode()
    door.mutate(ADD, {"n": "Ada"})
    after = door.call("GET", "/metrics").document.decode()
    for name in ("http_requests_total", "storage_stages_count", "operation_seconds_count"):
        assert metric(after, name, operation="mutate") - metric(before, name, operation="mutate") == 1
    puts = {"operation": "mutate", "method": "PUT"}
    assert metric(after, "storage_ops_total", **puts) - metric(before, "storage_ops_total", **puts) == 1
