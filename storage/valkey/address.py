"""Where a Valkey server is and how to authenticate: the URLs of redis-py, `redis://`, `rediss://`, `unix://`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from baobab.storage.valkey.connection import Connection


class Address:
    def __init__(self, url: str) -> None:
        # The import takes a fifth of a second, which an installation without Valkey can save.
        from redis.asyncio.connection import SSLConnection, parse_url

        self._options: dict[str, Any] = {**parse_url(url)}
        self._is_encrypted = self._options.get("connection_class") is SSLConnection

    async def connect(self, make: Callable[[], Connection]) -> Connection:
        """Returns a connection that is authenticated, to a server that has finished loading its data."""
        loop = asyncio.get_running_loop()
        options = self._options
        if "path" in options:
            _, connection = await loop.create_unix_connection(make, options["path"])
        else:
            _, connection = await loop.create_connection(
                make, options.get("host", "localhost"), options.get("port", 6379), ssl=self._tls()
            )
        try:
            await asyncio.gather(*(connection.send(*command) for command in self._introduction()))
        except BaseException:
            connection.abort()
            raise
        return connection

    def _introduction(self) -> list[tuple[str | int, ...]]:
        # A server that is still loading answers PING with an error.
        commands: list[tuple[str | int, ...]] = [("PING",)]
        if "db" in self._options:
            commands.insert(0, ("SELECT", self._options["db"]))
        if "password" in self._options:
            user = (self._options["username"],) if "username" in self._options else ()
            commands.insert(0, ("AUTH", *user, self._options["password"]))
        return commands

    def _tls(self) -> ssl.SSLContext | None:
        if not self._is_encrypted:
            return None
        return ssl.create_default_context(cafile=self._options.get("ssl_ca_certs"))
