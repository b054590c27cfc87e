"""Counting what Lance asks of the store; it does its own I/O, past the object-store seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class IoStats:
    """Requests and bytes of Lance since the store was opened; listing and HEAD count as reads."""

    read_iops: int
    write_iops: int
    read_bytes: int
    write_bytes: int

    @classmethod
    def of(cls, seen: Any) -> IoStats:
        return cls(seen.read_iops, seen.write_iops, seen.read_bytes, seen.written_bytes)

    def __add__(self, other: IoStats) -> IoStats:
        return IoStats(
            self.read_iops + other.read_iops,
            self.write_iops + other.write_iops,
            self.read_bytes + other.read_bytes,
            self.write_bytes + other.write_bytes,
        )

    def __sub__(self, other: IoStats) -> IoStats:
        return IoStats(
            self.read_iops - other.read_iops,
            self.write_iops - other.write_iops,
            self.read_bytes - other.read_bytes,
            self.write_bytes - other.write_bytes,
        )
