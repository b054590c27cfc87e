"""Findings in a text: place, caret, order."""

from __future__ import annotations

from omnigraph.schema.diagnostics import EXCERPT_WIDTH, Diagnostics, excerpt, render


def test_excerpt_puts_the_caret_under_the_place() -> None:
    assert excerpt("one\n  two three\n", 2, 7, 5) == "  2 |   two three\n    |       ^^^^^"


def test_excerpt_keeps_the_caret_aligned_behind_tabs_and_control_characters() -> None:
    assert excerpt("\t\x07x", 1, 3) == "  1 |   x\n    |   ^"


def test_excerpt_counts_wide_and_combining_characters_as_a_terminal_does() -> None:
    assert excerpt("漢e\u0301x", 1, 4) == "  1 | 漢e\u0301x\n    |    ^"


def test_excerpt_of_the_place_after_the_last_character() -> None:
    assert excerpt("ab", 1, 3, 9) == "  1 | ab\n    |   ^"


def test_excerpt_of_a_line_that_is_not_there() -> None:
    assert excerpt("ab", 7, 1) == ""


def test_excerpt_cuts_a_long_line_around_the_place() -> None:
    text, carets = excerpt("x" * 500 + "HERE" + "y" * 500, 1, 501, 4).split("\n")
    assert len(text) == EXCERPT_WIDTH + len("  1 | ")
    at = carets.index("^")
    assert text[at : at + 4] == "HERE"
    assert carets[at:] == "^^^^"


def test_findings_come_in_the_order_of_the_text_and_once() -> None:
    diagnostics = Diagnostics("a\nb c", "f.pg")
    diagnostics.add("X-2", "second", 2, 3, advice="Remove it")
    diagnostics.add("X-1", "first", 2, 1)
    diagnostics.add("X-1", "first", 2, 1)
    assert [diagnostic.code for diagnostic in diagnostics] == ["X-1", "X-2"]
    assert len(diagnostics) == 2
    assert render(list(diagnostics)[1]) == "f.pg:2:3: X-2: second\n  2 | b c\n    |   ^\n  help: Remove it"
    assert diagnostics.to_json()[0]["end_column"] == 2
