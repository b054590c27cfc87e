"""Repeating a write safely: the system table `_ops` holds the receipt of each client key and of each intent.

The row is part of the same commit record as the change, so the receipt exists exactly if the commit does. The row is
also a claim in the footprint: two concurrent writes with one key conflict, and the second finds the receipt of the
first.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from omnigraph.commit.footprint import Footprint, FootprintBuilder, merge_writes
from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction
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
    """Refuse keys that cannot be stored, and ULID keys so old that upkeep may have removed their receipt."""
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
    """The row of a client key. Keys belong to a stream: a branch does not inherit the receipts of its source."""
    return f"{stream}:{client_key}"


def intent_row_id(stream: str, op_id: str) -> str:
    """The row of a bulk operation. The slash keeps it apart from rows of client keys, which have a colon there."""
    return f"{stream}/{op_id}"


def find_intent_outcome(snapshot: Snapshot, op_id: str) -> tuple[str, str] | None:
    """How a bulk operation ended, by one point read: (op id that wrote its row, commit id); None if it has not ended.

    The operation's own op id means that it was published; the op id of an audit, that recovery rolled it back.
    """
    row_id = intent_row_id(snapshot.record.stream, op_id)
    rows = snapshot.view_of(OPS_TYPE.id, OPS_SCHEMA).find([row_id], ["id", "op_id", "seq"]).to_pylist()
    return (rows[0]["op_id"], f"{snapshot.record.stream}.{rows[0]['seq']}") if rows else None


def find_earlier_receipt(snapshot: Snapshot, client_key: str) -> Receipt | None:
    """The receipt of the write that used this client key, by one point read."""
    row_id = ops_row_id(snapshot.record.stream, client_key)
    rows = snapshot.view_of(OPS_TYPE.id, OPS_SCHEMA).find([row_id], ["id", "seq", "result"]).to_pylist()
    return decode_receipt(rows[0]["result"], f"{snapshot.record.stream}.{rows[0]['seq']}") if rows else None


def encode_receipt(plan: PublishPlan) -> str:
    """What `_ops` stores of the receipt of `plan`; the commit id follows from the seq of the row."""
    return json.dumps({"counts": plan.counts, "result": dict(plan.result)}, sort_keys=True)


def decode_receipt(text: str, commit_id: str) -> Receipt:
    """The receipt that `encode_receipt` stored, marked as replayed."""
    fields = json.loads(text)
    return Receipt(commit_id, fields["counts"], fields["result"], replayed=True)


def make_ops_action(plan: PublishPlan, stream: str, seq: int, now: datetime) -> TableAction:
    """The rows of `_ops` that hold the receipt of `plan`, for its client key and its intent, in the record at `seq`."""
    key = plan.options.client_key
    ids = [*([ops_row_id(stream, key)] if key is not None else []), *plan.ops_row_ids]
    row = {"op_id": plan.op_id, "seq": seq, "result": encode_receipt(plan), "created_at": now}
    rows = pa.Table.from_pylist([{"id": row_id, **row} for row_id in ids], OPS_SCHEMA)
    return TableAction(OPS_TYPE.id, OPS_SCHEMA, rows, inserted=len(ids))


def with_key_claim(footprint: Footprint, stream: str, client_key: str) -> Footprint:
    return with_claim(footprint, ops_row_id(stream, client_key))


def with_intent_claim(plan: PublishPlan, op_id: str) -> PublishPlan:
    """The plan with a claim on the row of its bulk operation: of all plans with this claim, one can land on a stream.

    A plan that changes no row of a user's table leaves no row in `_ops` either: otherwise every optimize would make
    work for the next. Such a plan only reads the row, so that it cannot land after recovery rolled it back. It cannot
    land twice, because its pins have moved by then.
    """
    row_id = intent_row_id(plan.base.stream, op_id)
    if row_id in plan.ops_row_ids:
        return plan
    if plan.kind in NON_LOGICAL:
        claims = with_claim(Footprint(), row_id).reads
        return replace(plan, footprint=replace(plan.footprint, reads={**plan.footprint.reads, **claims}))
    return replace(plan, footprint=with_claim(plan.footprint, row_id), ops_row_ids=(*plan.ops_row_ids, row_id))


def with_claim(footprint: Footprint, row_id: str) -> Footprint:
    """The footprint with a claim on this row of `_ops`: the plan writes the row, and conflicts with any other write."""
    claims = FootprintBuilder()
    claims.read_write(OPS_TYPE.id, "row", row_id)
    built = claims.build()
    return replace(
        footprint,
        reads={**footprint.reads, **_join_reads(footprint, built)},
        writes=merge_writes([footprint.writes, built.writes]),
    )


def _join_reads(footprint: Footprint, added_footprint: Footprint) -> dict[str, frozenset[int]]:
    """The added reads, united with those that the footprint has in the same scopes: a plan may have several claims."""
    return {scope: keys | footprint.reads.get(scope, frozenset()) for scope, keys in added_footprint.reads.items()}


def _ulid_time(key: str) -> datetime | None:
    """When a ULID was minted; None for keys that are not ULIDs."""
    text = key.upper()
    if len(text) != 26 or not set(text) <= set(_ULID):
        return None
    millis = 0
    for char in text[:10]:
        millis = millis * 32 + _ULID.index(char)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis) if millis <= _LAST_ULID_MILLIS else None
