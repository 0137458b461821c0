"""/console/apps/{app}/meetings: an app's meeting bots, what they have recorded, and the events that were sent."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Feed, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core import BaobabError
from baobab.tools.core.stream import Stream

PATH = "/apps/{app}/meetings"
BOT = PATH + "/{bot}"
_SHOWN, _SHOWN_DELIVERIES = 20, 20
_CALENDARS = {"google-calendar": "Google Calendar", "outlook": "Outlook"}
_UNDER_WAY = ("joining", "waiting_room", "in_call", "recording", "ended")


async def show_meetings(visit: Visit) -> Context:
    app = await read_app(visit)
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    bots = await visit.call("meetings_list", app_id=app["id"], limit=_SHOWN, **cursor)
    deliveries = await visit.call("meetings_deliveries", app_id=app["id"], limit=_SHOWN_DELIVERIES)
    return {
        "app": app,
        "bots": bots["bots"],
        "following": bots["nextCursor"],
        "under_way": _UNDER_WAY,
        "deliveries": deliveries["deliveries"],
        "webhook": await visit.call("meetings_webhook_get", app_id=app["id"]),
        "transcripts": await visit.call("meetings_transcripts_get", app_id=app["id"]),
        **(await _list_targets(visit, app["id"])),
        **(await _list_calendars(visit, app["id"])),
    }


async def _list_calendars(visit: Visit, app_id: str) -> dict[str, Any]:
    """Lists the calendars by which bots are sent, what is in them, and the connected ones that could be set."""
    calendars = (await visit.call("meetings_calendars_list", app_id=app_id))["calendars"]
    events = (await visit.call("meetings_calendar_events", app_id=app_id))["events"] if calendars else []
    connections: list[dict[str, Any]] = []
    if visit.may("meetings_calendars_set"):
        for toolkit in _CALENDARS:
            connections += (await visit.call("integrations_connections", app_id=app_id, toolkit=toolkit))["connections"]
    names = {(row["app_user_id"], row["toolkit_slug"]): row["account_name"] for row in connections}
    return {
        "calendars": calendars,
        "calendar_events": events[:_SHOWN],
        "calendar_names": names,
        "connections": [row for row in connections if row["status"] == "active"],
        "toolkit_names": _CALENDARS,
    }


async def _list_targets(visit: Visit, app_id: str) -> dict[str, list[str]]:
    """Lists what transcripts can be passed on to, for those who may set it."""
    if not visit.may("meetings_transcripts_set"):
        return {"collections": [], "agents": []}
    try:
        collections = await visit.call("rag_collections_list", app_id=app_id)
        agents = (await visit.call("agents_list", app_id=app_id))["agents"]
    except BaobabError:
        # The app is paused; the page shows everything else.
        return {"collections": [], "agents": []}
    return {"collections": [row["name"] for row in collections], "agents": [row["name"] for row in agents]}


async def show_bot(visit: Visit) -> Context:
    app = await read_app(visit)
    names = {"app_id": app["id"], "bot_id": visit.parts["bot"]}
    bot = await visit.call("meetings_get", **names)
    passages: list[dict[str, Any]] = []
    is_missing = False
    if bot["transcriptUrl"] is not None:
        try:
            passages = (await visit.call("meetings_transcript", **names))["passages"]
        except BaobabError:
            # The provider does not answer now; the page shows everything else.
            is_missing = True
    title = f"Call of {bot['startedAt']:%d %B %Y}" if bot["startedAt"] else "Call"
    return {
        "app": app,
        "title": title,
        "bot": bot,
        "passages": passages,
        "transcript_is_missing": is_missing,
        "under_way": _UNDER_WAY,
        "media_url": bot["recordingUrl"],
    }


async def open_captions(visit: Visit) -> Stream:
    """Opens the transcript of a bot as captions for its recording."""
    names = {"app_id": visit.parts["app"], "bot_id": visit.parts["bot"]}
    captions = build_captions((await visit.call("meetings_transcript", **names))["passages"])

    async def send() -> AsyncGenerator[bytes, None]:
        yield captions.encode()

    return Stream(send(), "text/vtt")


def build_captions(passages: Sequence[Mapping[str, Any]]) -> str:
    """Returns passages as WebVTT, in which what people say cannot become a tag."""
    cues = ["WEBVTT"]
    for passage in passages:
        words = passage["words"]
        if words:
            spoken_text = f"{passage['participant']['name']}: {' '.join(word['text'] for word in words)}"
            safe_text = " ".join(spoken_text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
            cues.append(
                f"{_stamp(words[0]['start'])} --> {_stamp(max(words[-1]['end'], words[0]['start'] + 1))}\n{safe_text}"
            )
    return "\n\n".join(cues) + "\n"


def _stamp(seconds: float) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{milliseconds:03d}"


async def start(visit: Visit) -> str:
    url = visit.form.get("meetingUrl", "").strip()
    bot = await visit.call("meetings_start", app_id=visit.parts["app"], meetingUrl=url)
    return BOT.format(app=visit.parts["app"], bot=bot["id"])


async def stop(visit: Visit) -> str:
    await visit.call("meetings_stop", app_id=visit.parts["app"], bot_id=visit.parts["bot"])
    return BOT.format(**visit.parts)


async def resend(visit: Visit) -> str:
    app_id, delivery_id = visit.parts["app"], visit.parts["delivery"]
    await visit.call("meetings_deliveries_resend", app_id=app_id, delivery_id=delivery_id)
    return PATH.format(app=app_id)


async def set_transcripts(visit: Visit) -> str:
    await visit.call(
        "meetings_transcripts_set",
        app_id=visit.parts["app"],
        collection=visit.form.get("collection") or None,
        agent=visit.form.get("agent") or None,
        substrate="substrate" in visit.form,
    )
    return PATH.format(app=visit.parts["app"])


async def set_calendar(visit: Visit) -> str:
    """Sets a calendar: the form names it as `TOOLKIT USER ACCOUNT`."""
    toolkit, user_id, account = [*visit.form.get("calendar", "").split(" "), "", ""][:3]
    most = visit.form.get("most_a_day", "")
    await visit.call(
        "meetings_calendars_set",
        app_id=visit.parts["app"],
        user_id=user_id,
        toolkit=toolkit,
        account=account or None,
        title_contains=visit.form.get("title_contains", "").strip() or None,
        unanswered="unanswered" in visit.form,
        most_a_day=int(most) if most.isascii() and most.isdigit() else 10,
    )
    return PATH.format(app=visit.parts["app"])


async def switch_calendar(visit: Visit) -> str:
    """Switches a calendar on or off, and leaves everything else as it was set."""
    app_id = visit.parts["app"]
    calendars = (await visit.call("meetings_calendars_list", app_id=app_id))["calendars"]
    for row in calendars:
        if row["id"] == visit.parts["calendar"]:
            names = ("user_id", "toolkit", "account", "title_contains", "unanswered", "recording", "transcript")
            settings = {name: row[name] for name in (*names, "bot_name", "most_a_day")}
            await visit.call("meetings_calendars_set", app_id=app_id, **settings, enabled=not row["enabled"])
    return PATH.format(app=app_id)


async def delete_calendar(visit: Visit) -> str:
    app_id = visit.parts["app"]
    await visit.call("meetings_calendars_delete", app_id=app_id, calendar_id=visit.parts["calendar"])
    return PATH.format(app=app_id)


PAGES = (
    Page(
        PATH,
        "Meetings",
        "meetings.html",
        show_meetings,
        tab="Meetings",
        tool="meetings_list",
        group="Agents",
        icon="users",
        rank=50,
    ),
    Page(BOT, "Call", "meeting.html", show_bot),
)
FORMS = (
    Form(PATH + "/start", start),
    Form(BOT + "/stop", stop),
    Form(PATH + "/transcripts", set_transcripts),
    Form(PATH + "/calendars", set_calendar),
    Form(PATH + "/calendars/{calendar}/switch", switch_calendar),
    Form(PATH + "/calendars/{calendar}/delete", delete_calendar),
    Form(PATH + "/deliveries/{delivery}/resend", resend),
)
FEEDS = (Feed(BOT + "/captions.vtt", open_captions),)
