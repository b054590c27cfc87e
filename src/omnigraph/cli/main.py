"""The entry point. Heavy modules are imported by the verbs that use them: `omnigraph --help` must be quick."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from omnigraph.cli import branch, graph, history, load_export, profiles, query, schema, serve, upkeep
from omnigraph.cli import schema as lint
from omnigraph.cli.errors import ExitCode, report_defect, report_error, report_usage
from omnigraph.cli.profiles import apply_profile
from omnigraph.errors import OmnigraphError, Unsupported


def describe_plainly(command: Any) -> Any:
    """Drop the names of Python types and ranges that typer adds to the help of a command and of those below it."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _name_plainly(parameter)
        else:
            # The text of an option says what its bounds mean.
            parameter._get_number_range_help_str = lambda: None
    for inner in getattr(command, "commands", {}).values():
        describe_plainly(inner)
    return command


def _name_plainly(argument: Any) -> None:
    name = argument.metavar
    usage = name if argument.required or name.startswith("[") else f"[{name}]"
    argument.get_usage_pieces = lambda _: [usage]
    argument.get_help_record = lambda _: (name, argument.help or "")


#: By group; None holds the verbs without one. A verb leaves this list when its capability lands.
UNBUILT: dict[str | None, tuple[str, ...]] = {
    None: (
        "embed", "mcp", "studio",
    ),
}  # fmt: skip


def unbuilt_verbs() -> list[str]:
    return [f"{group} {verb}" if group else verb for group, verbs in UNBUILT.items() for verb in verbs]


def epilog() -> str:
    return f"Not built yet in this version: {', '.join(unbuilt_verbs())}."


def refuse_unbuilt(app: typer.Typer, group: str | None) -> None:
    """Register the unbuilt verbs of one group, out of sight of its help."""
    for verb in UNBUILT[group]:
        _refuse(app, f"{group} {verb}" if group else verb, verb)


def _refuse(app: typer.Typer, full_name: str, verb: str) -> None:
    # Whatever follows the verb is swallowed, --help included: there is nothing to explain yet.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(verb, hidden=True, context_settings=settings, add_help_option=False)
    def refuse() -> None:
        raise Unsupported(
            f"`omnigraph {full_name}` is not built yet in this version",
            advice="See `omnigraph --help` for what is there",
            verb=full_name,
        )


class _InOrder(TyperGroup):
    """Lists verbs in the order of a graph's life; by itself typer puts the groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=_order)


_VERBS = (
    "init", "schema", "load", "mutate", "query", "export", "snapshot", "commit", "diff", "changes", "branch", "tag",
    "optimize", "cleanup", "recover", "verify", "repair", "lint", "fmt", "serve", "token", "config", "version",
)  # fmt: skip


def _order(verb: str) -> int:
    return _VERBS.index(verb) if verb in _VERBS else len(_VERBS)


app = typer.Typer(
    name="omnigraph",
    cls=_InOrder,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    epilog=epilog(),
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        graph.version()
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
    _profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Profile of the configuration file; see `config show`."),
    ] = None,
) -> None:
    """A typed, versioned property graph on plain object storage.

    Exit codes: 0 ok, 1 error, 2 usage, 3 conflict (read again and retry),
    4 lost precondition, 5 validation failed.
    """


app.command("init")(graph.init)
app.command("load")(load_export.load)
app.command("mutate")(query.mutate)
app.command("query")(query.query)
app.command("export")(load_export.export)
app.add_typer(history.app, name="commit")
app.add_typer(branch.app, name="branch")
app.command("diff")(history.diff)
app.command("changes")(history.changes)
app.command("snapshot")(graph.snapshot)
app.add_typer(schema.app, name="schema")
app.add_typer(upkeep.tags, name="tag")
app.command("optimize")(upkeep.optimize)
app.command("cleanup")(upkeep.cleanup)
app.command("recover")(upkeep.recover)
app.command("verify")(upkeep.verify)
app.command("repair")(upkeep.repair)
app.command("lint")(lint.lint)
app.command("fmt")(lint.fmt)
app.command("serve")(serve.serve)
app.add_typer(serve.tokens, name="token")
app.add_typer(profiles.app, name="config")
app.command("version")(graph.version)
refuse_unbuilt(app, None)


def main() -> None:
    """What the `omnigraph` script runs."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_pipe()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error has been reported on stderr."""
    as_json = wants_json(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped instead of ending the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with apply_profile(arguments):
            result = describe_plainly(get_command(app)).main(
                args=list(arguments), prog_name="omnigraph", standalone_mode=False
            )
    except OmnigraphError as error:
        return report_error(error, as_json=as_json)
    except typer.TyperException as error:
        return report_usage(error, as_json=as_json)
    except typer.Abort:
        return ExitCode.ERROR
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _leave_pipe()
        return ExitCode.ERROR
    except Exception as error:  # noqa: BLE001 the outermost boundary: nothing may reach the user as a bare stack
        return report_defect(error, as_json=as_json)
    return result if isinstance(result, int) else ExitCode.OK


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are wanted as JSON. Asked of the raw words, since the error may be about the words themselves."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    return "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words)


def _leave_pipe() -> None:
    """The reader of our output is gone; the interpreter must not complain about it while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
