"""The tools of calendars by which bots are sent into an app's meetings."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update

from baobab.tools.ai.meetings.errors import CalendarNotConnected, CalendarNotFound, TooManyCalendars
from baobab.tools.ai.meetings.outcomes import act_in
from baobab.tools.ai.meetings.schemas import (
    BotName,
    CalendarAccount,
    CalendarDeleted,
    CalendarEvents,
    CalendarEventView,
    CalendarId,
    CalendarToolkit,
    CalendarUser,
    MeetingCalendar,
    MeetingCalendars,
    MostADay,
    Recording,
    Row,
    TitleText,
)
from baobab.tools.ai.meetings.starting import DEFAULT_NAME, require_provider
from baobab.tools.ai.meetings.tables import is_of, meeting_calendar_events, meeting_calendars
from baobab.tools.ai.meetings.toolset import CALENDARS, meeting_accounts
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.core.auth import proposers
from baobab.tools.core.guard.wording import quote_text

MOST = 20
"""How many calendars an app has at most."""
_LAST_EVENTS = 100
_OFF = "The calendar was switched off."
_EXAMPLE = {"user_id": "5b2f7c9e-0000-4000-8000-000000000000", "toolkit": "google-calendar"}
_ADMINS = AppOwner("admin")
_columns, _events = meeting_calendars.c, meeting_calendar_events.c


@meeting_accounts.tool("GET /{app_id}/ai/meetings/calendars", access=AppOwner(), effect="read")
async def meetings_calendars_list(call: Call, app_id: AppId) -> MeetingCalendars:
    """List the calendars by which an app sends bots, and what was the matter when one could not be read."""
    query = select(meeting_calendars).where(_is_of_app(call, app_id)).order_by(_columns.created_at, _columns.id)
    async with call.services.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return {"calendars": [_describe(row) for row in rows]}


@meeting_accounts.tool("GET /{app_id}/ai/meetings/calendar-events", access=AppOwner(), effect="read", taints=True)
async def meetings_calendar_events(call: Call, app_id: AppId) -> CalendarEvents:
    """List the calls that an app's calendars have within a day, and what became of earlier ones."""
    of_app = is_of(meeting_calendar_events, payer_of(call).organisation_id, app_id)
    query = select(meeting_calendar_events).where(of_app).order_by(_events.starts_at.desc(), _events.id.desc())
    async with call.services.database.reading() as connection:
        rows = (await connection.execute(query.limit(_LAST_EVENTS))).all()
    return {"events": [_describe_event(row) for row in rows]}


@meeting_accounts.tool(
    "PUT /{app_id}/ai/meetings/calendars",
    access=_ADMINS,
    effect="write",
    raises=CALENDARS,
    audit=Audit("ai_meetings.calendar", category="ai", action="update", resource="meeting_calendar"),
    rest=Rest(examples=_EXAMPLE),
    guard=Guard(grants=True),
)
async def meetings_calendars_set(
    call: Call,
    app_id: AppId,
    user_id: CalendarUser,
    toolkit: CalendarToolkit,
    account: CalendarAccount | None = None,
    enabled: Annotated[bool, Field(description="Whether bots are sent; false keeps the settings.")] = True,
    title_contains: TitleText | None = None,
    unanswered: Annotated[bool, Field(description="Whether invitations that the user has not accepted count.")] = False,
    recording: Recording = "mp4",
    transcript: bool = True,
    bot_name: BotName = DEFAULT_NAME,
    most_a_day: Annotated[MostADay, Field(description="How many bots it sends in 24 hours at most.")] = 10,
) -> MeetingCalendar:
    """Have a bot join each call in the connected calendar of a user of the app, a minute before it begins.

    One bot is sent for each event and time. What is moved, cancelled or declined gets none. All of it is done and paid
    with the caller's right, until they lose it. A user has one such setting for each service; this replaces it.

    account: which account, where the user has several of the service: its alias, name or id; null for the only one.
    title_contains: only events whose title has this text; null for all.
    transcript: whether what is said is transcribed.
    """
    require_provider(call)
    if enabled:
        await _require_connected(call, app_id, user_id, toolkit, account)
    payer, now = payer_of(call), call.now
    await call.hold(payer.organisation_id)
    of_app = _is_of_app(call, app_id)
    query = select(meeting_calendars).where(of_app, _columns.app_user_id == user_id, _columns.toolkit == toolkit)
    earlier = (await call.execute(query)).first()
    values: dict[str, Any] = {
        "account": account,
        "enabled": enabled,
        "reason": None,
        "title_contains": title_contains,
        "unanswered": unanswered,
        "recording": recording or None,
        "transcript": transcript,
        "bot_name": bot_name,
        "most_a_day": most_a_day,
        "maker": proposers.encode_caller(call.caller),
        "since": earlier.since if earlier is not None and earlier.enabled else now,
        "next_at": now,
        "failure": None,
        "failed_at": None,
        "updated_at": now,
    }
    if earlier is None:
        count = (await call.execute(select(func.count()).where(of_app))).scalar_one()
        if count >= MOST:
            raise TooManyCalendars(details={"limit": MOST})
        key = {"id": call.services.ids.uuid_at(now), "organisation_id": payer.organisation_id, "app_id": app_id}
        owner = {"app_user_id": user_id, "toolkit": toolkit, "created_at": now}
        statement: Any = insert(meeting_calendars).values(**key, **owner, **values)
    else:
        statement = update(meeting_calendars).where(_columns.id == earlier.id).values(**values)
    row = (await call.execute(statement.returning(meeting_calendars))).one()
    if not enabled:
        await _give_up(call, row)
    call.audit.resource_id = row.id
    call.audit.data |= {"user_id": user_id, "toolkit": toolkit, "enabled": enabled, "most_a_day": most_a_day}
    return _describe(row)


