"""What becomes of bulk operations whose driver was killed, phase by phase."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph
from omnigraph.commit.publish_plan import WriteOptions
from omnigraph.config import Config
from omnigraph.errors import Corruption, NotFound
from omnigraph.intents.objects import RECOVERY, decode_opening, encode_opening
from omnigraph.intents.recovery import RECOVERY_ACTOR
from omnigraph.log.frame import encode_frame
from omnigraph.query.language.statements import Compare, Delete, InsertNode, Update
from tests.intents.conftest import DeadAt
from tests.intents.intent_actor import (
    ACTOR,
    ROWS,
    SCHEMA,
    IntentActor,
    acting,
    age,
    audits,
    files,
    intents,
    names,
    objects,
)
from tests.intents.workers import drive_until_killed, recover_together
from tests.support.processes import Workers

CONFIG = Config(fsync=False, fold="never")
UNCONFIRMED = ("intent.opened", "write.staged", "intent.staged")
CONFIRMED = ("intent.confirmed", "write.before-record")
PUBLISHED = ("write.after-record", "intent.before-done")
DEATHS = ("recovery.decided", "recovery.published", "recovery.before-audit", "recovery.audited")


def _audit_of(uri: str) -> dict[str, object]:
    """The one audit of the graph, by a process that opened it as users do."""
    graph = omnigraph.open(uri, config=CONFIG)
    (audit,) = audits(graph)
    (recovered,) = graph.commits(limit=None, kind="recovery")
    assert recovered.actor == RECOVERY_ACTOR
    return audit


@pytest.mark.parametrize("point", UNCONFIRMED)
def test_s149_a_driver_killed_while_staging_is_rolled_back(point: str, dead_at: DeadAt) -> None:
    """S149, H36: the next read-write open audits it and deletes nothing."""
    uri = dead_at(point)
    (intent,) = intents(uri)
    before = files(uri)
    graph = omnigraph.open(uri, config=CONFIG)
    assert names(graph) == {"Ada", "Bob"}
    assert before <= files(uri), "recovery deleted something"
    audit = _audit_of(uri)
    assert (audit["recovery_kind"], audit["class"], audit["operation_id"]) == ("rolled_back", "unconfirmed", intent)
    assert (audit["recovery_for_actor"], audit["operation"]) == (ACTOR, "mutate")
    assert "nothing was confirmed" in str(audit["reason"])
    assert {"0-open", "1", "2"} <= set(objects(uri, intent))


@pytest.mark.parametrize("point", CONFIRMED)
def test_s150_a_driver_killed_after_confirm_is_rolled_forward(point: str, dead_at: DeadAt) -> None:
    """S150: its work is not lost; published under the name of recovery, for the original actor."""
    uri = dead_at(point)
    (intent,) = intents(uri)
    before = files(uri)
    graph = omnigraph.open(uri, config=CONFIG)
    assert len(names(graph)) == 2 + ROWS
    assert before <= files(uri)
    audit = _audit_of(uri)
    assert (audit["recovery_kind"], audit["class"]) == ("rolled_forward", "confirmed")
    assert audit["tables"] == {
        "node:Person": {
            "outcome": "published",
            "staged_version": audit["tables"]["node:Person"]["staged_version"],  # type: ignore[index]
            "inserted": ROWS,
            "updated": 0,
            "deleted": 0,
        }
    }
    published = graph.at(str(audit["commit_id"])).state.record
    assert (published.kind, published.header.actor) == ("mutate", RECOVERY_ACTOR)
    assert published.extra == {"recovery_for": ACTOR, "operation_id": intent}
    assert [member.op_id for member in published.members] == [intent]
    assert graph.verify(deep=True).ok


@pytest.mark.parametrize("point", PUBLISHED)
def test_s151_a_driver_killed_after_publish_is_consumed(point: str, dead_at: DeadAt) -> None:
    """S151: the commit is there once, and audited once as rolled forward."""
    uri = dead_at(point)
    for _ in range(3):
        graph = omnigraph.open(uri, config=CONFIG)
        assert len(names(graph)) == 2 + ROWS
    audit = _audit_of(uri)
    assert (audit["recovery_kind"], audit["class"]) == ("rolled_forward", "published")
    assert [commit.kind for commit in graph.commits(limit=2)] == ["recovery", "mutate"]
    assert graph.at(str(audit["commit_id"])).state.record.header.actor == ACTOR


def test_s150_two_processes_open_at_the_same_moment(dead_at: DeadAt) -> None:
    """S150, H39: one commit and one audit, whoever makes them."""
    uri = dead_at("intent.confirmed")
    with Workers(recover_together, 3, {"uri": uri}) as workers:
        workers.start()
        results = [outcome for result in workers.wait() for outcome in result.value]
    assert {outcome["verdict"] for outcome in results} <= {"rolled_forward", "ended"}
    assert len({outcome["commit_id"] for outcome in results}) == 1
    graph = omnigraph.open(uri, config=CONFIG)
    assert len(names(graph)) == 2 + ROWS
    assert [commit.kind for commit in graph.commits(limit=None)] == [
        "recovery",
        "mutate",
        "mutate",
        "fold",
        "mutate",
        "init",
    ]
    assert graph.verify(deep=True).ok


@pytest.mark.parametrize("point", [UNCONFIRMED[1], CONFIRMED[0], PUBLISHED[0]])
@pytest.mark.parametrize(
    "death", ["recovery.decided", "recovery.published", "recovery.before-audit", "recovery.audited"]
)
def test_a_recoverer_dies_as_well(point: str, death: str, dead_at: DeadAt) -> None:
    """S150, S151: the next one completes what it began, and nothing happens twice."""
    uri = dead_at(point)
    with Workers(recover_together, 1, {"uri": uri, "point": death}) as workers:
        workers.start()
        result = workers.wait(check=False)[0]
    reached = result.exit_code == -signal.SIGKILL
    assert reached or death in ("recovery.decided", "recovery.published")
    age(uri)
    graph = omnigraph.open(uri, config=CONFIG)
    landed = point not in UNCONFIRMED
    assert len(names(graph)) == 2 + ROWS * landed
    assert _audit_of(uri)["recovery_kind"] == ("rolled_forward" if landed else "rolled_back")
    assert [intent.state for intent in graph.recover_list()] == ["done" if landed else "abandoned"]


def test_s152_a_live_writer_is_left_alone(dead_at: DeadAt) -> None:
    """S152: within the grace nobody touches it, past it anybody does; both by the store's clock."""
    uri = dead_at("intent.confirmed", fresh=True)
    with acting(uri) as actor:
        assert [result["verdict"] for result in actor.recover()] == ["live"]
        age(uri, seconds=800)
        assert [result["verdict"] for result in actor.recover()] == ["live"]
        (intent,) = intents(uri)
        (Path(uri) / RECOVERY / intent / "heartbeat").touch()
        os.utime(Path(uri) / RECOVERY / intent / "0-open", (0, 0))
        assert [result["verdict"] for result in actor.recover()] == ["live"], "its heartbeat is what counts"
        age(uri, seconds=1000)
        assert [result["verdict"] for result in actor.recover()] == ["rolled_forward"]
        assert len(names(actor.graph)) == 2 + ROWS


