"""What comes to meetings without a credential: providers' webhooks, and readers of files by signed addresses."""

import hashlib
from collections.abc import AsyncGenerator
from typing import Annotated, Literal, cast

from pydantic import Field
from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.meetings.opening import Meetings
from baobab.runtime.meetings.provider import TERMINAL, HookRefused, HookTooInvolved, ProviderEvent
from baobab.runtime.meetings.simulator import build_sound, read_film
from baobab.tools.ai.media.schemas import Bytes
from baobab.tools.ai.meetings.access import BY_SIGNED_URL
from baobab.tools.ai.meetings.bots import read_transcript
from baobab.tools.ai.meetings.errors import BotNotFound, HookNotRead, HookUnsigned, NotKept
from baobab.tools.ai.meetings.following import find_provider, load_bot, write_heard
from baobab.tools.ai.meetings.schemas import BotId, Empty, Row
from baobab.tools.ai.meetings.tables import meeting_bots
from baobab.tools.ai.meetings.toolset import gateway_meetings
from baobab.tools.core import EVERYBODY, Audit, Call, Mcp, NotFound, PerAddress, Rest, Text
from baobab.tools.core.errors import BodyTooLarge
from baobab.tools.core.signed_urls import Expires, Signature
from baobab.tools.core.stream import Body, Stream

_MOST_BYTES = 2**16
_REFRESH = "meetings_refresh"
Header = Annotated[str, Text(500)]
_HEADERS = (
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "svix-id",
    "svix-timestamp",
    "svix-signature",
    "x-webhook-signature",
    "x-webhook-timestamp",
)
_NAMES = {header.replace("-", "_"): header for header in _HEADERS}


@gateway_meetings.tool(
    "POST /_hooks/{provider}",
    access=EVERYBODY,
    effect="write",
    raises=(HookUnsigned, HookNotRead, NotFound, BodyTooLarge),
    limit=PerAddress(1200, 60),
    audit=Audit("ai_meetings.hook", category="ai", action="update", resource="meeting_bot", tallied=True),
    rest=Rest(raw_body="content", query=tuple(_NAMES), from_headers=_NAMES, max_body=_MOST_BYTES),
    mcp=Mcp(offered=False),
)
async def gateway_meetings_hook(
    call: Call,
    provider: Annotated[str, Text(20), Field(description="The provider that sends it.", examples=["recall"])],
    content: Body,
    webhook_id: Header = "",
    webhook_timestamp: Header = "",
    webhook_signature: Header = "",
    svix_id: Header = "",
    svix_timestamp: Header = "",
    svix_signature: Header = "",
    x_webhook_signature: Header = "",
    x_webhook_timestamp: Header = "",
) -> Empty:
    """Take a webhook of the provider of meetings, which must have signed it.

    content: the webhook, as it was signed.
    """
    source = call.services.part(Meetings).all.get(provider)
    if source is None or source.is_simulated:
        raise NotFound("This server has no such provider of meetings.")
    values = (
        webhook_id,
        webhook_timestamp,
        webhook_signature,
        svix_id,
        svix_timestamp,
        svix_signature,
        x_webhook_signature,
        x_webhook_timestamp,
    )
    headers = {name: value for name, value in zip(_HEADERS, values, strict=True) if value}
    try:
        event = source.verify(headers, await _read(content), call.now)
    except HookRefused as exc:
        raise HookUnsigned from exc
    except HookTooInvolved as exc:
        raise HookNotRead from exc
    row = None if event is None else await _find_bot(call, source.name, event)
    if event is None or row is None:
        # It is about a bot that others have sent with the same account of the provider.
        return {"ok": True}
    if event.change is not None and event.change.status not in TERMINAL:
        await write_heard(call.services, row, [event.change])
    # How it ended, and what it has recorded, is asked of the provider itself.
    digest = hashlib.sha256(event.id.encode()).hexdigest()[:32]
    job_id = f"{_REFRESH}:{row.id}:{digest}"
    arguments = {"bot_id": row.id}
    await call.services.jobs.enqueue(call.unit, _REFRESH, arguments, job_id=job_id, tenant=row.organisation_id)
    return {"ok": True}


async def _read(content: Body) -> bytes:
    text = bytearray()
    async for chunk in content.chunks:
        text += chunk
        if len(text) > _MOST_BYTES:
            raise BodyTooLarge(details={"max_bytes": _MOST_BYTES})
    return bytes(text)


async def _find_bot(call: Call, provider: str, event: ProviderEvent) -> Row | None:
    columns = meeting_bots.c
    query = select(meeting_bots).where(columns.provider == provider, columns.provider_id == event.provider_id)
    async with call.services.database.reading() as connection:
        row = (await connection.execute(query)).first()
    if row is not None or event.bot_id is None:
        return row
    # The webhook may come before the answer of the request that has created the bot.
    row = await load_bot(call.services, event.bot_id)
    return row if row is not None and row.provider == provider and row.provider_id is None else None


@gateway_meetings.tool(
    "GET /{bot_id}/content/{kind}",
    access=BY_SIGNED_URL,
    effect="read",
    raises=(BotNotFound, NotKept),
    limit=PerAddress(600, 60),
    rest=Rest(media_type="application/octet-stream", headers={"cache-control": "private, no-store"}),
    mcp=Mcp(offered=False),
)
async def gateway_meetings_content(
    call: Call,
    bot_id: BotId,
    kind: Literal["recording", "transcript"],
    expires: Expires = 0,
    signature: Signature = "",
) -> Bytes:
    """Read a file of a bot at the recordingUrl or transcriptUrl that its answer has.

    kind: which of its files.
    """
    del expires, signature
    row = await load_bot(call.services, bot_id)
    if row is None:
        raise BotNotFound
    if kind == "transcript":
        passages = await read_transcript(call, row)
        return cast(Bytes, Stream(_send(to_json(passages)), "application/json"))
    provider = find_provider(call.services, row)
    if provider is None or not provider.is_simulated or row.recording_state != "ready":
        raise NotKept
    is_video = row.recording == "mp4"
    file = read_film() if is_video else build_sound()
    return cast(Bytes, Stream(_send(file), "video/mp4" if is_video else "audio/wav"))


async def _send(file: bytes) -> AsyncGenerator[bytes, None]:
    yield file
