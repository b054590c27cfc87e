"""`omnigraph mutate`: insert, update and delete, in one commit."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.inputs import (
    STDIN,
    ExpressionOption,
    FileOption,
    NameOption,
    ParamOption,
    ParamsOption,
    read_batch,
    read_params,
    read_source,
)
from omnigraph.cli.options import (
    ActorOption,
    Address,
    ClientKeyOption,
    GraphOption,
    IfCommitOption,
    JsonOption,
    MessageOption,
    StorageOptions,
    TargetBranchOption,
    address_of,
    open_graph,
)
from omnigraph.cli.output import emit_document, emit_facts, note

if TYPE_CHECKING:
    from omnigraph.commit.publish_plan import Receipt


class OnConflict(StrEnum):
    """What to do when another commit changed what the mutation read."""

    RETRY = "retry"
    FAIL = "fail"


BatchOption = Annotated[
    str | None,
    typer.Option("--batch", metavar="FILE", help="Run it once per line of parameters (JSON objects); - for stdin."),
]

OnConflictOption = Annotated[
    OnConflict,
    typer.Option(
        "--on-conflict",
        metavar="WHAT",
        help="retry (default) on the newer state, or fail.",
        show_default=False,
    ),
]


def mutate(
    address: Address = None,
    graph: GraphOption = None,
    expression: ExpressionOption = None,
    file: FileOption = None,
    name: NameOption = None,
    params: ParamsOption = None,
    param: ParamOption = None,
    batch: BatchOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="An insert of an id that exists is a conflict.")] = False,
    branch: TargetBranchOption = None,
    if_commit: IfCommitOption = None,
    on_conflict: OnConflictOption = OnConflict.RETRY,
    client_key: ClientKeyOption = None,
    actor: ActorOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
    storage_option: StorageOptions = None,
) -> None:
    """Insert, update and delete, in one commit or not at all.

    The query comes from -e, from --file, or from stdin. Without a match
    nothing is committed, which is no error.
    """
    from omnigraph.query.language.script import pick_query

    place = address_of(address, graph)
    if batch == STDIN and expression is None and file in (None, STDIN):
        raise typer.BadParameter("the query and the batch cannot both come from stdin")
    source, origin = read_source(expression, file)
    query = pick_query(source, name, origin)  # text that is wrong costs no request
    values = read_params(query, params, param)
    many = [values] if batch is None else read_batch(batch, values)
    opened = open_graph(place, storage_option, branch, read_only=False)
    receipt = opened.mutate_many(
        source,
        many,
        name=name,
        strict=strict,
        actor=actor,
        message=message,
        client_key=client_key,
        if_commit=if_commit,
        on_conflict="fail" if on_conflict is OnConflict.FAIL else "retry",
    )
    _emit(receipt, opened.branch_name, as_json)
    needy = opened.needs_upkeep()
    if needy and not as_json:
        note(f"{', '.join(needy)}: many small fragments; `omnigraph optimize` makes reads cheaper again.")


def _emit(receipt: Receipt, branch: str, as_json: bool) -> None:
    if as_json:
        emit_document(
            {
                "branch": branch,
                "commit_id": receipt.commit_id,
                "counts": dict(receipt.counts),
                "replayed": receipt.replayed,
                "attempts": receipt.attempts,
                "waited_s": receipt.waited_s,
            }
        )
        return
    if receipt.waited_s:
        note(f"The write waited {receipt.waited_s:.1f} s: there are many small fragments. Run `omnigraph optimize`.")
    place = receipt.commit_id or "none, nothing matched"
    emit_facts({"commit_id": f"{place} (done before)" if receipt.replayed else place, **receipt.counts})
