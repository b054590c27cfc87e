"""Repeating a write safely: `_ops`, a table like any other, remembers what a client key led to.

The row rides in the very record it speaks of, so the answer is there exactly if the commit is. The key is also a
claim in the footprint: two concurrent uses of one key meet, and the second finds the first one's answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder, merge_writes
from omnigraph.commit.publish_plan import PublishPlan, TableAction
from omnigraph.errors import InvalidInput
from omnigraph.log.commit_record import NON_LOGICAL
from omnigraph.log.snapshot import Snapshot
from omnigraph.schema.arrow import arrow_schema
from omnigraph.schema.catalog import Property, PropType, Scalar, TypeDef

_TEXT = PropType(Scalar.STRING)

OPS_TYPE = TypeDef(
    id="_ops",
    kind="node",
    name="_ops",
    properties=(
        Property("op_id", "op_id", _TEXT),
        Property("seq", "seq", PropType(Scalar.I64)),
        Property("result", "result", _TEXT),
        Property("created_at", "created_at", PropType(Scalar.DATETIME)),
    ),
)
OPS_SCHEMA = arrow_schema(OPS_TYPE)
_MAX_KEY = 255
_ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LAST_ULID_MILLIS = 253_402_300_799_000  # the end of the year 9999, where datetime ends


def check_client_key(key: str, now: datetime, keep_days: int) -> None:
    """Refuse keys that cannot be kept, and ULID keys so old that their answer may have been forgotten."""
    if not key or len(key) > _MAX_KEY or not key.isprintable():
        raise InvalidInput(
            f"{key!r} cannot be a client key", code="bad_client_key", advice=f"Use 1 to {_MAX_KEY} printable characters"
        )
    minted = _ulid_time(key)
    if minted is not None and now - minted > timedelta(days=keep_days):
        raise InvalidInput(
            f"client key {key} is older than the {keep_days} days for which answers are kept",
            code="idempotency_window_passed",
            advice="Read the graph to learn whether the write landed, then use a new key",
            client_key=key,
        )


def ops_row_id(stream: str, client_key: str) -> str:
    """Keys belong to a stream: a branch does not inherit the answers of its source."""
    return f"{stream}:{client_key}"


def intent_row_id(stream: str, op_id: str) -> str:
    """Where `_ops` tells what became of a bulk operation. No client key leads here: those follow a colon."""
    return f"{stream}/{op_id}"


def intent_answer(snapshot: Snapshot, op_id: str) -> tuple[str, str] | None:
    """What the log says of a bulk operation, by one point read: (op id that wrote it, commit id).

    The operation's own id means that it was published; that of an audit, that it was rolled back.
    """
    row_id = intent_row_id(snapshot.record.stream, op_id)
    found = snapshot.view_of(OPS_TYPE.id, OPS_SCHEMA).find([row_id], ["id", "op_id", "seq"]).to_pylist()
    return (found[0]["op_id"], f"{snapshot.record.stream}.{found[0]['seq']}") if found else None


def earlier_answer(snapshot: Snapshot, client_key: str) -> Mapping[str, Any] | None:
    """What this key led to, by one point read: `{commit_id, counts, result}`."""
    row_id = ops_row_id(snapshot.record.stream, client_key)
    found = snapshot.view_of(OPS_TYPE.id, OPS_SCHEMA).find([row_id], ["id", "seq", "result"]).to_pylist()
    if not found:
        return None
    answer = json.loads(found[0]["result"])
    return {"commit_id": f"{snapshot.record.stream}.{found[0]['seq']}", **answer}


def ops_entry(plan: PublishPlan, stream: str, seq: int, now: datetime) -> TableAction:
    """The rows that make `plan` answerable, by its client key and its intent, as part of the record at `seq`."""
    key = plan.options.client_key
    ids = [*([ops_row_id(stream, key)] if key is not None else []), *plan.answers]
    answer = json.dumps({"counts": plan.counts, "result": dict(plan.result)}, sort_keys=True)
    row = {"op_id": plan.op_id, "seq": seq, "result": answer, "created_at": now}
    rows = pa.Table.from_pylist([{"id": one, **row} for one in ids], OPS_SCHEMA)
    return TableAction(OPS_TYPE.id, OPS_SCHEMA, rows, inserted=len(ids))


def with_key_claim(footprint: Footprint, stream: str, client_key: str) -> Footprint:
    return with_claim(footprint, ops_row_id(stream, client_key))


def with_intent_claim(plan: PublishPlan, op_id: str) -> PublishPlan:
    """The plan, speaking for a bulk operation: of all plans that do, on this stream, one record is made.

    A plan that changes no answer leaves no row either, else every optimize would make work for the next. It only
    reads the row, so that it never follows its own roll-back; twice it cannot land, its pins have moved then.
    """
    row_id = intent_row_id(plan.base.stream, op_id)
    if row_id in plan.answers:
        return plan
    if plan.kind in NON_LOGICAL:
        claims = with_claim(Footprint(), row_id).reads
        return replace(plan, footprint=replace(plan.footprint, reads={**plan.footprint.reads, **claims}))
    return replace(plan, footprint=with_claim(plan.footprint, row_id), answers=(*plan.answers, row_id))


def with_claim(footprint: Footprint, row_id: str) -> Footprint:
    """The footprint of a plan that writes this row of `_ops`, and only if nobody else has."""
    claims = FootprintBuilder()
    claims.read_write(OPS_TYPE.id, "row", row_id)
    built = claims.build()
    return replace(
        footprint,
        reads={**footprint.reads, **_joined(footprint, built)},
        writes=merge_writes([footprint.writes, built.writes]),
    )


def _joined(one: Footprint, other: Footprint) -> dict[str, frozenset[int]]:
    """Reads of the scopes of `other`, by either: a plan may hold several claims on `_ops`."""
    return {scope: keys | one.reads.get(scope, frozenset()) for scope, keys in other.reads.items()}


def _ulid_time(key: str) -> datetime | None:
    """When a ULID was minted; None for keys that are not ULIDs."""
    text = key.upper()
    if len(text) != 26 or not set(text) <= set(_ULID):
        return None
    millis = 0
    for one in text[:10]:
        millis = millis * 32 + _ULID.index(one)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis) if millis <= _LAST_ULID_MILLIS else None
