"""Just enough of HTTP/1.1 to pass messages on unchanged: heads, body framing, and a pair of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 16


@dataclass(slots=True)
class Message:
    """The head of a request or an answer, and how its body is framed."""

    start: str
    headers: dict[str, str]
    raw: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Message:
        start, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(start, {name.strip().lower(): value.strip() for name, _, value in pairs}, raw)

    @property
    def length(self) -> int | None:
        value = self.headers.get("content-length")
        return None if value is None else int(value)

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class Connection:
    """A client's connection, with the upstream connection that serves it alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close_abruptly(self) -> None:
        self.writer.transport.abort()

    def close_upstream_abruptly(self) -> None:
        if self.upstream is not None:
            self.upstream[1].transport.abort()
            self.upstream = None

    async def reach(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.upstream is not None and self.upstream[0].at_eof():
            self.close_upstream_abruptly()
        if self.upstream is None:
            self.upstream = await asyncio.open_connection(host, port)
        return self.upstream


async def body_of(message: Message, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body's bytes as framed on the wire, the last piece being the one that completes it."""
    if message.is_chunked:
        while True:
            size_line = await reader.readuntil(b"\r\n")
            size = int(size_line.split(b";")[0], 16)
            yield size_line + await reader.readexactly(size + 2)
            if size == 0:
                return
    remaining = message.length
    if remaining is None:
        yield await reader.read(-1)
        return
    while remaining:
        piece = await reader.readexactly(min(remaining, CHUNK_BYTES))
        remaining -= len(piece)
        yield piece
