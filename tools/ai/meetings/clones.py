"""What a clone of an app has of its meetings: nothing. Where what happens in them goes, its owner says anew."""

from collections.abc import Iterable

from sqlalchemy import select

from baobab.tools.ai.meetings.tables import meeting_settings
from baobab.tools.core import Services
from baobab.tools.core.app_clones import Ability, Place, never_clone


async def _list_abilities(services: Services, place: Place) -> Iterable[Ability]:
    query = select(meeting_settings).where(meeting_settings.c.app_id == place.app_id)
    async with services.database.reading() as connection:
        rows = (await connection.execute(query)).all()
    abilities = []
    for row in rows:
        if row.forward_url is not None:
            says = f"What happens in meetings is sent to {row.forward_url}."
            abilities.append(Ability("meeting_webhook", "meetings", says, tool="meetings_webhook_set"))
        if row.transcripts is not None:
            says = "Transcripts of meetings are passed on when they are finished."
            abilities.append(Ability("meeting_transcripts", "meetings", says, tool="meetings_transcripts_set"))
    return abilities


CLONES = (
    *never_clone("history", "meeting_bots", "meeting_usage", "meeting_deliveries", "meeting_calendar_events"),
    *never_clone("credentials", "meeting_settings", list_abilities=_list_abilities),
    *never_clone("credentials", "meeting_calendars"),
)
