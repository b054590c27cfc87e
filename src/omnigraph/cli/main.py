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

from omnigraph.cli import (
    branches,
    commits,
    configuration,
    differences,
    exports,
    graphs,
    loads,
    mutations,
    queries,
    recovery,
    schemas,
    serve,
    texts,
    unbuilt,
    upkeep,
)
from omnigraph.cli.failure import ExitCode, report_defect, report_error, report_usage
from omnigraph.cli.helping import in_words
from omnigraph.cli.settings import applied
from omnigraph.errors import OmnigraphError


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
    epilog=unbuilt.epilog(),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        graphs.version()
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


app.command("init")(graphs.init)
app.command("load")(loads.load)
app.command("mutate")(mutations.mutate)
app.command("query")(queries.query)
app.command("export")(exports.export)
app.add_typer(commits.app, name="commit")
app.add_typer(branches.app, name="branch")
app.command("diff")(differences.diff)
app.command("changes")(differences.changes)
app.command("snapshot")(graphs.snapshot)
app.add_typer(schemas.app, name="schema")
app.add_typer(upkeep.tags, name="tag")
app.command("optimize")(upkeep.optimize)
app.command("cleanup")(upkeep.cleanup)
app.command("recover")(recovery.recover)
app.command("verify")(upkeep.verify)
app.command("repair")(upkeep.repair)
app.command("lint")(texts.lint)
app.command("fmt")(texts.fmt)
app.command("serve")(serve.serve)
app.add_typer(serve.tokens, name="token")
app.add_typer(configuration.app, name="config")
app.command("version")(graphs.version)
unbuilt.refuse_all(app, None)


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
        with applied(arguments):
            result = in_words(get_command(app)).main(args=list(arguments), prog_name="omnigraph", standalone_mode=False)
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
