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
    """When the overlay is folded into tables: at its bounds, never, after every commit, or after half of them."""

    overlay_soft_bytes: int = 64 * 1024
    """The soft bound of the overlay in bytes: from half of it on, writers fold in the background, by chance."""

    overlay_soft_entries: int = 512
    """The soft bound in entries. The bound that is nearer counts. Also bounds the entries of one group commit."""

    overlay_hard_factor: int = 4
    """At this many times a soft bound, a writer must fold before it writes."""

    inline_share: int = 4
    """A change is stored in the commit record if it is at most 1/n of the soft bound; 0 stages every change."""

    mutation_max_rows: int = 100_000
    """A mutation that changes more rows is refused; large changes are loaded."""

    publish_max_rounds: int = 64
    """A write that has lost this many races for the next commit record ends with `Contention`."""

    publish_deadline_s: float = 30.0
    """A write that has lost races for this long ends with `Contention`; the time of staging does not count."""

    publish_max_prepares: int = 8
    """A write that had to stage tables again more often than this ends with `Contention`."""

    read_ahead: int = 16
    """How many commit records a reader that follows a stream requests at once."""

    walk_limit: int = 64
    """A publish plan that is more commits behind than this is prepared anew instead of tested against each of them."""

    group_max_members: int = 256
    """How many publish plans share one commit record at most."""

    upkeep_fragments: int = 50
    """A table with this many small fragments needs optimize; a server then runs it in the background."""

    pressure_wait_fragments: int = 200
    """Small writers wait if a table has this many small fragments."""

    pressure_stop_fragments: int = 1000
    """Small writers are refused until optimize has run if a table has this many small fragments."""

    embedding: str = ""
    """The provider that turns text into vectors for `nearest`, by name; empty refuses such queries."""

    load_concurrency: int = 0
    """How many tasks of one load write data files at the same time; 0 means as many as Spark runs."""

    load_check_rows: int = 50_000_000
    """Up to this many rows of input and graph, one task checks the constraints of a load; more rows are shuffled."""

    merge_spark_rows: int = 200_000
    """A merge whose source may have changed more rows than this runs on Spark, unless the caller chooses an engine."""

    idempotency_days: int = 7
    """How long the answer to a write is kept under its client key. Optimize removes older answers."""

    recovery_grace: float = 900.0
    """Seconds without a heartbeat after which another process may end a bulk operation. At least ten heartbeats."""

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
        variables = os.environ if environment is None else environment
        changes: dict[str, Any] = {}
        for field in fields(cls):
            text = variables.get(f"OMNIGRAPH_{field.name.upper()}")
            if text is not None:
                changes[field.name] = _convert(field.name, text, getattr(cls(), field.name))
        return replace(cls(), **changes)


def _convert(name: str, text: str, default: object) -> object:
    """The text converted to the type of the default; raises `InvalidInput` that names the variable."""
    variable = f"OMNIGRAPH_{name.upper()}"
    if isinstance(default, bool):
        switches = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if text.lower() not in switches:
            raise InvalidInput(f"{variable} is {text!r}", advice="Use on or off", variable=variable)
        return switches[text.lower()]
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError as error:
            raise InvalidInput(f"{variable} is {text!r}", advice="Use a number", variable=variable) from error
    if name == "fold" and text not in ("auto", "never", "always", "random"):
        raise InvalidInput(f"{variable} is {text!r}", advice="Use auto, never, always or random", variable=variable)
    return text
