"""Evaluates text search in this process: exactly for every row, without any index of the store.

A text is NFKC-normalised, case-folded and cut into runs of letters and digits; there are no stop words and no stems.
`search` matches any term, `match_text` the terms as a phrase, `fuzzy` any term within a number of insertions, deletions
or replacements. A query without terms matches nothing. `bm25` uses k1 = 1.2, b = 0.75 and the statistics of all rows of
the table that have a text, so that neither filters nor folding change a score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.embed.words import terms

_K1, _B = 1.2, 0.75
_CHECK_EVERY = 4_096
#: Estimated memory of a term besides its arrays.
_POSTINGS_BYTES = 200

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Check = Callable[[], None]
RowsByTerm = dict[str, tuple[list[int], list[int]]]


def has_phrase(words: Sequence[str], phrase: Sequence[str]) -> bool:
    size = len(phrase)
    if not size:
        return False
    return any(list(words[start : start + size]) == list(phrase) for start in range(len(words) - size + 1))


def is_within_edits(first: str, second: str, edits: int) -> bool:
    """Whether the Levenshtein distance is at most `edits`."""
    if abs(len(first) - len(second)) > edits:
        return False
    if first == second or edits >= max(len(first), len(second)):
        return True
    row = list(range(len(second) + 1))
    for row_number, first_char in enumerate(first, 1):
        above, row = row, [row_number]
        for column, second_char in enumerate(second, 1):
            row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (first_char != second_char)))
        if min(row) > edits:
            return False
    return row[-1] <= edits


@dataclass(frozen=True, slots=True)
class TextQuery:
    """The function and the terms of a text filter."""

    function: str
    terms: tuple[str, ...]
    edits: int = 0

    @classmethod
    def of(cls, function: str, query: str, edits: int = 0) -> TextQuery:
        return cls(function, tuple(terms(query)), edits)

    def matches(self, words: Sequence[str]) -> bool:
        match self.function:
            case "match_text":
                return has_phrase(words, self.terms)
            case "fuzzy":
                return any(is_within_edits(term, word, self.edits) for word in set(words) for term in self.terms)
        return not set(self.terms).isdisjoint(words)


def match_texts(texts: pa.ChunkedArray, query: TextQuery, check: Check) -> BoolArray:
    """Returns which of these texts match; a missing text does not."""
    is_match = np.zeros(len(texts), np.bool_)
    for row, text in enumerate(texts.to_pylist()):
        if row % _CHECK_EVERY == 0:
            check()
        is_match[row] = text is not None and query.matches(terms(text))
    return is_match


@dataclass(frozen=True, slots=True)
class Postings:
    """The rows that contain one term, and how often."""

    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, rows: list[int], counts: list[int]) -> Postings:
        return cls(np.array(rows, np.int32), np.array(counts, np.int32))

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.counts.nbytes) + _POSTINGS_BYTES


def _collect_postings(
    texts: Iterable[tuple[int, str | None]], lengths: npt.NDArray[np.int32], present: BoolArray, check: Check
) -> RowsByTerm:
    """Returns the rows and counts of every term of these texts; fills in `lengths` and `present`."""
    collected: RowsByTerm = {}
    for number, (row, text) in enumerate(texts):
        if number % _CHECK_EVERY == 0:
            check()
        if text is None:
            continue
        words = terms(text)
        present[row] = True
        lengths[row] = len(words)
        for word, count in Counter(words).items():
            rows, counts = collected.setdefault(word, ([], []))
            rows.append(row)
            counts.append(count)
    return collected


class TextIndex:
    """All texts of one column by term; a row is a position in the column. `nbytes` excludes what two indexes share."""

    def __init__(
        self,
        texts: pa.ChunkedArray,
        lengths: npt.NDArray[np.int32],
        present: BoolArray,
        postings: dict[str, Postings],
        postings_bytes: int,
    ) -> None:
        self._texts = texts
        self._lengths, self._present = lengths, present
        self._postings = postings
        self.nbytes = postings_bytes + int(lengths.nbytes + present.nbytes)
        self.documents = int(present.sum())
        self.mean_length = float(lengths.sum()) / self.documents if self.documents else 0.0

    @classmethod
    def of(cls, texts: pa.ChunkedArray, check: Check) -> TextIndex:
        lengths, present = np.zeros(len(texts), np.int32), np.zeros(len(texts), np.bool_)
        collected = _collect_postings(enumerate(texts.to_pylist()), lengths, present, check)
        postings = {word: Postings.of(rows, counts) for word, (rows, counts) in collected.items()}
        return cls(texts, lengths, present, postings, sum(posting.nbytes for posting in postings.values()))

    def with_changes(self, texts: pa.ChunkedArray, changed: Int64Array, check: Check) -> TextIndex:
        """Returns the index of a column that differs from this one in the rows `changed` only, or is longer."""
        added_rows = len(texts) - len(self._lengths)
        lengths = np.concatenate([self._lengths, np.zeros(added_rows, np.int32)])
        present = np.concatenate([self._present, np.zeros(added_rows, np.bool_)])
        replaced = changed[changed < len(self._lengths)]
        lengths[replaced], present[replaced] = 0, False
        removed_rows: dict[str, list[int]] = {}
        for row, text in zip(replaced.tolist(), self._texts.take(pa.array(replaced)).to_pylist(), strict=True):
            for word in set(terms(text)) if text is not None else ():
                removed_rows.setdefault(word, []).append(row)
        new_texts = zip(changed.tolist(), texts.take(pa.array(changed)).to_pylist(), strict=True)
        new = _collect_postings(new_texts, lengths, present, check)
        postings = dict(self._postings)
        size = 0
        for word in {*removed_rows, *new}:
            posting = self._replace_postings(word, removed_rows.get(word, []), new.get(word, ([], [])))
            size += posting.nbytes
            postings[word] = posting
            if not len(posting.rows):
                del postings[word]
        return TextIndex(texts, lengths, present, postings, size)

    def _replace_postings(self, word: str, removed_rows: list[int], new: tuple[list[int], list[int]]) -> Postings:
        added, old = Postings.of(*new), self._postings.get(word)
        if old is None:
            return added
        stays = ~np.isin(old.rows, removed_rows)
        return Postings(
            np.concatenate([old.rows[stays], added.rows]), np.concatenate([old.counts[stays], added.counts])
        )

    def match_rows(self, query: TextQuery, check: Check) -> BoolArray:
        """Returns which rows match."""
        is_match = np.zeros(len(self._lengths), np.bool_)
        if not query.terms:
            return is_match
        if query.function == "match_text":
            return self._match_phrase(query, is_match)
        matching_words: Iterable[str] = set(query.terms)
        if query.function == "fuzzy":
            check()
            matching_words = [
                word for word in self._postings if any(is_within_edits(term, word, query.edits) for term in query.terms)
            ]
        for word in matching_words:
            if word in self._postings:
                is_match[self._postings[word].rows] = True
        return is_match

    def _match_phrase(self, query: TextQuery, is_match: BoolArray) -> BoolArray:
        """Reads the texts that contain all terms again, for the order of the terms."""
        postings = [self._postings.get(word) for word in set(query.terms)]
        if any(posting is None for posting in postings):
            return is_match
        rows_by_term = [posting.rows for posting in postings if posting is not None]
        rows = rows_by_term[0]
        for term_rows in rows_by_term[1:]:
            rows = np.intersect1d(rows, term_rows, assume_unique=True)
        if len(query.terms) == 1:
            is_match[rows] = True
            return is_match
        for row, text in zip(rows, self._texts.take(pa.array(rows)).to_pylist(), strict=True):
            is_match[row] = has_phrase(terms(text), query.terms)
        return is_match

    def weights(self, query: str) -> dict[str, float]:
        """Returns the inverse document frequency of every term of the query that occurs in the column."""
        frequencies = {}
        for word in dict.fromkeys(terms(query)):
            postings = self._postings.get(word)
            if postings is not None:
                rows = len(postings.rows)
                frequencies[word] = math.log(1 + (self.documents - rows + 0.5) / (rows + 0.5))
        return frequencies

    def scores(self, query: str) -> pa.Array:
        """Returns the bm25 score of every row; null where the text is missing."""
        total = np.zeros(len(self._lengths))
        for word, weight in self.weights(query).items():
            postings = self._postings[word]
            total[postings.rows] += self._term_score(weight, postings.counts, self._lengths[postings.rows])
        return pa.array(total, mask=~self._present)

    def scores_of(self, texts: pa.ChunkedArray, query: str) -> pa.Array:
        """Returns the bm25 scores of single texts of the column, equal to what `scores` returns for their rows."""
        weights = self.weights(query)
        scores: list[float | None] = []
        for text in texts.to_pylist():
            if text is None:
                scores.append(None)
                continue
            words = terms(text)
            counts, length = Counter(words), np.array([len(words)])
            score = np.zeros(1)
            for word, weight in weights.items():
                if counts[word]:
                    score += self._term_score(weight, np.array([counts[word]]), length)
            scores.append(float(score[0]))
        return pa.array(scores, pa.float64())

    def _term_score(self, weight: float, counts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> FloatArray:
        norm = _K1 * (1 - _B + _B * (lengths / self.mean_length))
        score: FloatArray = weight * counts * (_K1 + 1) / (counts + norm)
        return score