def test_s152_the_grace_can_be_overridden_for_one(dead_at: DeadAt) -> None:
    uri = dead_at("intent.opened", fresh=True)
    (intent,) = intents(uri)
    graph = omnigraph.open(uri, config=CONFIG)
    assert [result.verdict for result in graph.recover()] == ["live"]
    assert [result.verdict for result in graph.recover(now=intent)] == ["rolled_back"]
    assert [result.verdict for result in graph.recover(now=intent)] == ["ended"]
    with pytest.raises(NotFound, match="no intent") as error:
        graph.recover(now="01AAAAAAAAAAAAAAAAAAAAAAAA")
    assert error.value.code == "intent_not_found"


def test_s152_the_grace_is_a_setting(dead_at: DeadAt, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = dead_at("intent.opened", fresh=True)
    monkeypatch.setenv("OMNIGRAPH_RECOVERY_GRACE", "500")
    settings = Config.from_environment()
    assert settings.recovery_grace == 500
    age(uri, seconds=700)
    with acting(uri, recovery_grace=settings.recovery_grace) as actor:
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_back"]


def test_s153_disjoint_commits_do_not_cost_the_work(dead_at: DeadAt) -> None:
    """S153: other rows of the same table were written, folded and indexed since; more of them than anybody walks."""
    uri = dead_at("intent.confirmed")
    with acting(uri, walk_limit=4) as actor:
        actor.graph.apply([InsertNode("Company", {"name": "New"}), InsertNode("Person", {"name": "Eve"})])
        actor.graph.apply([Update("Person", {"age": 1}, Compare("name", "=", "Ada"))])
        actor.graph.fold()
        actor.graph.optimize()
        for number in range(6):
            actor.graph.apply([InsertNode("Company", {"name": f"x{number}"})])
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_forward"]
        assert len(names(actor.graph)) == 3 + ROWS
        assert names(actor.graph, "Company") == {"Acme", "New", *(f"x{number}" for number in range(6))}
        assert actor.graph.verify(deep=True).ok


def test_s153_a_conflict_rolls_it_back_with_the_reason(dead_at: DeadAt) -> None:
    """S153: a row that the operation read was written since; its input is gone, so nobody can decide anew."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        actor.graph.apply([InsertNode("Person", {"name": "p0007", "age": 99})])
        (recovered,) = actor.recover()
        assert (recovered["verdict"], recovered["class"]) == ("rolled_back", "conflicting")
        assert "was written" in recovered["reason"]
        assert names(actor.graph) == {"Ada", "Bob", "p0007"}
    audit = _audit_of(uri)
    assert "was written" in str(audit["reason"])
    assert audit["tables"]["node:Person"]["outcome"] == "unnamed"  # type: ignore[index]


def test_s153_an_overwrite_is_not_put_over_newer_rows(dead_at: DeadAt) -> None:
    uri = dead_at("intent.confirmed", change="overwrite")
    with acting(uri) as actor:
        actor.graph.apply([Delete("Person", Compare("name", "=", "Bob"))])
        assert [recovered["class"] for recovered in actor.recover()] == ["conflicting"]
        assert names(actor.graph) == {"Ada"}


def test_an_overwrite_is_rolled_forward_over_a_fold(dead_at: DeadAt) -> None:
    uri = dead_at("intent.confirmed", change="overwrite")
    with acting(uri) as actor:
        actor.graph.fold()
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_forward"]
        assert names(actor.graph) == {"Only"}
        assert actor.graph.snapshot()["tables"][0]["rows"] == 1


def test_h40_a_schema_change_rolls_it_back(dead_at: DeadAt) -> None:
    """H40"""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        actor.graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
        (recovered,) = actor.recover()
        assert (recovered["verdict"], recovered["reason"]) == ("rolled_back", "the schema changed")
        assert names(actor.graph) == {"Ada", "Bob"}


def test_h40_a_schema_that_changed_and_changed_back_rolls_it_back(dead_at: DeadAt) -> None:
    """H40: the newest schema is the plan's own again, and yet columns were dropped in between."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        actor.graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  nick: String?"))
        actor.graph.schema.apply(SCHEMA, allow_data_loss=True)
        assert [recovered["verdict"] for recovered in actor.recover()] == ["rolled_back"]


def test_a_deleted_branch_takes_its_operation_along(dead_at: DeadAt) -> None:
    """The audit of an operation whose branch is gone is kept on main."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        (intent,) = intents(uri)
        path = Path(uri) / RECOVERY / intent / "0-open"
        side = actor.graph.branch.create("side")
        stream = side.view().commit_id.split(".")[0]
        _rewrite_opening(path, stream=stream, branch="side")
        actor.graph.branch.delete("side")
        age(uri)
        (recovered,) = actor.recover()
        assert (recovered["verdict"], recovered["class"]) == ("rolled_back", "branch_deleted")
        assert [audit["class"] for audit in audits(actor.graph)] == ["branch_deleted"]


def _rewrite_opening(path: Path, **changes: str) -> None:
    path.write_bytes(encode_opening(replace(decode_opening(path.read_bytes(), str(path)), **changes)))  # type: ignore[arg-type]


def test_operations_on_branches_are_recovered_from_main(graph_address: str) -> None:
    with acting(graph_address) as actor:
        actor.graph.branch.create("side")
    with Workers(
        drive_until_killed, 1, {"uri": graph_address, "point": "intent.confirmed", "branch": "side"}
    ) as workers:
        workers.start()
        assert workers.wait(check=False)[0].exit_code == -signal.SIGKILL
    age(graph_address)
    graph = omnigraph.open(graph_address, config=CONFIG)
    assert names(graph) == {"Ada", "Bob"}
    assert len(names(graph.on_branch("side"))) == 2 + ROWS
    assert [audit["class"] for audit in audits(graph.on_branch("side"))] == ["confirmed"]


def test_a_claimed_branch_waits_for_whoever_takes_it_over(dead_at: DeadAt) -> None:
    """A dead exclusive writer keeps everybody out, recovery too; the next one ends what it left."""
    uri = dead_at("intent.confirmed")
    with acting(uri) as actor:
        actor.runtime.claim(actor.graph._branch, WriteOptions())
    waiting = omnigraph.open(uri, config=CONFIG)
    assert names(waiting) == {"Ada", "Bob"}
    assert [result.verdict for result in waiting.recover()] == ["waiting"]
    with omnigraph.open(uri, exclusive=True, config=CONFIG) as graph:
        assert len(names(graph)) == 2 + ROWS
    assert [intent.state for intent in waiting.recover_list()] == ["done"]


def test_the_client_key_of_a_recovered_operation_is_answered(graph_address: str) -> None:
    """Whoever repeats the operation after the crash is told that it has happened."""
    how = {"uri": graph_address, "point": "intent.confirmed", "client_key": "night-1"}
    with Workers(drive_until_killed, 1, how) as workers:
        workers.start()
        assert workers.wait(check=False)[0].exit_code == -signal.SIGKILL
    age(graph_address)
    with acting(graph_address) as actor:
        (recovered,) = actor.recover()
        again = actor.bulk(client_key="night-1")
        assert (again.replayed, again.commit_id) == (True, recovered["commit_id"])
        assert len(intents(graph_address)) == 1, "an answer that is known needs no intent"


@pytest.mark.parametrize("name", ["0-open", "1"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text", "newer"])
def test_s154_a_corrupt_intent_is_loud_for_writers_only(name: str, damage: str, dead_at: DeadAt) -> None:
    """S154: read-only opens work, the file stays, other intents are not held up."""
    uri = dead_at("intent.confirmed")
    (intent,) = intents(uri)
    path = Path(uri) / RECOVERY / intent / name
    data = _damage(path.read_bytes(), damage)
    path.write_bytes(data)
    with pytest.raises(omnigraph.errors.OmnigraphError) as error:
        omnigraph.open(uri, config=CONFIG)
    assert error.value.code == "intent_unreadable"
    assert error.value.details["key"] == f"{RECOVERY}{intent}/{name}"
    assert isinstance(error.value, Corruption) or damage == "newer"
    reader = omnigraph.open(uri, read_only=True, config=CONFIG)
    assert names(reader) == {"Ada", "Bob"}
    (recovered,) = reader.recover_list()
    assert (recovered.id, recovered.state) == (intent, "unreadable")
    assert path.read_bytes() == data
    os.rename(path.parent, Path(uri).parent / "moved-away")
    assert names(omnigraph.open(uri, config=CONFIG)) == {"Ada", "Bob"}


def _damage(data: bytes, how: str) -> bytes:
    if how == "flipped":
        return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
    if how == "newer":
        return encode_frame({"v": 99, "intent": "open", "facts": {}}, [])
    return {"cut": data[: len(data) // 2], "empty": b"", "text": json.dumps({"v": 1}).encode()}[how]


def test_s154_another_intent_is_recovered_all_the_same(dead_at: DeadAt) -> None:
    uri = dead_at("intent.confirmed")
    (intent,) = intents(uri)
    broken = Path(uri) / RECOVERY / "01AAAAAAAAAAAAAAAAAAAAAAAA"
    broken.mkdir()
    (broken / "0-open").write_bytes(b"nonsense")
    with acting(uri) as actor:
        with pytest.raises(Corruption, match="01AAAAAAAAAAAAAAAAAAAAAAAA"):
            actor.recover()
        assert len(names(actor.graph)) == 2 + ROWS
        assert "2" in objects(uri, intent)


def test_h39_a_driver_wakes_after_it_was_rolled_forward(graph_address: str) -> None:
    """H39: it is told its own commit; there is one."""
    driver, second_actor = IntentActor(graph_address), IntentActor(graph_address)
    try:
        driver.pauses.call_at("intent.confirmed", lambda: _recover_as_if_dead(second_actor, graph_address))
        receipt = driver.bulk()
        assert receipt.counts["inserted"] == ROWS
        assert second_actor.graph.at(str(receipt.commit_id)).state.record.header.actor == RECOVERY_ACTOR
        assert len(names(second_actor.graph)) == 2 + ROWS
        kinds = [commit.kind for commit in second_actor.graph.commits(limit=None)]
        assert kinds == ["recovery", "mutate", "mutate", "fold", "mutate", "init"]
    finally:
        driver.close()
        second_actor.close()


@pytest.mark.parametrize("point", ["intent.opened", "write.staged"])
def test_h36_h38_a_driver_wakes_after_it_was_aborted(point: str, graph_address: str) -> None:
    """H36, H38: a slow driver that lives obeys; nothing that it staged was deleted, and it may simply run again."""
    driver, second_actor = IntentActor(graph_address), IntentActor(graph_address)
    try:
        driver.pauses.call_at(point, lambda: _recover_as_if_dead(second_actor, graph_address))
        with pytest.raises(omnigraph.errors.Conflict) as error:
            driver.bulk()
        assert error.value.code == "intent_ended"
        assert names(second_actor.graph) == {"Ada", "Bob"}
        assert driver.bulk().commit_id is not None
        assert len(names(second_actor.graph)) == 2 + ROWS
        assert second_actor.graph.verify(deep=True).ok
    finally:
        driver.close()
        second_actor.close()


def test_h38_a_driver_wakes_after_its_plan_was_rolled_back(graph_address: str) -> None:
    """A conflict made recovery give it up. The log knows, so the driver cannot publish it after all, redone or not."""
    driver, second_actor = IntentActor(graph_address), IntentActor(graph_address)

    def meddle() -> None:
        second_actor.graph.apply([InsertNode("Person", {"name": "p0007", "age": 99})])
        _recover_as_if_dead(second_actor, graph_address)

    try:
        driver.pauses.call_at("intent.confirmed", meddle)
        with pytest.raises(omnigraph.errors.Conflict) as error:
            driver.bulk(on_conflict="retry")
        assert error.value.code == "intent_ended"
        assert names(second_actor.graph) == {"Ada", "Bob", "p0007"}
        assert [audit["recovery_kind"] for audit in audits(second_actor.graph)] == ["rolled_back"]
    finally:
        driver.close()
        second_actor.close()


def _recover_as_if_dead(actor: IntentActor, uri: str) -> None:
    age(uri)
    assert [recovered["verdict"] for recovered in actor.recover()] in (["rolled_forward"], ["rolled_back"])
