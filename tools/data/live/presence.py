"""Presence and broadcasts: which clients are online, and the messages that they send each other, across all
processes.

Both are rows beside those of the app. A process confirms its clients regularly. If it is killed, its clients are
removed after a minute.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Services
from baobab.tools.data.errors import TooManyPresent
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.migration.own_tables import create_own_tables
from baobab.tools.data.rows.transactions import require_thawed
from baobab.tools.data.schema.catalogue import NOTICE, Catalogues, read_catalogue, write_catalogue

T = TypeVar("T")

TOLD = "data_told"
"""The notice that a client of an app has sent a message. Its subject is the app."""
_COUNTER = "_messages"
_KEPT = timedelta(seconds=60)
_MOST_PRESENT = 1000
PAGE = 500


@dataclass(frozen=True, slots=True)
class ClientMessage:
    number: int
    kind: str
    fields: Mapping[str, Any]


def read_told(
    statements: Statements, store: DataStore, app_id: str, after: int | None
) -> tuple[int, list[ClientMessage]]:
    """Returns the number of the last message, and the messages after a given one; none if nobody has read any
    before.
    """
    sequences, messages = store.name_table(app_id, "_sequences"), store.name_table(app_id, "_messages")
    counters = statements.rows(f"SELECT last FROM {sequences} WHERE name = ?", _COUNTER)
    last = int(counters[0][0]) if counters else 0
    if after is None or last <= after:
        return last, []
    text = f"SELECT id, kind, fields FROM {messages} WHERE id > ? ORDER BY id LIMIT {PAGE}"
    rows = statements.rows(text, after)
    pending_messages = [ClientMessage(int(number), kind, json.loads(fields)) for number, kind, fields in rows]
    return (pending_messages[-1].number if len(pending_messages) == PAGE else last), pending_messages


class PresenceBook:
    """The present clients of one app, in a transaction that writes."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str, now: datetime) -> None:
        self._statements = statements
        self._sequences = Sequences(statements, store, app_id)
        self._messages = store.name_table(app_id, "_messages")
        self._presence = store.name_table(app_id, "_presence")
        self._now = now

    def track(
        self, client_id: str, process: str, user_id: str | None, metadata: Mapping[str, Any], channel: str | None
    ) -> int:
        """Makes a client present, and returns the number of the message that announces it. Raises TooManyPresent.

        channel: where it is present; None for the whole app.
        """
        [(count,)] = self._statements.rows(f"SELECT count(*) FROM {self._presence}")
        if count >= _MOST_PRESENT:
            raise TooManyPresent(details={"limit": _MOST_PRESENT})
        self._statements.rows(
            f"INSERT INTO {self._presence} (client_id, process, user_id, metadata, seen_at, channel)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            client_id,
            process,
            user_id,
            json.dumps(metadata),
            self._now.isoformat(),
            channel,
        )
        fields = {"client_id": client_id, "user_id": user_id, "metadata": metadata}
        return self.tell("presence_join", **fields, **_name_channel(channel))

    def update(self, client_id: str, metadata: Mapping[str, Any]) -> bool:
        updated_rows = self._statements.rows(
            f"UPDATE {self._presence} SET metadata = ? WHERE client_id = ? RETURNING channel",
            json.dumps(metadata),
            client_id,
        )
        for (channel,) in updated_rows:
            self.tell("presence_update", client_id=client_id, metadata=metadata, **_name_channel(channel))
        return bool(updated_rows)

    def leave(self, client_id: str) -> None:
        left_rows = self._statements.rows(
            f"DELETE FROM {self._presence} WHERE client_id = ? RETURNING client_id, user_id, channel",
            client_id,
        )
        self._tell_gone(left_rows)

    def renew(self, process: str) -> bool:
        """Confirms the clients of a process, and removes those that no process confirms any more. Returns whether there
        were any.
        """
        self._statements.rows(
            f"UPDATE {self._presence} SET seen_at = ? WHERE process = ?",
            self._now.isoformat(),
            process,
        )
        expired_rows = self._statements.rows(
            f"DELETE FROM {self._presence} WHERE seen_at < ? RETURNING client_id, user_id, channel",
            (self._now - _KEPT).isoformat(),
        )
        self._tell_gone(expired_rows)
        return bool(expired_rows)

    def list_others(self, client_id: str, channel: str | None) -> list[dict[str, Any]]:
        rows = self._statements.rows(
            f"SELECT client_id, user_id, metadata FROM {self._presence} WHERE client_id <> ?"
            " AND coalesce(channel, '') = ? ORDER BY client_id",
            client_id,
            channel or "",
        )
        return [{"client_id": each, "user_id": user, "metadata": json.loads(metadata)} for each, user, metadata in rows]

    def tell(self, kind: str, **fields: Any) -> int:
        """Writes a message for every process, removes old ones, and returns the message's number."""
        number = self._sequences.add(_COUNTER, 1)
        self._sequences.write()
        self._statements.rows(
            f"INSERT INTO {self._messages} (id, kind, fields, at) VALUES (?, ?, ?, ?)",
            number,
            kind,
            json.dumps(fields),
            self._now.isoformat(),
        )
        before = (self._now - _KEPT).isoformat()
        self._statements.rows(f"DELETE FROM {self._messages} WHERE at < ?", before)
        return number

    def _tell_gone(self, removed_rows: list[tuple[Any, ...]]) -> None:
        for client_id, user_id, channel in removed_rows:
            self.tell("presence_leave", client_id=client_id, user_id=user_id, **_name_channel(channel))


def _name_channel(channel: str | None) -> dict[str, str]:
    """Returns the field that names the channel of a presence; the presence of the whole app has none."""
    return {} if channel is None else {"channel": channel}


async def write_presence(services: Services, app_id: str, work: Callable[[PresenceBook], T]) -> T:
    """Runs a function in a transaction of the app. Raises AppNotFound or AppMigrating."""
    app = await services.directory.app(app_id)
    store = services.stores_of(app.region).data
    if not (await services.of(Catalogues).get(app_id)).version:
        await _create_database(services, store, app_id)

    def run(statements: Statements) -> T:
        require_thawed(statements, store, app_id)
        return work(PresenceBook(statements, store, app_id, services.clock.now()))

    return await store.write(app_id, run)


async def _create_database(services: Services, store: DataStore, app_id: str) -> None:
    """Creates the database of an app that has no tables yet."""

    def create(statements: Statements) -> None:
        create_own_tables(statements, store, app_id)
        catalogue = read_catalogue(statements, store, app_id)
        if not catalogue.version:
            write_catalogue(statements, store, app_id, catalogue)

    await store.alter(app_id, create)
    async with services.database.writing_unit(lock=None) as unit:
        await services.notices.publish(unit, NOTICE, app_id)


async def announce(services: Services, app_id: str) -> None:
    """Tells every process that clients of the app have sent a message."""
    async with services.database.writing_unit(lock=None) as unit:
        await services.notices.publish(unit, TOLD, app_id)
