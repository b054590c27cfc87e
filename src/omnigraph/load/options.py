"""The options of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from omnigraph.errors import InvalidInput
from omnigraph.load.records.batches import ReadLimits

LoadMode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "skip"]
OnDuplicate = Literal["last", "fail"]
LoadEngine = Literal["auto", "local", "spark"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """`rejects` is the directory for rejected records, local or an object-store address."""

    mode: LoadMode = "merge"
    on_error: OnError = "fail"
    rejects: str | None = None
    on_duplicate: OnDuplicate = "last"
    engine: LoadEngine = "auto"
    limits: ReadLimits = field(default_factory=ReadLimits)
    local_max_bytes: int = 64 * MIB
    spark_from_bytes: int = MIB
    split_bytes: int = 32 * MIB
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, get_args(LoadMode))
        _check_choice("on_error", self.on_error, get_args(OnError))
        _check_choice("on_duplicate", self.on_duplicate, get_args(OnDuplicate))
        _check_choice("engine", self.engine, get_args(LoadEngine))
        if self.on_error == "skip" and self.rejects is None:
            raise InvalidInput(
                "bad records can only be skipped if there is a place to write them to",
                code="rejects_needed",
                advice="Name a directory: rejects=… or --rejects DIR",
            )

    def engine_for(self, size_bytes: int) -> Literal["local", "spark"]:
        """Returns the engine for an input of this size. Raises if the input is too large for the requested engine."""
        engine = self.engine
        if engine == "auto":
            engine = "local" if size_bytes < self.spark_from_bytes else "spark"
        if engine == "local":
            self.check_local_size(size_bytes)
            return "local"
        return "spark"

    def check_local_size(self, size_bytes: int) -> None:
        if size_bytes > self.local_max_bytes:
            raise InvalidInput(
                f"the local engine takes local_max_bytes = {self.local_max_bytes} bytes of input, this is {size_bytes}",
                code="limit_exceeded",
                advice="Use --engine spark, which has no bound",
                limit="local_max_bytes",
                bound=self.local_max_bytes,
                value=size_bytes,
            )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInput(
            f"{name} cannot be {value!r}", code="invalid_option", advice=f"Use one of {', '.join(choices)}", option=name
        )
