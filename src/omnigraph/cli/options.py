"""Options that many verbs share, and how they name a graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.output import RowFormat

if TYPE_CHECKING:
    from omnigraph.api import Graph
    from omnigraph.api.view import GraphView

GRAPH_VARIABLE = "OMNIGRAPH_GRAPH"
ACTOR_VARIABLE = "OMNIGRAPH_ACTOR"

Address = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPH",
        help=f"Address of the graph: a directory, s3://…, gs://… or az://…. Or --graph, or ${GRAPH_VARIABLE}.",
        show_default=False,
    ),
]
GraphOption = Annotated[
    str | None, typer.Option("--graph", metavar="GRAPH", help="The graph's address, instead of the argument.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="K=V", help="Setting of the object store; may be repeated."),
]
BranchOption = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Branch to read. Default: main.")]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="COMMIT", help="Read this commit, of any branch, not the newest one.")
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        metavar="NAME",
        envvar=ACTOR_VARIABLE,
        show_envvar=False,
        help=f"Who to record as the author. Or ${ACTOR_VARIABLE}.",
    ),
]
MessageOption = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="Why, for the history.")]
IfCommitOption = Annotated[
    str | None, typer.Option("--if-commit", metavar="COMMIT", help="Only if this is still the newest commit.")
]
ClientKeyOption = Annotated[
    str | None, typer.Option("--client-key", metavar="KEY", help="Makes it safe to repeat: a key is used once.")
]
TargetBranchOption = Annotated[
    str | None, typer.Option("--branch", metavar="NAME", help="Branch to write to. Default: main.")
]


class Engine(StrEnum):
    """What runs a bulk operation: this process, Spark, or whichever fits its size."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    Engine, typer.Option("--engine", metavar="ENGINE", help="auto (default), local or spark.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document; errors too, on stderr.")]
FormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", metavar="FORMAT", help="table (default), json, jsonl, csv or kv.", show_default=False),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Spark master. Default: this machine; or $SPARK_REMOTE.")
]
SparkConfOption = Annotated[
    list[str] | None, typer.Option("--spark-conf", metavar="K=V", help="Setting of Spark; may be repeated.")
]
ConfirmOption = Annotated[bool, typer.Option("--confirm", help="Do it. Without this only a preview is shown.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Needed as well when the graph is not on this machine.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def takes_options_of(source: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the `**options` of a command by the keyword parameters of `source`, so that they are written once.

    typer builds a command from its signature. It does not evaluate the annotations of a signature that was set, so
    they are evaluated here.
    """
    source_parameters = inspect.signature(source, eval_str=True).parameters.values()
    options = [parameter for parameter in source_parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]

    def add_options(command: Any) -> Any:
        signature = inspect.signature(command, eval_str=True)
        arguments = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        command.__signature__ = signature.replace(parameters=[*arguments, *options])
        return command

    return add_options


def use_spark(master: str | None, spark_conf: Sequence[str] | None) -> None:
    """Settings for the Spark session that this command may start."""
    conf = pairs_of(spark_conf, "--spark-conf")
    if master is None and not conf:
        return
    from omnigraph.spark.session import use_settings
    from omnigraph.spark.settings import SparkSettings

    use_settings(SparkSettings.from_environment(master=master, conf=conf))


def address_of(address: str | None, graph: str | None) -> str:
    """The one graph that argument, option and environment name. The command line wins over the environment."""
    if address is not None and graph is not None and address != graph:
        raise typer.BadParameter(f"two graphs are named: {address!r} and --graph {graph!r}")
    graph_address = address or graph or os.environ.get(GRAPH_VARIABLE)
    if not graph_address:
        raise typer.BadParameter(
            f"no graph is named: give its address, or --graph, or set {GRAPH_VARIABLE}, or name one in a profile"
        )
    return graph_address


def pairs_of(words: Sequence[str] | None, option: str, allowed_names: Sequence[str] = ()) -> dict[str, str]:
    """`name=value` options as a mapping; `allowed_names` bounds the names if it is not empty."""
    pairs: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{option} {word!r} is not of the form name=value")
        if allowed_names and name not in allowed_names:
            raise typer.BadParameter(f"{option} {word!r}: known names are {', '.join(allowed_names)}")
        if name in pairs:
            raise typer.BadParameter(f"{option} names {name} twice")
        pairs[name] = value
    return pairs


def open_graph(
    address: str,
    storage_option: Sequence[str] | None,
    branch: str | None = None,
    *,
    read_only: bool = True,
    recover: bool = True,
) -> Graph:
    options: Mapping[str, str] = pairs_of(storage_option, "--storage-option")
    import omnigraph

    return omnigraph.open(address, branch or "main", read_only=read_only, recover=recover, storage_options=options)


def open_view(
    address: str, storage_option: Sequence[str] | None, branch: str | None, at: str | None
) -> tuple[GraphView, str | None]:
    """What a reading verb looks at, and the name of the branch unless a commit was named."""
    if branch is not None and at is not None:
        raise typer.BadParameter("--branch and --at contradict each other: a commit belongs to no branch in particular")
    from omnigraph.api.open_graph import open_at
    from omnigraph.errors import Corruption

    try:
        graph = open_graph(address, storage_option, branch)
    except Corruption:
        if at is None:
            raise
        # A damaged head hides no older commit; only names given since then are not known.
        return open_at(address, at, storage_options=pairs_of(storage_option, "--storage-option")), None
    return (graph.at(at), None) if at is not None else (graph.view(), graph.branch_name)


def is_local(address: str) -> bool:
    from omnigraph.storage.address import parse_address

    return parse_address(address).is_local


def check_consent(address: str, confirm: bool, yes: bool) -> None:
    """What cannot be undone needs one word more where others may use the graph."""
    if confirm and not yes and not is_local(address):
        raise typer.BadParameter(f"{address} is not on this machine: this needs --yes as well as --confirm")
