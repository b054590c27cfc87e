"""Text search, evaluated here: exact for every row, whatever an index of the store covers.

A text is NFKC-normalised, case-folded and cut into runs of letters and digits; there are no stop words and no stems.
`search` asks for any term, `match_text` for the terms in a row, `fuzzy` for any term within so many insertions,
deletions or replacements. A query without terms matches nothing. `bm25` uses k1 = 1.2, b = 0.75 and the statistics of
all rows of the table that have the text, so that neither filters nor folding change a score.
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
#: What a word costs besides its rows.
_POSTINGS_BYTES = 200

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Check = Callable[[], None]
RowsByTerm = dict[str, tuple[list[int], list[int]]]


def has_phrase(words: Sequence[str], phrase: Sequence[str]) -> bool:
    size = len(phrase)
    return any(list(words[at : at + size]) == list(phrase) for at in range(len(words) - size + 1)) if size else False


def is_within_edits(one: str, two: str, edits: int) -> bool:
    """Whether the Levenshtein distance is at most `edits`."""
    if abs(len(one) - len(two)) > edits:
        return False
    if one == two or edits >= max(len(one), len(two)):
        return True
    row = list(range(len(two) + 1))
    for at, char in enumerate(one, 1):
        above, row = row, [at]
        for place, other in enumerate(two, 1):
            row.append(min(above[place] + 1, row[-1] + 1, above[place - 1] + (char != other)))
        if min(row) > edits:
            return False
    return row[-1] <= edits


@dataclass(frozen=True, slots=True)
class TextQuery:
    """What a text filter looks for."""

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
                return any(is_within_edits(one, two, self.edits) for two in set(words) for one in self.terms)
        return not set(self.terms).isdisjoint(words)


def match_texts(texts: pa.ChunkedArray, query: TextQuery, check: Check) -> Bools:
    """Which of these texts match, each looked at by itself; a missing text does not."""
    found = np.zeros(len(texts), np.bool_)
    for at, text in enumerate(texts.to_pylist()):
        if at % _CHECK_EVERY == 0:
            check()
        found[at] = text is not None and query.matches(terms(text))
    return found


@dataclass(frozen=True, slots=True)
class Postings:
    """Rows that hold one term, and how often."""

    rows: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, rows: list[int], counts: list[int]) -> Postings:
        return cls(np.array(rows, np.int32), np.array(counts, np.int32))

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.counts.nbytes) + _POSTINGS_BYTES


def _collect_postings(
    texts: Iterable[tuple[int, str | None]], lengths: npt.NDArray[np.int32], present: Bools, check: Check
) -> RowsByTerm:
    """The rows and counts of every term of these texts; fills in their lengths."""
    collected: RowsByTerm = {}
    for number, (at, text) in enumerate(texts):
        if number % _CHECK_EVERY == 0:
            check()
        if text is None:
            continue
        words = terms(text)
        present[at] = True
        lengths[at] = len(words)
        for word, count in Counter(words).items():
            rows, counts = collected.setdefault(word, ([], []))
            rows.append(at)
            counts.append(count)
    return collected


class TextIndex:
    """All texts of one column by their terms. Rows are places in the column. `nbytes` leaves out what is shared."""

    def __init__(
        self,
        texts: pa.ChunkedArray,
        lengths: npt.NDArray[np.int32],
        present: Bools,
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
        postings = {word: Postings.of(*found) for word, found in collected.items()}
        return cls(texts, lengths, present, postings, sum(one.nbytes for one in postings.values()))

    def with_changes(self, texts: pa.ChunkedArray, places: Ints, check: Check) -> TextIndex:
        """The index of a column that differs from this one in these places only; some may be behind its end."""
        grown = len(texts) - len(self._lengths)
        lengths = np.concatenate([self._lengths, np.zeros(grown, np.int32)])
        present = np.concatenate([self._present, np.zeros(grown, np.bool_)])
        old = places[places < len(self._lengths)]
        lengths[old], present[old] = 0, False
        gone: dict[str, list[int]] = {}
        for at, text in zip(old.tolist(), self._texts.take(pa.array(old)).to_pylist(), strict=True):
            for word in set(terms(text)) if text is not None else ():
                gone.setdefault(word, []).append(at)
        rows = zip(places.tolist(), texts.take(pa.array(places)).to_pylist(), strict=True)
        new = _collect_postings(rows, lengths, present, check)
        postings = dict(self._postings)
        size = 0
        for word in {*gone, *new}:
            made = self._replace_postings(word, gone.get(word, []), new.get(word, ([], [])))
            size += made.nbytes
            postings[word] = made
            if not len(made.rows):
                del postings[word]
        return TextIndex(texts, lengths, present, postings, size)

    def _replace_postings(self, word: str, gone: list[int], new: tuple[list[int], list[int]]) -> Postings:
        added, old = Postings.of(*new), self._postings.get(word)
        if old is None:
            return added
        kept = ~np.isin(old.rows, gone)
        return Postings(np.concatenate([old.rows[kept], added.rows]), np.concatenate([old.counts[kept], added.counts]))

    def match_rows(self, query: TextQuery, check: Check) -> Bools:
        """Which rows match."""
        found = np.zeros(len(self._lengths), np.bool_)
        if not query.terms:
            return found
        if query.function == "match_text":
            return self._match_phrase(query, found)
        wanted: Iterable[str] = set(query.terms)
        if query.function == "fuzzy":
            check()
            wanted = [
                word for word in self._postings if any(is_within_edits(one, word, query.edits) for one in query.terms)
            ]
        for word in wanted:
            if word in self._postings:
                found[self._postings[word].rows] = True
        return found

    def _match_phrase(self, query: TextQuery, found: Bools) -> Bools:
        """Rows that hold all terms are read again for their order."""
        lists = [self._postings.get(word) for word in set(query.terms)]
        if any(one is None for one in lists):
            return found
        rows = [one.rows for one in lists if one is not None]
        both = rows[0]
        for one in rows[1:]:
            both = np.intersect1d(both, one, assume_unique=True)
        if len(query.terms) == 1:
            found[both] = True
            return found
        for at, text in zip(both, self._texts.take(pa.array(both)).to_pylist(), strict=True):
            found[at] = has_phrase(terms(text), query.terms)
        return found

    def weights(self, query: str) -> dict[str, float]:
        """Inverse document frequencies of the query's terms; terms that no row holds have none."""
        found = {}
        for word in dict.fromkeys(terms(query)):
            postings = self._postings.get(word)
            if postings is not None:
                rows = len(postings.rows)
                found[word] = math.log(1 + (self.documents - rows + 0.5) / (rows + 0.5))
        return found

    def scores(self, query: str) -> pa.Array:
        """bm25 of every row; null where the text is missing."""
        total = np.zeros(len(self._lengths))
        for word, weight in self.weights(query).items():
            postings = self._postings[word]
            total[postings.rows] += self._term_score(weight, postings.counts, self._lengths[postings.rows])
        return pa.array(total, mask=~self._present)

    def scores_of(self, texts: pa.ChunkedArray, query: str) -> pa.Array:
        """bm25 of single texts of the column, the same as `scores` gives for their rows."""
        weights = self.weights(query)
        found: list[float | None] = []
        for text in texts.to_pylist():
            if text is None:
                found.append(None)
                continue
            words = terms(text)
            counts, length = Counter(words), np.array([len(words)])
            score = np.zeros(1)
            for word, weight in weights.items():
                if counts[word]:
                    score += self._term_score(weight, np.array([counts[word]]), length)
            found.append(float(score[0]))
        return pa.array(found, pa.float64())

    def _term_score(self, weight: float, counts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Floats:
        norm = _K1 * (1 - _B + _B * (lengths / self.mean_length))
        part: Floats = weight * counts * (_K1 + 1) / (counts + norm)
        return part
