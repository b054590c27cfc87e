"""Whatever the text, the answer is a tree or a typed error, and never anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, ParseError, TypeCheckError
from omnigraph.query.language.bind import bind_params
from omnigraph.query.language.check import check_query
from omnigraph.query.language.format import format_queries
from omnigraph.query.language.lint import lint
from omnigraph.query.language.parse import CODES, parse_queries
from tests.query.language import support
from tests.query.language.show_checked import show

_LANGUAGE = (
    "query match return order limit offset not optional or and as insert update set where delete distinct asc desc "
    "is null true false in contains starts_with now date datetime count sum avg min max search match_text fuzzy bm25 "
    "nearest rrf k edits Person Company Event Seat Knows WorksAt knows worksAt attended in seat name age karma points "
    "score born seen active role bio tags marks days face photo since id src dst from to $p $q $e $n $v $ "
    '"Ada" "admin" "2026-01-31" 0 1 -1 3 2.5 1e400 18446744073709551615 99999999999999999999 { } ( ) [ ] , : . < > = '
    "!= <= >= <knows> @description String I64 Vector [ ] ? // /* */ \n"
)
WORDS = _LANGUAGE.split(" ")

# The time of one example says nothing on a busy machine: the first one builds the parser.
SOME = settings(deadline=None)
MANY = settings(deadline=None, max_examples=300)


def _refusal(call: Callable[[], object]) -> InvalidInput | None:
    """The typed error of a call; any other exception fails the test."""
    try:
        call()
    except InvalidInput as error:
        return error
    return None


def _survives(source: str) -> None:
    """Parse, check, print, bind and format; only typed errors with known codes may come out."""
    error = _refusal(lambda: parse_queries(source))
    if error is not None:
        assert isinstance(error, ParseError)
        assert error.code in CODES
        assert json.dumps(error.to_json())
        return
    format_queries(source)
    for query in parse_queries(source):
        error = _refusal(lambda query=query: check_query(query, support.catalog()))  # type: ignore[misc]
        if error is not None:
            assert isinstance(error, TypeCheckError)
            assert error.code in CODES
            assert json.dumps(error.to_json())
            continue
        checked = check_query(query, support.catalog())
        assert show(checked)
        error = _refusal(lambda checked=checked: bind_params(checked, {"n": 1, "v": [1, 2, 3]}))  # type: ignore[misc]
        assert error is None or error.code in {"P1", "P2", "P3"}


@given(st.text())
@settings(SOME)
def test_any_text(source: str) -> None:
    _survives(source)
    assert json.dumps(lint(source, support.catalog()).to_json())


@given(st.lists(st.sampled_from(WORDS), max_size=40))
@settings(SOME)
def test_any_sentence_of_words_of_the_language(words: list[str]) -> None:
    _survives(" ".join(words))


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.lists(st.sampled_from(WORDS), max_size=8))
@settings(SOME)
def test_any_words_inside_a_query(clauses: list[str], results: list[str]) -> None:
    head = "query q($n: I64, $v: Vector(3)) { match { $p: Person $p $e: knows $q"
    _survives(f"{head} {' '.join(clauses)} }} return {{ {' '.join(results)} }} }}")
    _survives(f"{head} {' '.join(clauses)} }} return {{ $p.name }} order {{ {' '.join(results)} }} limit 3 }}")


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.lists(st.sampled_from(WORDS), max_size=8))
@settings(SOME)
def test_any_words_inside_a_mutation(values: list[str], condition: list[str]) -> None:
    _survives(f"query q($n: I64) {{ update Person set {{ {' '.join(values)} }} where {' '.join(condition)} }}")


_OPERANDS = (
    '1 -1 2.5 true null "x" "admin" "2026-01-31" date("2026-01-31") datetime("2026-01-31T00:00:00Z") now() [1,2] ["x"] '
    "[] [$n] [$l] [now()] [[1]] $b "
    "$n $s $d $l $v $p $p.name $p.age $p.karma $p.points $p.score $p.born $p.seen $p.active $p.role $p.tags "
    "$p.marks $p.days $p.face $p.photo $p.id $e.since $e.src $q.name count($p) foo "
    'bm25($p.bio,"x") search($p.bio,$s)'
)
VALUES = st.sampled_from(_OPERANDS.split(" "))
OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "in"])


@given(VALUES, OPS, VALUES)
@settings(MANY)
def test_any_comparison(left: str, op: str, right: str) -> None:
    """Every pair of operands under every operator is typed or refused, never half of it."""
    head = "query q($n: I64, $s: String, $d: Date?, $l: [String], $v: Vector(3), $b: Blob)"
    match = f"match {{ $p: Person $p $e: knows $q {left} {op} {right} }}"
    _survives(f"{head} {{ {match} return {{ {left} as a, {right} as b }} }}")


@pytest.mark.parametrize("folder", ["accepted", "refused"])
def test_damaged_golden_texts(folder: str, sweep_seed: int) -> None:
    """Characters dropped, doubled or swapped in real queries: sampled, the seed is printed by the run."""
    chance = random.Random(sweep_seed)
    for case in chance.sample(support.cases(folder), 40):
        text = case.source
        for _ in range(5):
            at = chance.randrange(len(text))
            cut = chance.choice(["", text[at] * 2, chance.choice('{}()[]$":,.<>= \n')])
            _survives(text[:at] + cut + text[at + 1 :])
