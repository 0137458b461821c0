"""Tells a pooler from Postgres itself."""

from typing import Any

from psycopg import AsyncConnection


async def leads_to_pooler(connection: AsyncConnection[Any]) -> bool:
    """Tells whether each transaction of a connection may run in another session of the server.

    A server announces the number of the session when it accepts a connection. A pooler does that before it has chosen a
    session, with a number of its own.
    """
    [[session]] = await (await connection.execute(b"SELECT pg_backend_pid()")).fetchall()
    return bool(session != connection.info.backend_pid)
