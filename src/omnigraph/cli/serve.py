"""`omnigraph serve` and `omnigraph token`: graphs over HTTP, and who may use them."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import (
    Address,
    FormatOption,
    GraphOption,
    JsonOption,
    StorageOptions,
    address_of,
    pairs_of,
)
from omnigraph.cli.output import choose_format, emit, emit_rows, note

if TYPE_CHECKING:
    from omnigraph.server.settings import ServerSettings

_TOKENS = ("name", "role", "created_at", "expires_at")

tokens = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens of a server.")

TokensFile = Annotated[
    Path, typer.Option("--tokens", metavar="FILE", help="The server's token file.", show_default=False)
]
NameOption = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Who it is for: the actor of its writes.", show_default=False)
]


def serve(
    address: Address = None,
    graph: GraphOption = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Graphs and settings: .toml, .yaml or .json.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port; 0 for any free one. Default: 8080."),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="FILE", help="Token file; see `omnigraph token create`.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM): serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, unless it is in the same file.")
    ] = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", metavar="DIR", help="Directory of stored queries (.gq).")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every write.")] = False,
    cleanup_every: Annotated[
        str | None, typer.Option("--cleanup-every", metavar="AGE", help="Run cleanup that often: 24h. Default: never.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="With --cleanup-every: the newest N commits stay.")
    ] = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help="Let everybody in, from other machines as well.")
    ] = False,
    storage_option: StorageOptions = None,
) -> None:
    """Serve graphs over HTTP, until it is stopped.

    GRAPH may be one graph or a local directory of graphs. Docs of the
    routes are at /docs. Logs go to stderr, one JSON object per line.
    """
    from omnigraph.server.app import serve as run
    from omnigraph.server.settings import ServerSettings, read_settings

    settings = read_settings(config) if config is not None else ServerSettings()
    if config is None or address is not None or graph is not None:
        settings = _with_graphs(settings, address_of(address, graph), queries, read_only, storage_option)
    elif queries is not None or read_only or storage_option:
        raise typer.BadParameter("--queries, --read-only and --storage-option belong into the file, with each graph")
    from_options = {
        "host": host,
        "port": port,
        "tokens": tokens,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "allow_unauthenticated": allow_unauthenticated or None,
    }
    settings = replace(settings, **{name: value for name, value in from_options.items() if value is not None})  # type: ignore[arg-type]
    run(_with_cleanup(settings, cleanup_every, keep), dict(os.environ))


def _with_graphs(
    settings: ServerSettings,
    graph_address: str,
    queries: Path | None,
    read_only: bool,
    storage_option: list[str] | None,
) -> ServerSettings:
    from omnigraph.server.settings import is_directory_of_graphs, settings_for_address

    served = replace(
        settings_for_address(graph_address, read_only, queries),
        storage_options=pairs_of(storage_option, "--storage-option"),
    )
    if is_directory_of_graphs(graph_address):
        return replace(settings, directory=served)
    return replace(settings, graphs=(served,))


def _with_cleanup(settings: ServerSettings, every: str | None, keep: int | None) -> ServerSettings:
    if every is None and keep is None:
        return settings
    if every is None or keep is None:
        raise typer.BadParameter("--cleanup-every and --keep go together")
    from omnigraph.upkeep.cleanup.retention import parse_age_s

    return replace(settings, upkeep=replace(settings.upkeep, cleanup_every_s=parse_age_s(every), keep=keep))


@tokens.command()
def create(
    file: TokensFile,
    name: NameOption,
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="read or write.")] = "read",
    expires_in: Annotated[
        str | None,
        typer.Option("--expires-in", metavar="AGE", help="How long it is good: 90d, 12h. Default: for ever."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token and show it, this once: the file keeps a hash of it.

    A server that runs accepts it at once.
    """
    from omnigraph.clock import SystemClock, SystemIds
    from omnigraph.server.tokens import add_token, mint
    from omnigraph.upkeep.cleanup.retention import parse_age_s

    clock = SystemClock()
    ends = clock.now() + timedelta(seconds=parse_age_s(expires_in)) if expires_in is not None else None
    text, token = mint(SystemIds(), clock, name, role, ends)
    add_token(file, token)
    facts = {"name": token.name, "role": token.role, "expires_at": token.expires_at, "token": text}
    emit(facts, as_json=as_json)


@tokens.command("list")
def list_(file: TokensFile, row_format: FormatOption = None, as_json: JsonOption = False) -> None:
    """List the tokens, without the secrets."""
    from omnigraph.server.tokens import read_tokens

    chosen = choose_format(as_json, row_format)
    rows: list[dict[str, Any]] = [{name: asdict(token)[name] for name in _TOKENS} for token in read_tokens(file)]
    emit_rows({"tokens": rows}, rows, _TOKENS, chosen)


@tokens.command()
def revoke(file: TokensFile, name: NameOption, as_json: JsonOption = False) -> None:
    """Take a token back. A server that runs refuses it at once."""
    from omnigraph.server.tokens import revoke_token

    revoke_token(file, name)
    document = {"name": name, "revoked": True}
    emit(document, as_json=as_json, show=lambda _: note(f"The token of {name} is revoked."))
