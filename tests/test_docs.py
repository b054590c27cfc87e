"""The documentation tells the truth about the tests and about itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROTOCOL = ROOT / "docs" / "internals" / "protocol.md"
SCENARIOS = ROOT / "docs" / "internals" / "scenarios.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "model" / "README.md"])


def _rows() -> dict[int, str]:
    return {int(number): row_text for number, row_text in re.findall(r"^\| H(\d+) \|(.*)$", PROTOCOL.read_text(), re.M)}


def _tested_rules(path: Path) -> set[int]:
    return {int(number) for number in re.findall(r"^def test_h(\d\d)_", path.read_text(), re.M)}


def test_every_rule_has_its_row() -> None:
    assert sorted(_rows()) == list(range(1, 42))


def test_a_rule_names_the_file_that_tests_it() -> None:
    documented_files = {
        number: ROOT / "docs" / "internals" / match[1]
        for number, row in _rows().items()
        if (match := re.search(r"`test_h\d\d_\*`\]\(([^)]+)\)", row))
    }
    wrong = [
        number for number, path in documented_files.items() if not path.exists() or number not in _tested_rules(path)
    ]
    assert wrong == []
    folders = (ROOT / "tests" / "schedules", ROOT / "tests" / "intents")
    tested = set().union(*(_tested_rules(path) for folder in folders for path in folder.glob("test_*.py")))
    assert set(documented_files) == tested


def test_every_scenario_is_named_by_a_test() -> None:
    documented = {int(number) for number in re.findall(r"^- \*\*S(\d+)\*\*", SCENARIOS.read_text(), re.M)}
    assert sorted(documented) == list(range(1, 171))
    named_by_tests: set[int] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        named_by_tests |= {int(number) for number in re.findall(r"def test_(?:\w+_)?s(\d+)_", text)}
        for first, last in re.findall(r"\bS(\d+)\b(?:(?:–| to )S(\d+)\b)?", text):
            named_by_tests |= set(range(int(first), int(last or first) + 1))
    assert documented - named_by_tests == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []
