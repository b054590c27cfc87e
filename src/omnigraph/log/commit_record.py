"""The commit record: one immutable object that names everything a commit makes visible.

Records are values. Only `omnigraph.commit.next_record` builds them, and only `omnigraph.commit.publisher` and the birth
of a stream store them. Every record is complete: no other object is needed to know the state that it describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from omnigraph.errors import Corruption, InvalidInput, NotFound, SnapshotExpired, Unsupported
from omnigraph.log.frame import decode_frame, encode_frame
from omnigraph.log.overlay import Overlay, OverlayTable

RECORD_VERSION = 1
TRAIL_LENGTH = 32
_SEQ_DIGITS = 16
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)

CommitKind = Literal[
    "init", "fork", "load", "mutate", "merge", "schema", "fold", "physical", "gc", "recovery", "epoch", "close"
]

#: Kinds of commits that are not logical: readers see the same rows and the same schema before and after.
NON_LOGICAL: frozenset[str] = frozenset({"fold", "physical", "gc", "epoch"})


@dataclass(frozen=True, slots=True)
class CommitRef:
    """A reference to a parent commit: `rid` proves that it is the record that was read."""

    stream: str
    seq: int
    rid: str

    @property
    def commit_id(self) -> str:
        return f"{self.stream}.{self.seq}"


@dataclass(frozen=True, slots=True)
class Pin:
    """One immutable version of one table, and what the record says about the table.

    `version` is opaque (order comes from the records alone) and a string, since Lance ids use bit 63; None while
    all rows are in the overlay. `rows` counts what a reader sees; `changed_seq` is the last logical change.
    """

    version: str | None
    rows: int
    size_bytes: int
    fragments: int
    changed_seq: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """Who may write to the stream: while `holder` is set, only that writer. `n` counts every change of `holder`."""

    n: int = 0
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One operation inside a record; several when a group was committed together."""

    op_id: str
    actor: str | None
    client_key: str | None
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """What a record did to one table. `staged`: it moved the pin, from `old_version` to `new_version`."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    staged: bool = False
    old_version: str | None = None
    new_version: str | None = None


@dataclass(frozen=True, slots=True)
class WriteSet:
    """What a record wrote, so that a later plan can decide whether it depends on it.

    `exact` holds sorted 64-bit hashes; `wild` holds `table|*` or `table|class|*` where keys were too many to name;
    `scopes` holds `table|class` of everything written, so that a reader of a whole table need not know the keys.
    """

    exact: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    wild: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Header:
    """The part of a commit record that `commit list`, merge bases and audits need."""

    stream: str
    seq: int
    rid: str  # unique to this record: tells which of several records that were sent under one seq has landed
    kind: CommitKind
    parents: tuple[CommitRef, ...]
    gen: int  # generation: one more than the highest among the parents
    schema: str  # hash of the catalog
    created_at: datetime
    actor: str | None
    message: str | None
    members: tuple[Member, ...]
    branch: str  # the name of the branch when the stream was created

    @property
    def commit_id(self) -> str:
        return f"{self.stream}.{self.seq}"

    @property
    def ref(self) -> CommitRef:
        return CommitRef(self.stream, self.seq, self.rid)


class _WithHeader:
    """Shortcuts to the header, for commit records and stubs alike."""

    __slots__ = ()
    header: Header

    @property
    def stream(self) -> str:
        return self.header.stream

    @property
    def seq(self) -> int:
        return self.header.seq

    @property
    def rid(self) -> str:
        return self.header.rid

    @property
    def commit_id(self) -> str:
        return self.header.commit_id


@dataclass(frozen=True)
class CommitRecord(_WithHeader):
    """A whole commit.

    `trail` repeats the headers of earlier records, back to the last seq that is divisible by 32 (at such a seq, of all
    32 records before it). So the history of a stream can be listed with one GET per 32 commits.
    """

    header: Header
    epoch: Epoch
    content_seq: int  # seq of the newest logical commit up to here
    pins: Mapping[str, Pin]
    touched: Mapping[str, TouchedTable]
    writes: WriteSet
    overlay: Overlay
    trail: tuple[Header, ...] = ()
    gc: Mapping[str, Any] | None = None  # by cleanup: its id, and the bulk operations whose staged files it spares
    extra: Mapping[str, Any] | None = None  # facts that belong to one kind only, such as a recovery's audit
    crossing_seq: int = (
        0  # seq of the newest record up to here with a parent in another stream; 0 is the birth of the stream
    )

    @property
    def kind(self) -> CommitKind:
        return self.header.kind

    @property
    def schema(self) -> str:
        return self.header.schema

    @property
    def ref(self) -> CommitRef:
        return self.header.ref

    @property
    def members(self) -> tuple[Member, ...]:
        return self.header.members

    @property
    def is_logical(self) -> bool:
        return self.kind not in NON_LOGICAL

    def own_entries(self, table: str) -> OverlayTable | None:
        """The entries that this record itself placed in the overlay of `table`; None if the table has no overlay."""
        entries = self.overlay.get(table)
        return entries.own(self.rid) if entries else None

    @cached_property
    def as_bytes(self) -> bytes:
        sections = [(table, entries.as_bytes) for table, entries in sorted(self.overlay.items())]
        directory = [["overlay", table, len(data)] for table, data in sections]
        directory.append(["W", "", self.writes.exact.nbytes])
        head: dict[str, Any] = {
            "v": RECORD_VERSION,
            **_header_json(self.header),
            "epoch": [self.epoch.n, self.epoch.holder],
            "content_seq": self.content_seq,
            "crossing_seq": self.crossing_seq,
            "pins": {
                table: [pin.version, pin.rows, pin.size_bytes, pin.fragments, pin.changed_seq]
                for table, pin in self.pins.items()
            },
            "touched": {table: _to_touched_json(touched) for table, touched in self.touched.items()},
            "W": {"wild": sorted(self.writes.wild), "scopes": sorted(self.writes.scopes)},
            "trail": [_header_json(header) for header in self.trail],
            "sections": directory,
        }
        if self.gc is not None:
            head["gc"] = dict(self.gc)
        if self.extra is not None:
            head["extra"] = dict(self.extra)
        return encode_frame(head, [data for _, data in sections] + [self.writes.exact.astype("<u8").tobytes()])


@dataclass(frozen=True, slots=True)
class Stub(_WithHeader):
    """What cleanup leaves under the name of a collected commit, so that the name is never free again.

    A stub still names its parents, so merge bases are found across collected commits.
    """

    header: Header
    crossing_seq: int = 0

    def encode(self) -> bytes:
        head = {"v": RECORD_VERSION, "stub": True, **_header_json(self.header), "crossing_seq": self.crossing_seq}
        return encode_frame({**head, "sections": []}, [])

    def make_expired_error(self) -> SnapshotExpired:
        return SnapshotExpired(
            f"commit {self.header.commit_id} has been collected",
            advice="Name a newer commit; tags and branches protect what must stay",
            commit_id=self.header.commit_id,
        )


def decode_record(data: bytes, where: str) -> CommitRecord | Stub:
    """The commit record or stub in `data`; errors name it by `where`."""
    head, body = decode_frame(data, where)
    if head.get("v") != RECORD_VERSION:
        raise Unsupported(f"{where} has record version {head.get('v')}", advice="Upgrade omnigraph", key=where)
    try:
        header = _header_of(head)
        return Stub(header, head["crossing_seq"]) if head.get("stub") else _record_of(header, head, body)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise Corruption(f"{where} cannot be read: {error}", advice="Run `omnigraph verify`", key=where) from error


def parse_commit_id(text: str) -> tuple[str, int]:
    """(stream, seq) of `<stream>.<seq>`."""
    stream, dot, seq = text.partition(".")
    if not (dot and text.isascii() and stream.isalnum() and seq.isdecimal() and len(seq) <= _SEQ_DIGITS):
        raise InvalidInput(
            f"{text!r} is not a commit id", advice="A commit id looks like <stream>.<seq>; see `commit list`"
        )
    return stream, int(seq)


def no_such_commit(commit_id: str) -> NotFound:
    return NotFound(f"there is no commit {commit_id}", advice="See `omnigraph commit list`", commit_id=commit_id)


def _header_json(header: Header) -> dict[str, Any]:
    return {
        "stream": header.stream,
        "seq": header.seq,
        "rid": header.rid,
        "kind": header.kind,
        "parents": [[ref.stream, ref.seq, ref.rid] for ref in header.parents],
        "gen": header.gen,
        "schema": header.schema,
        "created_at": (header.created_at - _ORIGIN) // timedelta(milliseconds=1),
        "actor": header.actor,
        "message": header.message,
        "members": [[member.op_id, member.actor, member.client_key, dict(member.counts)] for member in header.members],
        "branch": header.branch,
    }


def _header_of(raw: Mapping[str, Any]) -> Header:
    return Header(
        raw["stream"],
        raw["seq"],
        raw["rid"],
        raw["kind"],
        tuple(CommitRef(*parent) for parent in raw["parents"]),
        raw["gen"],
        raw["schema"],
        _ORIGIN + timedelta(milliseconds=raw["created_at"]),
        raw["actor"],
        raw["message"],
        tuple(Member(*member) for member in raw["members"]),
        raw["branch"],
    )


def _to_touched_json(touched: TouchedTable) -> list[Any]:
    return [
        touched.inserted,
        touched.updated,
        touched.deleted,
        touched.staged,
        touched.old_version,
        touched.new_version,
    ]


def _record_of(header: Header, head: Mapping[str, Any], body: memoryview) -> CommitRecord:
    overlay: dict[str, OverlayTable] = {}
    exact = np.empty(0, np.uint64)
    start = 0
    for kind, table, size in head["sections"]:
        section = body[start : start + size]
        if len(section) != size:
            raise ValueError("a section is cut short")
        start += size
        if kind == "overlay":
            overlay[table] = OverlayTable.decode(section)
        elif kind == "W":
            exact = np.frombuffer(section, "<u8").astype(np.uint64)
    return CommitRecord(
        header=header,
        epoch=Epoch(*head["epoch"]),
        content_seq=head["content_seq"],
        pins={table: Pin(*values) for table, values in head["pins"].items()},
        touched={table: TouchedTable(*values) for table, values in head["touched"].items()},
        writes=WriteSet(exact, frozenset(head["W"]["wild"]), frozenset(head["W"]["scopes"])),
        overlay=overlay,
        trail=tuple(_header_of(header_json) for header_json in head["trail"]),
        gc=head.get("gc"),
        extra=head.get("extra"),
        crossing_seq=head["crossing_seq"],
    )
