"""The golden corpus: one idea per file, a text and what comes of it. OMNIGRAPH_GOLDEN=update rewrites the files.

S163 is `refused/d2-*` and the pure mutations of `accepted`.
"""

from __future__ import annotations

import re

import pytest

from omnigraph.query.language.parse import CODES, parser
from tests.query.language import support


@pytest.mark.parametrize("case", support.cases("accepted"), ids=lambda case: case.id)
def test_accepted(case: support.LanguageCase) -> None:
    case.settle(support.render_accepted(case))


@pytest.mark.parametrize("case", support.cases("refused"), ids=lambda case: case.id)
def test_refused(case: support.LanguageCase) -> None:
    actual = support.render_refused(case)
    assert not actual.startswith("accepted"), actual
    case.settle(actual)


@pytest.mark.parametrize("case", support.cases("warned"), ids=lambda case: case.id)
def test_warned(case: support.LanguageCase) -> None:
    case.settle(support.render_warned(case))


def test_corpus_reaches_every_code() -> None:
    texts = [case.expected for folder in ("refused", "warned") for case in support.cases(folder)]
    reached = {code for text in texts for code in re.findall(r"\b(?:Q\d{3}|D2|[TPL]\d+)\b", text)}
    assert reached == set(CODES)


def test_corpus_reaches_every_production() -> None:
    """Rules by the name they leave in the tree; rules that leave none are parts of others."""
    rules = {str(rule.alias or rule.origin.name) for rule in parser().rules}
    public_rules = {name for name in rules if not name.startswith("_")}
    trees = [parser().parse(case.source) for case in support.cases("accepted")]
    assert {str(node.data) for tree in trees for node in tree.iter_subtrees()} == public_rules


def test_corpus_is_large_enough() -> None:
    assert len(support.cases("accepted")) >= 120
    assert len(support.cases("refused")) >= 120
