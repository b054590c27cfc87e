"""Runs a large change of this process under an intent, so that another process can finish what this one staged."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.commit.publish_plan import PublishPlan, Receipt, TableAction, WriteOptions, WriteTxn
from omnigraph.commit.staging import rides_inline
from omnigraph.commit.writer import Operation, Writer
from omnigraph.intents.scope import IntentScope
from omnigraph.log.commit_record import CommitRecord
from omnigraph.storage.backend import Backend

BULK_BYTES = 1 << 20
"""Changes above this many bytes of rows are worth an intent; a smaller one is repeated sooner than recovered."""
REWRITE_BYTES = 64 << 20
"""The same bound for whole tables that are rewritten or indexed, which takes less time per byte than making rows."""


def run_bulk(
    backend: Backend,
    writer: Writer,
    operation: Operation,
    options: WriteOptions,
    holder: str | None = None,
    *,
    above_bytes: int = BULK_BYTES,
    stages_in_prepare: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Receipt:
    """`writer.run`, under an intent if the prepared change is large and does not ride inline.

    An operation that stages files while it prepares (`stages_in_prepare`) gets its intent before that, whatever its
    size. The operation's own `confirm`, if it has one, is not called.
    """
    with IntentScope(backend, operation.kind, options, warn=warn) as intent:
        bulk = _BulkOperation(backend, operation, intent, above_bytes, stages_in_prepare)
        receipt = writer.run(bulk, options, holder)
        intent.end(receipt.commit_id)
        return receipt


class _BulkOperation:
    """An operation whose intent is opened once its change is seen to be large, before anything is staged."""

    def __init__(
        self, backend: Backend, inner: Operation, intent: IntentScope, above_bytes: int, stages_in_prepare: bool
    ) -> None:
        self.kind = inner.kind
        self.op_id = inner.op_id
        self._backend = backend
        self._inner = inner
        self._intent = intent
        self._above_bytes = above_bytes
        self._stages_in_prepare = stages_in_prepare

    def prepare(self, txn: WriteTxn) -> PublishPlan | Receipt:
        if self._stages_in_prepare:
            self._intent.open(self.op_id, txn.record)
        plan = self._inner.prepare(txn)
        if isinstance(plan, PublishPlan) and not self._intent.is_open and self._is_large(plan):
            self._intent.open(self.op_id, txn.record)
        return plan

    def confirm(self, plan: PublishPlan) -> PublishPlan:
        return self._intent.confirm(plan)

    def _is_large(self, plan: PublishPlan) -> bool:
        size_bytes = sum(_size_bytes(action, plan.base) for action in plan.actions)
        return size_bytes > self._above_bytes and not rides_inline(plan.actions, self._backend.config)


def _size_bytes(action: TableAction, base: CommitRecord) -> int:
    """How much is going to be written: the rows of the change, or the whole table if its columns are rewritten."""
    if action.rewrites_columns:
        return base.pins[action.table].size_bytes if action.table in base.pins else 0
    return action.rows.nbytes if action.rows is not None else 0
