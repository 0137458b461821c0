"""Handles the messages that a client sends over a WebSocket."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core import BadRequest, BaobabError, Forbidden, Services, Unavailable
from baobab.tools.core.types import parse_json
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import RealtimeNotConfigured, UserRequired
from baobab.tools.data.expressions.expressions import FALSE, allowed_rows
from baobab.tools.data.live.feed import AppFeed
from baobab.tools.data.live.listener import Filter, Listener, build_message, read_filter
from baobab.tools.data.live.presence import PresenceBook, announce, write_presence
from baobab.tools.data.migration.changes import require_followable
from baobab.tools.data.schema.catalogue import Catalogues, TableInfo
from baobab.tools.data.schema.channels import PRESENCE, Verb, allows

CallEvent = Callable[[str, Any], Awaitable[Mapping[str, Any]]]
TOO_MANY = 1008
_MOST_EVENTS = 10
_PER_SECOND, _AT_ONCE = 20.0, 60.0
_MOST_CHANNELS = 50
_LONGEST_NAME = 100
_MOST_BYTES = 4096
"""The most bytes, as JSON, of a client's metadata or of the payload of a broadcast."""


class Conversation:
    """The conversation with one client. Its messages are handled one after the other, and a wrong one is answered with
    an error.
    """

    def __init__(
        self, services: Services, app_id: str, listener: Listener, feed: AppFeed, call_event: CallEvent
    ) -> None:
        """call_event: has a function of the app handle an event of the client."""
        self._call_event = call_event
        self._events: set[asyncio.Task[None]] = set()
        self._services = services
        self._app_id = app_id
        self._listener = listener
        self._feed = feed
        self._allowance, self._counted_at = _AT_ONCE, asyncio.get_running_loop().time()

    async def take(self, text: str) -> None:
        if self._listener.is_ended:
            return
        if not self._spend():
            self._listener.end(TOO_MANY, "too many messages")
            return
        try:
            message = _parse(text)
            handle = self._HANDLERS.get(str(message.get("type")))
            if handle is None:
                raise BadRequest(f"There is no message of the type `{str(message.get('type'))[:40]}`.")
            await handle(self, message)
        except BaobabError as error:
            self._refuse(error)
        except DatabaseUnavailable:
            self._refuse(Unavailable("The database does not answer."))

    async def leave(self) -> None:
        """Removes the client from those that are present, if it is one of them. Nobody waits for functions any more."""
        for task in self._events:
            task.cancel()
        if self._listener.tracks_since is not None:
            await write_presence(self._services, self._app_id, lambda book: book.leave(self._listener.client_id))
            await announce(self._services, self._app_id)

    def _spend(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._allowance = min(_AT_ONCE, self._allowance + (now - self._counted_at) * _PER_SECOND)
        self._counted_at = now
        self._allowance -= 1
        return self._allowance >= 0

    def _refuse(self, error: BaobabError) -> None:
        self._listener.send(build_message("error", code=error.code, message=error.message))

    async def _subscribe(self, message: Mapping[str, Any]) -> None:
        conditions, since = message.get("filter", {}), message.get("since")
        if not isinstance(conditions, dict) or not (since is None or (isinstance(since, int) and since >= 0)):
            raise BadRequest("`filter` must be an object of columns and their values, `since` the id of a change.")
        name = _read_name(message, "table")
        try:
            subscription = await find_subscription(self._services, self._app_id, self._listener.actor, name, conditions)
            await self._feed.subscribe(self._listener, *subscription, since)
        except RealtimeNotConfigured as error:
            self._listener.send(
                build_message(
                    "warning",
                    code="TABLE_NOT_REALTIME_ENABLED",
                    table=name,
                    message=error.message,
                    remediation="Those who run the app turn it on, in its realtime configuration.",
                )
            )

    async def _unsubscribe(self, message: Mapping[str, Any]) -> None:
        name = _read_name(message, "table")
        self._listener.tables.pop(name, None)
        self._listener.send(build_message("unsubscribed", table=name))

    async def _track(self, message: Mapping[str, Any]) -> None:
        listener, metadata = self._listener, _read_object(message, "metadata")
        channel = _read_name(message, "channel") if "channel" in message else None
        if listener.tracks_since is not None:
            if channel != listener.presence:
                raise BadRequest("This connection is present elsewhere already. Open another one for this channel.")
            await self._update(message)
            return
        await self._require(PRESENCE if channel is None else channel, "join")
        user_id = listener.actor.user_id

        def track(book: PresenceBook) -> tuple[int, list[dict[str, Any]]]:
            number = book.track(listener.client_id, self._feed.process, user_id, metadata, channel)
            return number, book.list_others(listener.client_id, channel)

        number, clients = await write_presence(self._services, self._app_id, track)
        listener.tracks_since, listener.presence = number, channel
        fields = {} if channel is None else {"channel": channel}
        listener.send(build_message("presence_state", clients=clients, **fields))
        await announce(self._services, self._app_id)

    async def _update(self, message: Mapping[str, Any]) -> None:
        client_id, metadata = self._listener.client_id, _read_object(message, "metadata")
        if self._listener.tracks_since is None:
            return
        if await write_presence(self._services, self._app_id, lambda book: book.update(client_id, metadata)):
            await announce(self._services, self._app_id)

    async def _join(self, message: Mapping[str, Any]) -> None:
        channel = _read_name(message, "channel")
        if len(self._listener.channels) >= _MOST_CHANNELS:
            raise BadRequest(f"A connection joins at most {_MOST_CHANNELS} channels.")
        await self._require(channel, "join")
        self._listener.channels.add(channel)
        self._listener.send(build_message("joined", channel=channel))

    async def _leave(self, message: Mapping[str, Any]) -> None:
        channel = _read_name(message, "channel")
        self._listener.channels.discard(channel)
        self._listener.send(build_message("left", channel=channel))

    async def _broadcast(self, message: Mapping[str, Any]) -> None:
        channel, event = _read_name(message, "channel"), _read_name(message, "event")
        actor = self._listener.actor
        rules = (await self._services.of(Catalogues).get(self._app_id)).channels
        if actor.role == "anon" and not rules:
            raise UserRequired("Visitors receive broadcasts, and do not send any.")
        if channel not in self._listener.channels:
            raise BadRequest("Join the channel before you send to it.")
        await self._require(channel, "send")
        sender = (self._listener.client_id, actor.user_id)
        await broadcast(self._services, self._app_id, channel, event, _read_object(message, "payload"), *sender)

    async def _require(self, channel: str, verb: Verb) -> None:
        """Raises Forbidden if no rule lets the client join a channel, or send to it."""
        rules = (await self._services.of(Catalogues).get(self._app_id)).channels
        if not allows(rules, channel, verb, self._listener.actor):
            action = "join" if verb == "join" else "send to"
            raise Forbidden(f"No rule lets this client {action} the channel `{channel}`.")

    async def _call_function(self, message: Mapping[str, Any]) -> None:
        event = _read_name(message, "event")
        if len(self._events) >= _MOST_EVENTS:
            raise BadRequest(f"At most {_MOST_EVENTS} events of a connection are handled at once; wait for an answer.")
        # Other messages of the client do not wait for the function.
        task = asyncio.create_task(self._answer_event(event, message.get("payload")))
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    async def _answer_event(self, event: str, payload: Any) -> None:
        try:
            answer = await self._call_event(event, payload)
        except BaobabError as error:
            self._refuse(error)
            return
        if answer["error"] is not None:
            self._listener.send(build_message("error", code="FUNCTION_FAILED", message=answer["error"], event=event))
            return
        self._listener.send(build_message("event_response", event=event, data=answer["body"]))

    _HANDLERS: Mapping[str, Callable[["Conversation", Mapping[str, Any]], Awaitable[None]]] = {
        "subscribe": _subscribe,
        "unsubscribe": _unsubscribe,
        "presence_track": _track,
        "presence_update": _update,
        "join": _join,
        "leave": _leave,
        "broadcast": _broadcast,
        "event": _call_function,
    }


async def find_subscription(
    services: Services, app_id: str, actor: Actor, name: str, conditions: Mapping[str, Any]
) -> tuple[TableInfo, Filter]:
    """Returns the table and the filter of a subscription. Raises TableNotFound, ViewNotFollowed, RealtimeNotConfigured
    or UserRequired.
    """
    table = require_followable(await services.of(Catalogues).get(app_id), name)
    if table.live_since is None:
        raise RealtimeNotConfigured(f"The changes of `{name}` are not published.")
    if actor.role == "anon" and allowed_rows(table, "SELECT", actor) == FALSE:
        raise UserRequired(f"No policy of `{name}` lets visitors read rows.")
    return table, read_filter(table, conditions)


async def broadcast(
    services: Services,
    app_id: str,
    channel: str,
    event: str,
    payload: Mapping[str, Any],
    client_id: str | None = None,
    user_id: str | None = None,
) -> None:
    """Sends a payload to all clients that have joined a channel, except the sender."""
    fields = {"channel": channel, "event": event, "payload": payload, "client_id": client_id, "user_id": user_id}
    await write_presence(services, app_id, lambda book: book.tell("broadcast", **fields))
    await announce(services, app_id)


def _parse(text: str) -> Mapping[str, Any]:
    try:
        message = parse_json(text)
    except ValueError as exc:
        raise BadRequest("A message must be a JSON object.") from exc
    if not isinstance(message, dict):
        raise BadRequest("A message must be a JSON object.")
    return message


def _read_name(message: Mapping[str, Any], field: str) -> str:
    name = message.get(field)
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise BadRequest(f"`{field}` must be a text of at most {_LONGEST_NAME} characters.")
    return name


def _read_object(message: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = message.get(field, {})
    if not isinstance(value, dict) or len(to_json(value)) > _MOST_BYTES:
        raise BadRequest(f"`{field}` must be an object of at most {_MOST_BYTES} bytes of JSON.")
    if "\\u0000" in json.dumps(value):
        raise BadRequest(f"`{field}` holds a NUL character.")
    return value
