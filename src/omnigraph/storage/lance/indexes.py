"""Indexes as segments: which to build, over which fragments, and which segments have become useless."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from omnigraph.storage.lance.errors import lance_call
from omnigraph.storage.lance.pinned_table import PinnedTable, Segment, plain_kind

if TYPE_CHECKING:
    from lance.dataset import Index

#: An index with this many segments is built anew as one: every lookup asks each segment.
MAX_SEGMENTS = 8
#: A vector index over fewer rows is worth nothing, and some kinds cannot be trained on them.
MIN_VECTOR_ROWS = 256
#: Lance's error if all vectors are missing, or with the cosine metric all are zero.
_UNTRAINABLE = "KMeans cannot train"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index that should exist. `kind` is Lance's word: BTREE, BITMAP, LABEL_LIST, INVERTED, NGRAM, IVF_FLAT…"""

    name: str
    column: str
    kind: str
    params: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def is_vector(self) -> bool:
        return self.kind.startswith("IVF")


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Build `spec` over `fragments`, and remove the `dead` segments."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    dead: tuple[Segment, ...]


def plan_index(spec: IndexSpec, segments: Collection[Segment], rows: dict[int, int]) -> IndexPlan | None:
    """What to build and remove for `spec`, given the rows of each fragment; None if the index is complete."""
    named_segments = [segment for segment in segments if segment.name == spec.name]
    alive = [
        segment
        for segment in named_segments
        if segment.fragments & rows.keys() and segment.kind == plain_kind(spec.kind)
    ]
    covered = {fragment for segment in alive for fragment in segment.fragments}
    missing = [fragment for fragment in rows if fragment not in covered]
    if spec.is_vector and sum(rows[fragment] for fragment in missing) < MIN_VECTOR_ROWS:
        missing = []
    dead = [segment for segment in named_segments if segment not in alive]
    if missing and len(alive) >= MAX_SEGMENTS:
        missing, dead = list(rows), named_segments
    return IndexPlan(spec, tuple(missing), tuple(dead)) if missing or dead else None


def split_index_plan(plan: IndexPlan, rows: Mapping[int, int], *, most_rows: int, most_parts: int) -> list[IndexPlan]:
    """Split a plan into several that can be built in parallel, each over its own fragments.

    Only a sorted index is split: it finds the same rows however it is divided, at the price of one lookup per part. A
    full-text index ranks by the statistics of its segment, and a vector index learns its partitions from all rows.
    """
    part_count = min(
        most_parts, -(-sum(rows[fragment] for fragment in plan.fragments) // most_rows), len(plan.fragments)
    )
    if plan.spec.kind != "BTREE" or part_count < 2:
        return [plan]
    shares: list[list[int]] = [[] for _ in range(part_count)]
    filled = [0] * part_count
    for fragment in sorted(plan.fragments, key=lambda fragment: (-rows[fragment], fragment)):
        least = filled.index(min(filled))
        shares[least].append(fragment)
        filled[least] += rows[fragment]
    return [IndexPlan(plan.spec, tuple(sorted(share)), ()) for share in shares]


def build_index(base: PinnedTable, spec: IndexSpec, fragments: Sequence[int]) -> Index | None:
    """Write one segment, which no version names yet; None if a vector index could learn nothing from these rows."""
    with lance_call(f"index {spec.column} of table {base.table}"):
        try:
            # `replace` only silences the check that the name is new; it removes nothing.
            index = base.lance().create_index_uncommitted(
                spec.column, spec.kind, name=spec.name, replace=True, fragment_ids=list(fragments), **dict(spec.params)
            )
        except (RuntimeError, OSError, ValueError) as error:
            if spec.is_vector and _UNTRAINABLE in str(error):
                return None
            raise
        if spec.kind == "INVERTED":
            # Lance would accept the segment without this step, and then every search would fail.
            index = base.lance().merge_existing_index_segments([index])
    return index


def index_to_json(index: Index) -> dict[str, Any]:
    """A built segment as plain values, so that another process can commit it."""
    return {
        "uuid": str(index.uuid),
        "name": index.name,
        "fields": list(index.fields),
        "dataset_version": index.dataset_version,
        "fragment_ids": sorted(index.fragment_ids),
        "index_version": index.index_version,
        "created_at": index.created_at.isoformat() if index.created_at is not None else None,
        "base_id": index.base_id,
        "files": [[file.path, file.size_bytes] for file in index.files] if index.files is not None else None,
        "details": [index.index_details[0], index.index_details[1].hex()] if index.index_details is not None else None,
        "covering_fields": list(index.covering_fields),
    }


def index_from_json(raw: Mapping[str, Any]) -> Index:
    from lance.dataset import Index, IndexFile

    files, details, created_at = raw["files"], raw["details"], raw["created_at"]
    return Index(
        uuid=raw["uuid"],
        name=raw["name"],
        fields=raw["fields"],
        dataset_version=raw["dataset_version"],
        fragment_ids=set(raw["fragment_ids"]),
        index_version=raw["index_version"],
        created_at=datetime.fromisoformat(created_at) if created_at is not None else None,
        base_id=raw["base_id"],
        files=[IndexFile(path, size_bytes) for path, size_bytes in files] if files is not None else None,
        index_details=(details[0], bytes.fromhex(details[1])) if details is not None else None,
        covering_fields=raw["covering_fields"],
    )


def index_to_remove(segment: Segment) -> Index:
    """The value by which a commit names a segment to remove; Lance looks at the uuid only."""
    from lance.dataset import Index

    return Index(
        uuid=segment.uuid,
        name=segment.name,
        fields=list(segment.field_ids),
        dataset_version=1,
        fragment_ids=set(segment.fragments),
        index_version=0,
    )
