"""/v1/{app_id}/realtime: changes of rows as they happen, presence, and broadcasts between clients."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Unpack, cast

from pydantic import Field

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core import (
    Anonymous,
    AppId,
    AppOwner,
    Audit,
    BadRequest,
    BaobabError,
    Call,
    EndUser,
    Guard,
    JsonObject,
    Mcp,
    Rest,
    Secret,
    Text,
)
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.stream import Places, Stream, StreamEnded
from baobab.tools.data.access import OpenToPolicies, find_actor
from baobab.tools.data.errors import (
    ColumnNotFound,
    RealtimeConnectionLimit,
    RealtimeNotConfigured,
    TableNotFound,
    UserRequired,
    ViewNotFollowed,
)
from baobab.tools.data.fields import TableName
from baobab.tools.data.live.conversation import Conversation, broadcast, find_subscription
from baobab.tools.data.live.feed import LiveFeeds
from baobab.tools.data.live.listener import Frame, Listener, build_message
from baobab.tools.data.migration.changes import change_tables
from baobab.tools.data.rows.transactions import find_catalogue, format_moment
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schemas import ActingAs, Configured, RealtimeConfig, TableSwitched, Told
from baobab.tools.data.toolset import data

_OF_USER, _OF_NETWORK = 20, 100
_EVENTS = ["INSERT", "UPDATE", "DELETE"]
_SECONDS_OF_BEAT = 28.0
_ACCESS = OpenToPolicies(description="Those who run the app; its users and visitors, for what policies open to them.")

Token = Annotated[str, Secret(8192), Field(description="A key or a token, where no header can be sent.")]
TableNames = Annotated[list[TableName], Field(min_length=1, max_length=50)]
ChannelName = Annotated[str, Text(100, min_length=1), Field(examples=["room-7"])]


@data.tool(
    "GET /realtime",
    access=_ACCESS,
    effect="read",
    raises=(RealtimeConnectionLimit,),
    rest=Rest(socket=True, credential="token"),
    mcp=Mcp(offered=False),
)
async def realtime_open(
    call: Call,
    app_id: AppId,
    token: Token = "",
    **acting: Unpack[ActingAs],
) -> str:
    """Follow changes of tables over a WebSocket, share presence, and send messages to other clients.

    token: a key or a token. Better, because addresses are logged: the header `Authorization`, or from a browser the
        protocols `baobab` and `bearer.TOKEN`.
    """
    del token
    listener = Listener(find_actor(call, acting), call.services.ids.uuid())
    # Clients send their first message as soon as the socket is open, usually before they get `connected`.
    first_conversation: asyncio.Future[Conversation] = asyncio.get_running_loop().create_future()

    async def take(text: str) -> None:
        await (await first_conversation).take(text)

    async def call_event(event: str, payload: Any) -> Any:
        arguments = {"app_id": app_id, "event": event, "payload": payload}
        registry = call.registry
        result, _ = await registry.run(registry.find("functions_event"), arguments, call.caller, call.context)
        return result

    async def follow() -> AsyncGenerator[bytes, None]:
        services, loop_time = call.services, call.services.clock.monotonic
        with services.of(LiveFeeds).join(app_id, listener) as feed:
            conversation = Conversation(services, app_id, listener, feed, call_event)
            try:
                last = await feed.find_position()
                role = listener.actor.role
                hello = build_message("connected", app_id=app_id, role=role, client_id=listener.client_id, last_id=last)
                yield hello.content
                first_conversation.set_result(conversation)
                beaten_at = loop_time()
                async for message in listener.read():
                    if loop_time() - beaten_at >= _SECONDS_OF_BEAT:
                        beaten_at = loop_time()
                        yield build_message("heartbeat", timestamp=services.clock.now()).content
                    # An empty piece is not sent. It gives a chance to check whether the client may still read.
                    yield b"" if message is None else message.content
            finally:
                listener.end(1001, "closed")
                with contextlib.suppress(BaobabError, DatabaseUnavailable):
                    await run_to_completion(conversation.leave())

    return _stream(call, follow(), "application/json", take)


@data.tool(
    "GET /realtime/changes",
    access=_ACCESS,
    effect="read",
    raises=(
        RealtimeConnectionLimit,
        RealtimeNotConfigured,
        TableNotFound,
        ColumnNotFound,
        UserRequired,
        ViewNotFollowed,
    ),
    rest=Rest(
        media_type="text/event-stream",
        credential="token",
        further_query="where",
        query=("last_event_id",),
        from_headers={"last_event_id": "last-event-id"},
    ),
    mcp=Mcp(offered=False),
)
async def realtime_changes(
    call: Call,
    app_id: AppId,
    table: TableName,
    where: Annotated[dict[Annotated[str, Text(200)], Any], Field(max_length=20)] | None = None,
    last_event_id: Annotated[str, Text(100)] = "",
    token: Token = "",
    **acting: Unpack[ActingAs],
) -> str:
    """Follow the changes of one table as server-sent events.

    where: values that columns must have, as query parameters: `?table=posts&room=7`.
    last_event_id: the id of the last change that you received; the stream continues after it.
    token: a key or a token; you can send it in the header `Authorization` instead.
    """
    del token
    services = call.services
    listener = Listener(find_actor(call, acting), services.ids.uuid())
    since = int(last_event_id) if last_event_id.isascii() and last_event_id.isdigit() else None
    subscription = await find_subscription(services, app_id, listener.actor, table, where or {})

    async def follow() -> AsyncGenerator[bytes, None]:
        with services.of(LiveFeeds).join(app_id, listener) as feed:
            try:
                # Before the first piece, which opens the stream: changes from then on must be sent.
                await feed.subscribe(listener, *subscription, since)
                yield b"retry: 1000\n\n"
                async for message in listener.read():
                    yield _encode_event(message)
            except StreamEnded as end:
                reason = build_message("closed", code=end.code, reason=end.reason)
                yield _encode_event(reason)

    return _stream(call, follow(), "text/event-stream")


def _encode_event(message: Frame | None) -> bytes:
    if message is None:
        return b": \n\n"
    number = b"" if message.number is None else b"id: %d\n" % message.number
    return b"%sevent: %s\ndata: %s\n\n" % (number, message.kind.encode(), message.content)


def _stream(call: Call, pieces: AsyncGenerator[bytes, None], media_type: str, take: Any = None) -> str:
    limit = call.services.options.realtime_connections
    caller = call.caller
    of_caller = _OF_NETWORK if isinstance(caller, Anonymous) else _OF_USER if isinstance(caller, EndUser) else limit
    places = Places(limit, min(of_caller, limit), RealtimeConnectionLimit)
    subject = f"realtime:{call.require_app().id}"
    return cast(str, Stream(pieces, media_type, subject=subject, places=places, on_message=take, follows_app=True))


@data.tool(
    "POST /realtime/configure",
    access=AppOwner("admin"),
    effect="write",
    raises=(TableNotFound, ViewNotFollowed),
    audit=Audit("realtime.configure", resource="table"),
    rest=Rest(examples={"tables": ["posts"]}),
)
async def realtime_configure(call: Call, app_id: AppId, tables: TableNames) -> Configured:
    """Publish the changes of tables to clients that follow them and may see the rows.

    tables: the names of the tables; tables that publish already continue to.
    """
    now = format_moment(call)
    await change_tables(call, tables, lambda table: table.live_since or now)
    return {"configured": [{"table": name, "status": "enabled"} for name in dict.fromkeys(tables)]}


@data.tool(
    "GET /realtime/config",
    access=AppOwner(),
    effect="read",
)
async def realtime_get(call: Call, app_id: AppId) -> RealtimeConfig:
    """Show which tables publish their changes, and the addresses at which clients follow them."""
    catalogue: Catalogue = await find_catalogue(call)
    address = f"{call.services.options.base_url}/v1/{app_id}/realtime"
    return {
        "app_id": app_id,
        "tables": [
            {
                "table_name": table.name,
                "events": _EVENTS,
                "enabled": True,
                "created_at": table.live_since,
                "updated_at": table.live_since,
                "trigger_installed": True,
                "drift": False,
            }
            for table in catalogue.tables.values()
            if table.live_since is not None
        ],
        "active_connection": call.services.of(LiveFeeds).count(app_id) > 0,
        "websocket_url": f"ws{address.removeprefix('http')}",
        "events_url": f"{address}/changes",
    }


@data.tool(
    "DELETE /realtime/{table}",
    access=AppOwner("admin"),
    effect="write",
    raises=(TableNotFound, ViewNotFollowed),
    audit=Audit("realtime.disable", resource="table"),
)
async def realtime_disable(call: Call, app_id: AppId, table: TableName) -> TableSwitched:
    """Stop publishing the changes of a table. No row is changed by this."""
    await change_tables(call, [table], lambda _: None)
    return {"table": table, "status": "disabled"}


@data.tool(
    "POST /realtime/broadcast",
    access=AppOwner(),
    effect="write",
    rest=Rest(examples={"channel": "room-7", "event": "ping", "payload": {"n": 1}}),
    guard=Guard(as_app=AsApp(literal=("channel", "event"), fills=("payload",))),
)
async def realtime_broadcast(
    call: Call,
    app_id: AppId,
    channel: ChannelName,
    event: Annotated[str, Text(100, min_length=1), Field(examples=["ping"])],
    payload: JsonObject | None = None,
) -> Told:
    """Send a message to all clients that have joined a channel. It is not stored for clients that join later.

    channel: the name of the channel; clients join it over their WebSocket.
    event: what happened, in one word.
    payload: an object of at most 4096 bytes; null for an empty one.
    """
    if len(str(payload or {})) > 4096:
        raise BadRequest("`payload` must be an object of at most 4096 bytes of JSON.")
    await call.unit.commit()
    await broadcast(call.services, app_id, channel, event, payload or {})
    return {"told": True}
