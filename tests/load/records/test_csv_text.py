"""The two ways to tell CSV apart into rows agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.load.records import csv_text
from omnigraph.load.records.csv_text import parse_csv_rows

_TEXT = st.text(alphabet=["a", ",", "\n", "\r", " ", "é"], max_size=30)


@given(_TEXT)
def test_text_without_quotes(text: str) -> None:
    plain = list(parse_csv_rows(text, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_text, "_parse_unquoted_rows", lambda text, line: csv_rows_by_field(text, line))
        assert list(parse_csv_rows(text, 5)) == plain


def csv_rows_by_field(text: str, line: int) -> list[csv_text.CsvRow]:
    """By way of a quoted row in front, which switches the shortcut off."""
    return [
        parse_csv_row for parse_csv_row in parse_csv_rows('"x"\n' + text, line - 1) if parse_csv_row.fields != ("x",)
    ]
