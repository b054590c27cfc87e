"""Limits and switches of one process, each with its default and its environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from omnigraph.errors import InvalidInput

FoldMode = Literal["auto", "never", "always", "random"]


@dataclass(frozen=True, slots=True)
class Config:
    """Every field can be set by `OMNIGRAPH_<FIELD IN CAPITALS>`."""

    fsync: bool = True
    """Off for tests only: an acknowledged write then survives a crash of the process, not of the machine."""

    fold: FoldMode = "auto"
    """When the overlay moves into tables: by its bounds, never, after every commit, or after every second by chance."""

    overlay_soft_bytes: int = 64 * 1024
    overlay_soft_entries: int = 512
    overlay_hard_factor: int = 4
    inline_share: int = 4
    """A change rides in the record while it is at most one part in so many of the soft bound; 0 stages every change."""

    mutation_max_rows: int = 100_000
    publish_max_rounds: int = 64
    publish_deadline_s: float = 30.0
    publish_max_prepares: int = 8
    """Re-preparations of a change with table work."""

    read_ahead: int = 16
    walk_limit: int = 64
    """A plan further behind than this is prepared anew instead of being tested record by record."""

    group_max_members: int = 256
    upkeep_fragments: int = 50
    """Small fragments of one table from which on it is said to need optimize; a server then runs it by itself."""

    pressure_wait_fragments: int = 200
    """Small fragments of one table from which on small writers have to wait."""

    pressure_stop_fragments: int = 1000
    """Small fragments of one table from which on small writers are refused until optimize has run."""

    embedding: str = ""
    """The provider that turns text into vectors for `nearest`, by name; empty refuses such queries."""

    load_concurrency: int = 0
    """How many tasks of one load write data files at the same time; 0 is as many as Spark runs."""

    load_check_rows: int = 50_000_000
    """Up to so many rows, of the input and the graph, one task checks the rules of a load; more are shuffled."""

    merge_spark_rows: int = 200_000
    """A merge whose source may have changed more rows than this runs on Spark, unless it is told where to run."""

    idempotency_days: int = 7
    recovery_grace: float = 900.0
    """Seconds without a sign of life after which others may end a bulk operation. Never less than ten heartbeats."""

    @property
    def overlay_hard_bytes(self) -> int:
        return self.overlay_soft_bytes * self.overlay_hard_factor

    @property
    def overlay_hard_entries(self) -> int:
        return self.overlay_soft_entries * self.overlay_hard_factor

    @property
    def inline_max_bytes(self) -> int:
        return self.overlay_soft_bytes // self.inline_share if self.inline_share else 0

    @property
    def inline_max_entries(self) -> int:
        return self.overlay_soft_entries // self.inline_share if self.inline_share else 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        found = os.environ if environment is None else environment
        changes: dict[str, Any] = {}
        for one in fields(cls):
            text = found.get(f"OMNIGRAPH_{one.name.upper()}")
            if text is not None:
                changes[one.name] = _convert(one.name, text, getattr(cls(), one.name))
        return replace(cls(), **changes)


def _convert(name: str, text: str, default: object) -> object:
    """The text as the type of the default, or a refusal that names the variable."""
    variable = f"OMNIGRAPH_{name.upper()}"
    if isinstance(default, bool):
        known = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if text.lower() not in known:
            raise InvalidInput(f"{variable} is {text!r}", advice="Use on or off", variable=variable)
        return known[text.lower()]
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError as error:
            raise InvalidInput(f"{variable} is {text!r}", advice="Use a number", variable=variable) from error
    if name == "fold" and text not in ("auto", "never", "always", "random"):
        raise InvalidInput(f"{variable} is {text!r}", advice="Use auto, never, always or random", variable=variable)
    return text
