"""Detects a connection pooler in front of Postgres."""

from typing import Any

from psycopg import AsyncConnection


async def leads_to_pooler(connection: AsyncConnection[Any]) -> bool:
    """Returns whether each transaction of a connection may run in another session of the server.

    A server announces the session's process id when it accepts a connection. A pooler accepts before it has chosen a
    session, and announces an id of its own.
    """
    [[session]] = await (await connection.execute(b"SELECT pg_backend_pid()")).fetchall()
    return bool(session != connection.info.backend_pid)
