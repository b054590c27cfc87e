"""Verbs that the command line will have and this version does not: refused by name, never faked."""

from __future__ import annotations

import typer

from omnigraph.errors import Unsupported

#: By group; None holds the verbs without one. A verb leaves this list when its capability lands.
UNBUILT: dict[str | None, tuple[str, ...]] = {
    None: (
        "embed", "mcp", "studio",
    ),
}  # fmt: skip


def full_names() -> list[str]:
    return [f"{group} {verb}" if group else verb for group, verbs in UNBUILT.items() for verb in verbs]


def epilog() -> str:
    return f"Not built yet in this version: {', '.join(full_names())}."


def refuse_all(app: typer.Typer, group: str | None) -> None:
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
