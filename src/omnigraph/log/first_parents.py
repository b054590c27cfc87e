"""Walking commits backwards: first parents of a commit, across the streams it came through."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.log.commit_record import CommitRecord, Header
from omnigraph.log.stream import Entry, RecordStream


def first_parents(records_of: Callable[[str], RecordStream], head: CommitRecord) -> Iterator[Header]:
    """Headers from `head` to the birth of the graph. A branch continues in the stream it was forked from."""
    record: Entry | None = head
    while record is not None:
        header = record.header
        for header in records_of(record.stream).headers(record):
            yield header
        if not header.parents or header.seq != 0:
            return
        parent = header.parents[0]
        # What was collected still has its header.
        record = records_of(parent.stream).get(parent.seq)
