"""The base class of values that never change: nodes of syntax trees, checked queries, plans, relations and schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import dataclass_transform


@dataclass_transform(frozen_default=True)
class Immutable:
    """Makes every subclass a frozen dataclass: equal by value, hashable, matched by position."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
