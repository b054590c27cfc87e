"""What the staging tasks have said, put together on the driver: descriptions of files and numbers, never rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.load.records.model import Problem, Reject
from omnigraph.load.spark.reject import Origin


@dataclass
class Gathered:
    """By table: fragments in the order of the input, where each comes from, and what is known of its ids."""

    fragments: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, dict[str, Origin]] = field(default_factory=dict)
    present: Counter[str] = field(default_factory=Counter)
    portions: Counter[str] = field(default_factory=Counter)
    minted: set[str] = field(default_factory=set)  # tables all of whose ids were made by the load
    rows: int = 0
    duplicates: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    sample: list[Reject] = field(default_factory=list)

    @classmethod
    def of(cls, results: Iterable[Mapping[str, Any]]) -> Gathered:
        """The last of two results of one portion counts no more than the first: there is one of each."""
        found = cls()
        given: set[str] = set()
        for one in sorted(results, key=lambda one: (one["split"], one["portion"])):
            found.duplicates += one["duplicates"]
            found.rejected.update(one["rejected"])
            found.sample += [reject_of(raw) for raw in one["sample"]]
            for table, part in one["tables"].items():
                found._take(table, part, one["split"], one["portion"])
                given |= set() if part["minted"] else {table}
        found.minted = set(found.fragments) - given
        return found

    def _take(self, table: str, part: Mapping[str, Any], split: int, portion: int) -> None:
        self.present[table] += part["present"]
        self.portions[table] += 1
        first = 0
        for fragment in part["fragments"]:
            self.fragments.setdefault(table, []).append(json.dumps(fragment))
            path = fragment["files"][0]["path"]
            self.origins.setdefault(table, {})[path] = Origin(split, portion, first)
            first += fragment["physical_rows"]
        self.rows += first


def reject_of(raw: Mapping[str, Any]) -> Reject:
    """A reject from its line of JSON."""
    others = tuple(Problem(**one) for one in raw.get("others", ()))
    return Reject(**{**raw, "others": others})
