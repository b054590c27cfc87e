"""A large change made in this process: staged like any other, under an intent, so that the work outlives its driver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteOptions, WriteTxn
from omnigraph.commit.staging import rides_inline
from omnigraph.commit.writer import Operation, Writer
from omnigraph.intents.plan_codec import can_be_kept
from omnigraph.intents.scope import Intent, Intents
from omnigraph.log.commit_record import CommitRecord
from omnigraph.storage.backend import Backend

BULK_BYTES = 1 << 20
"""Changes above this many bytes of rows are worth an intent; smaller ones are repeated sooner than recovered."""
REWRITE_BYTES = 64 << 20
"""The same for whole tables that are rewritten or indexed, which goes faster than making rows."""


def run_bulk(
    backend: Backend,
    writer: Writer,
    operation: Operation,
    options: WriteOptions,
    holder: str | None = None,
    *,
    above_bytes: int = BULK_BYTES,
    warn: Callable[[str], None] | None = None,
) -> Receipt:
    """`writer.run`, under an intent if the change turns out to be large. None is opened for a change that rides inline.

    Overwrites and others that decide for themselves stay so: `options` are those of the operation. A plan that no
    other process could carry out is not left behind; its intent keeps cleanup away from what it stages.
    """
    with ExitStack() as stack:
        bulk = _Bulk(backend, operation, options, stack, above_bytes, warn)
        receipt = writer.run(bulk, options, holder)
        if bulk.intent is not None:
            bulk.intent.done(receipt.commit_id)
        return receipt


class _Bulk:
    """An operation that opens an intent once it is seen to be large, before anything is staged."""

    def __init__(
        self,
        backend: Backend,
        inner: Operation,
        options: WriteOptions,
        stack: ExitStack,
        above_bytes: int,
        warn: Callable[[str], None] | None,
    ) -> None:
        self.kind = inner.kind
        self.op_id = inner.op_id
        self.intent: Intent | None = None
        self._backend = backend
        self._inner = inner
        self._options = options
        self._stack = stack
        self._above_bytes = above_bytes
        self._intents = Intents(backend, warn=warn)

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        plan = self._inner.prepare(txn)
        if isinstance(plan, PublishPlan) and self.intent is None and self._is_large(plan):
            opened = self._intents.open(self.kind, self.op_id, txn.record, self._options)
            self.intent = self._stack.enter_context(opened)
        return plan

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        if self.intent is None:
            return plan
        return self.intent.confirm(plan) if can_be_kept(plan) else self.intent.claim(plan)

    def _is_large(self, plan: PublishPlan) -> bool:
        size_bytes = sum(_size_bytes(one, plan.base) for one in plan.actions)
        return size_bytes > self._above_bytes and not rides_inline(plan.actions, self._backend.config)


def _size_bytes(action: TableAction, base: CommitRecord) -> int:
    """What is going to be written: the rows of the change, or the whole table if its columns are."""
    if action.rewrites_columns:
        return base.pins[action.table].size_bytes if action.table in base.pins else 0
    return action.rows.nbytes if action.rows is not None else 0
