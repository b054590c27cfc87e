"""A server as a process: opens the socket, refuses to be open by accident, ends in order."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import ssl
from typing import Any

import uvicorn

from omnigraph.clock import SystemClock
from omnigraph.config import Config
from omnigraph.errors import InvalidInput, Unavailable
from omnigraph.server.app import create_app
from omnigraph.server.logs import Journal, log_to_stderr
from omnigraph.server.settings import ServerSettings
from omnigraph.server.tokens import VARIABLE

_BACKLOG = 512
#: Longer than clients keep idle connections: so a connection that they use has not just been closed from this side.
_KEEP_ALIVE_S = 75


def serve(settings: ServerSettings, environment: dict[str, str], *, config: Config | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are answered before the end."""
    check_exposure(settings, environment)
    if not settings.graphs and settings.directory is None:
        raise InvalidInput("there is no graph to serve", code="bad_config", advice="Name one, or a directory of graphs")
    clock = SystemClock()
    log_to_stderr(clock)
    tls_options = _tls_options(settings)
    app = create_app(settings, config=config)
    with open_listener(settings) as listener:
        host, port = listener.getsockname()[:2]
        url_host = f"[{host}]" if ":" in host else host
        names = [graph.name for graph in settings.graphs]
        Journal(clock).write(
            "listening", url=f"{'https' if tls_options else 'http'}://{url_host}:{port}", port=port, graphs=names
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                log_level=logging.WARNING,
                timeout_graceful_shutdown=round(settings.limits.stop_timeout_s),
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                **tls_options,
            )
        )
        # The web server sends itself the signal again at its end; here a requested stop is no failure.
        signal.signal(signal.SIGTERM, lambda *_: None)
        server.run(sockets=[listener])


def _tls_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of the web server for TLS; raises for files that it could not use."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return {}
    if cert is None:
        raise InvalidInput("there is a TLS key without a certificate", code="bad_tls", advice="Give --tls-cert as well")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidInput(
            f"the certificate {cert} cannot be used: {error}",
            code="bad_tls",
            advice="Give a PEM file with the certificate chain, and its key in --tls-key or in the same file",
        ) from error
    return {"ssl_certfile": str(cert), "ssl_keyfile": str(key) if key is not None else None}


def check_exposure(settings: ServerSettings, environment: dict[str, str]) -> None:
    """Refuse to let callers from other machines in without tokens, unless `allow_unauthenticated` is set."""
    needs_tokens = settings.tokens is not None or bool(environment.get(VARIABLE, "").strip())
    if needs_tokens or settings.allow_unauthenticated or is_loopback(settings.host):
        return
    raise InvalidInput(
        f"{settings.host} can be reached from other machines and there are no tokens",
        code="unauthenticated_server",
        advice="Give --tokens FILE (see `omnigraph token create`), or --allow-unauthenticated to let everybody write",
        host=settings.host,
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_listener(settings: ServerSettings) -> socket.socket:
    """A socket for the web server; port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # By the protocol's name: only then asyncio sends small answers at once, instead of after a delayed ACK of 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror}",
            code="address_in_use",
            advice="Choose another --host or --port",
        ) from error
    return listener
