"""The checker finds every anomaly in histories made by hand, names it, and finds nothing in serial ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from tests.isolation.checker import Append, Outcome, Read, Step, Transaction, check

Lists = Mapping[str, Sequence[int]]


def r(key: str, *values: int) -> Read:
    return Read(key, values)


def a(key: str, value: int) -> Append:
    return Append(key, value)


def t(
    name: str, *steps: Step, outcome: Outcome = "ok", began: float | None = None, ended: float | None = None
) -> Transaction:
    return Transaction(name, steps, outcome, began, ended)


GOOD: dict[str, tuple[list[Transaction], Lists]] = {
    "nothing": ([], {}),
    "one after the other": (
        [t("A", r("x"), a("x", 1)), t("B", r("x", 1), a("x", 2)), t("C", r("x", 1, 2))], {"x": [1, 2]},
    ),
    "own appends are seen": ([t("A", a("x", 1), r("x", 1), a("x", 2), r("x", 1, 2))], {"x": [1, 2]}),
    "blind appends": ([t("A", a("x", 1), a("y", 2)), t("B", a("x", 3), a("y", 4))], {"x": [3, 1], "y": [4, 2]}),
    "a read of the past": ([t("A", a("x", 1)), t("B", r("x"))], {"x": [1]}),
    "a failed one left nothing": ([t("A", a("x", 1), outcome="fail"), t("B", r("x"))], {}),
    "an undecided one that landed": ([t("A", r("x"), a("x", 1), outcome="unknown"), t("B", r("x", 1))], {"x": [1]}),
    "an undecided one that did not": ([t("A", a("x", 1), outcome="unknown"), t("B", r("x"))], {}),
    "what failed ones read does not count": (
        [t("A", a("x", 1)), t("B", r("x"), r("y", 2), a("x", 9), outcome="fail"), t("C", a("y", 2))],
        {"x": [1], "y": [2]},
    ),
    "overlapping in time": (
        [t("A", a("x", 1), began=0, ended=5), t("B", r("x"), began=1, ended=2), t("C", r("x", 1), began=3, ended=4)],
        {"x": [1]},
    ),
}  # fmt: skip

BAD: dict[str, tuple[str, list[Transaction], Lists]] = {
    "two write two lists in opposite orders": (
        "G0", [t("A", a("x", 1), a("y", 1)), t("B", a("x", 2), a("y", 2))], {"x": [1, 2], "y": [2, 1]},
    ),
    "each reads what the other wrote": (
        "G1c", [t("A", a("x", 1), r("y", 2)), t("B", a("y", 2), r("x", 1))], {"x": [1], "y": [2]},
    ),
    "G1c through a third": (
        "G1c",
        [t("A", a("x", 1), r("z", 3)), t("B", a("x", 2), a("y", 1)), t("C", r("y", 1), a("z", 3))],
        {"x": [1, 2], "y": [1], "z": [3]},
    ),
    "a lost update": ("G-single", [t("A", r("x"), a("x", 1)), t("B", r("x"), a("x", 2))], {"x": [1, 2]}),
    "read skew": (
        "G-single", [t("A", a("x", 1), a("y", 1)), t("B", r("x"), r("y", 1))], {"x": [1], "y": [1]},
    ),
    "a read before the own base": (
        "G-single", [t("A", a("x", 1)), t("B", r("x", 1), a("y", 2)), t("C", r("y", 2), r("x"))],
        {"x": [1], "y": [2]},
    ),
    "write skew": (
        "G2", [t("A", r("x"), r("y"), a("x", 1)), t("B", r("x"), r("y"), a("y", 2))], {"x": [1], "y": [2]},
    ),
    "write skew of three": (
        "G2",
        [t("A", r("x"), a("y", 1)), t("B", r("y"), a("z", 1)), t("C", r("z"), a("x", 1))],
        {"x": [1], "y": [1], "z": [1]},
    ),
    "the readers' anomaly": (
        "G2",
        [t("A", a("x", 1)), t("B", a("y", 2)), t("C", r("x", 1), r("y")), t("D", r("x"), r("y", 2))],
        {"x": [1], "y": [2]},
    ),
    "a value of a failed transaction": (
        "G1a", [t("A", a("x", 1), outcome="fail"), t("B", r("x", 1))], {"x": [1]},
    ),
    "a failed transaction in the end": ("G1a", [t("A", a("x", 1), outcome="fail")], {"x": [1]}),
    "half of a transaction": (
        "G1b", [t("A", a("x", 1), a("x", 2)), t("B", r("x", 1))], {"x": [1, 2]},
    ),
    "an acknowledged value that is gone": ("lost", [t("A", a("x", 1))], {"x": []}),
    "an acknowledged value in a list that is gone": ("lost", [t("A", a("x", 1))], {}),
    "a value twice": ("duplicate", [t("A", a("x", 1)), t("B", r("x", 1, 1))], {"x": [1]}),
    "a value of nobody": ("phantom value", [t("A", r("x", 7))], {"x": []}),
    "two orders": (
        "incompatible order",
        [t("A", a("x", 1)), t("B", a("x", 2)), t("C", r("x", 1, 2)), t("D", r("x", 2, 1))],
        {"x": [1, 2]},
    ),
    "an own value unseen": ("internal", [t("A", a("x", 1), r("x"))], {"x": [1]}),
    "a read that is not repeated": (
        "internal", [t("A", r("x"), r("x", 1)), t("B", a("x", 1))], {"x": [1]},
    ),
    "a stale read": (
        "real time", [t("A", a("x", 1), began=0, ended=1), t("B", r("x"), began=2, ended=3)], {"x": [1]},
    ),
    "the past comes later": (
        "real time",
        [t("A", r("x", 1), began=0, ended=1), t("B", a("x", 1), began=2, ended=3)],
        {"x": [1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_accepted(name: str) -> None:
    history, final = GOOD[name]
    assert check(history, final) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_named(name: str) -> None:
    kind, history, final = BAD[name]
    assert kind in {anomaly.kind for anomaly in check(history, final)}, [
        str(anomaly) for anomaly in check(history, final)
    ]


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][0].startswith("G")])
def test_the_order_of_the_report_does_not_matter(name: str) -> None:
    _, history, final = BAD[name]
    for seed in range(5):
        mixed = random.Random(seed).sample(history, len(history))
        assert {anomaly.kind for anomaly in check(mixed, final)} == {anomaly.kind for anomaly in check(history, final)}


def _serial(seed: int, count: int) -> tuple[list[Transaction], dict[str, list[int]]]:
    """A history that somebody ran one by one; each begins before the one before it has ended."""
    chance = random.Random(seed)
    lists: dict[str, list[int]] = {key: [] for key in "xyz"}
    history = []
    for number in range(count):
        steps: list[Step] = []
        for _ in range(chance.randint(1, 4)):
            key = chance.choice("xyz")
            if chance.random() < 0.5:
                steps.append(Read(key, tuple(lists[key])))
            else:
                value = sum(map(len, lists.values()))
                lists[key].append(value)
                steps.append(Append(key, value))
        history.append(Transaction(f"t{number}", tuple(steps), "ok", number - 0.5, number + 1.0))
    return history, lists


@pytest.mark.parametrize("seed", range(10))
def test_serial_histories_are_accepted_and_a_flaw_is_found(seed: int, sweep_seed: int) -> None:
    history, final = _serial(sweep_seed + seed, 200)
    assert check(history, final) == []
    flawed = _with_stale_read(history, random.Random(sweep_seed + seed))
    assert check(flawed, final) != []


def _with_stale_read(history: list[Transaction], chance: random.Random) -> list[Transaction]:
    """One read shows the list as it was long before: somebody's acknowledged append is not in it."""
    places = [
        (number, position)
        for number, transaction in enumerate(history)
        for position, step in enumerate(transaction.steps)
        if isinstance(step, Read) and len(step.values) > 20
    ]
    number, position = chance.choice(places)
    transaction = history[number]
    read = transaction.steps[position]
    assert isinstance(read, Read)
    steps = (*transaction.steps[:position], Read(read.key, read.values[:-10]), *transaction.steps[position + 1 :])
    changed = Transaction(transaction.name, steps, transaction.outcome, transaction.began_s, transaction.ended_s)
    return [*history[:number], changed, *history[number + 1 :]]
