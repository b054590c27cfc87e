"""Removing any one rule is caught: every rule guards a schedule, and every schedule of the protocol has such a rule."""

from __future__ import annotations

import re
from pathlib import Path

from tests.schedules.rules import rule_names

HERE = Path(__file__).parent
GUARDED = re.compile(r"@run_without_rules\(([^)]*)\)\n(?:@[^\n]*\n)*def test_(h(\d\d)|section_1)_")


def _guards() -> list[tuple[set[str], int | None]]:
    """The rules that each guarded schedule misses when they are taken out, and the number it has in the protocol."""
    return [
        (set(re.findall(r'"([^"]+)"', match[1])), int(match[3]) if match[3] else None)
        for path in sorted(HERE.glob("test_h*.py"))
        for match in GUARDED.finditer(path.read_text())
    ]


def test_every_rule_that_can_be_taken_out_is_missed_by_a_schedule() -> None:
    missed = set().union(*(rules for rules, _ in _guards()))
    assert missed == set(rule_names())


def test_every_rule_of_the_protocol_is_missed_when_it_is_taken_out() -> None:
    assert {number for _, number in _guards() if number} == set(range(1, 42))