async def _preview_delete(call: Call, app_id: AppId, calendar_id: CalendarId) -> str:
    async with call.services.database.reading() as connection:
        row = await _get(connection.execute, call, app_id, calendar_id)
    return f"No bot would be sent any more by the {row.toolkit} calendar of the user {quote_text(row.app_user_id)}."


@meeting_accounts.tool(
    "DELETE /{app_id}/ai/meetings/calendars/{calendar_id}",
    access=_ADMINS,
    effect="destructive",
    raises=(CalendarNotFound,),
    audit=Audit("ai_meetings.calendar_delete", category="ai", action="delete", resource="meeting_calendar"),
    guard=Guard(preview=_preview_delete),
)
async def meetings_calendars_delete(call: Call, app_id: AppId, calendar_id: CalendarId) -> CalendarDeleted:
    """Delete a setting by which bots are sent. Bots that are in a call stay in it."""
    row = await _get(call.execute, call, app_id, calendar_id)
    await _give_up(call, row)
    await call.execute(delete(meeting_calendars).where(_columns.id == row.id))
    call.audit.resource_id = row.id
    return {"id": row.id, "deleted": True}


async def _get(execute: Any, call: Call, app_id: str, calendar_id: str) -> Row:
    query = select(meeting_calendars).where(_is_of_app(call, app_id), _columns.id == calendar_id)
    row = (await execute(query)).first()
    if row is None:
        raise CalendarNotFound
    return row


async def _give_up(call: Call, row: Row) -> None:
    """Plans nothing more for a calendar. What it has sent is remembered, so that no other one sends it again."""
    is_planned = (_events.calendar_id == row.id, _events.status == "planned")
    values = {"status": "cancelled", "message": _OFF, "updated_at": call.now}
    await call.execute(update(meeting_calendar_events).where(*is_planned).values(**values))


async def _require_connected(call: Call, app_id: str, user_id: str, toolkit: str, account: str | None) -> None:
    """Raises CalendarNotConnected, or the error of the tool that lists connected accounts."""
    caller = act_in(call.caller, call.require_app().organisation_id)
    arguments = {"app_id": app_id, "toolkit": toolkit, "userId": user_id}
    tool = call.registry.find("integrations_connections")
    answer, _ = await call.registry.run(tool, arguments, caller, call.context, unit=call.unit)
    for row in answer["connections"]:
        if row["status"] == "active" and account in (None, row["id"], row["alias"], row["account_name"]):
            return
    raise CalendarNotConnected(details={"user_id": user_id, "toolkit": toolkit})


def _is_of_app(call: Call, app_id: str) -> Any:
    return is_of(meeting_calendars, payer_of(call).organisation_id, app_id)


def _describe(row: Row) -> MeetingCalendar:
    return {
        "id": row.id,
        "user_id": row.app_user_id,
        "toolkit": row.toolkit,
        "account": row.account,
        "enabled": row.enabled,
        "reason": row.reason,
        "title_contains": row.title_contains,
        "unanswered": row.unanswered,
        "recording": row.recording or False,
        "transcript": row.transcript,
        "bot_name": row.bot_name,
        "most_a_day": row.most_a_day,
        "account_id": row.maker.get("account_id"),
        "key_id": row.maker.get("key_id"),
        "read_at": row.read_at,
        "failure": row.failure,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _describe_event(row: Row) -> CalendarEventView:
    return {
        "id": row.id,
        "calendar_id": row.calendar_id,
        "title": row.title,
        "meeting_url": row.meeting_url,
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "status": row.status,
        "bot_id": row.bot_id,
        "message": row.message,
    }
