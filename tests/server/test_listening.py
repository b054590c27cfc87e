"""The socket of a server."""

from __future__ import annotations

import asyncio
import socket

import pytest

from omnigraph.errors import Unavailable
from omnigraph.server.app import open_listener
from omnigraph.server.settings import ServerSettings


def test_answers_do_not_wait_for_the_client_to_acknowledge_a_part_of_them() -> None:
    """Head and body are two writes: without TCP_NODELAY the second one waits for the delayed ACK of the first."""

    async def accept() -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            future.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with open_listener(ServerSettings(port=0)) as listener:
            async with await asyncio.start_server(answer, sock=listener):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                await reader.read()
                writer.close()
                await writer.wait_closed()
                return await future

    assert asyncio.run(accept()) != 0


def test_a_port_that_is_taken_is_told() -> None:
    with open_listener(ServerSettings(port=0)) as first, pytest.raises(Unavailable) as raised:
        open_listener(ServerSettings(port=first.getsockname()[1]))
    assert raised.value.code == "address_in_use"
