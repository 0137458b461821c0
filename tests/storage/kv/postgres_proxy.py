"""A line to Postgres that a test can cut or freeze."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class PostgresProxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.open = asyncio.Event()
        self.open.set()
        # Hangs up instead of passing on an answer with these words.
        self.last_words: bytes | None = None

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]

        async def forth() -> None:
            while data := await reader.read(65536):
                await self.open.wait()
                back.write(data)
            back.close()

        async def answers() -> None:
            while data := await there.read(65536):
                await self.open.wait()
                if self.last_words is not None and self.last_words in data:
                    break
                writer.write(data)
            writer.close()

        with contextlib.suppress(ConnectionError):
            await asyncio.gather(forth(), answers())

    def close_connections(self) -> None:
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def open_proxy(url: str) -> AsyncIterator[tuple[PostgresProxy, str]]:
    """The line, and the address at its near end."""
    port = urlsplit(url).port
    assert port is not None
    postgres_proxy = PostgresProxy(port)
    server = await asyncio.start_server(postgres_proxy.forward, "127.0.0.1", 0)
    try:
        yield postgres_proxy, url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/")
    finally:
        postgres_proxy.open.set()
        postgres_proxy.close_connections()
        server.close()
        await server.wait_closed()
