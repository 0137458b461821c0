"""Jobs of the console."""

from sqlalchemy import delete, or_

from baobab.tools.console.tables import console_links, console_sessions
from baobab.tools.console.toolset import console
from baobab.tools.core.job import Job


@console.job(every=3600)
async def console_forget(job: Job) -> None:
    """Forget sessions and links that have ended."""
    now = job.services.clock.now()
    over = or_(console_sessions.c.expires_at <= now, console_sessions.c.revoked_at.is_not(None))
    async with job.services.database.writing(lock=None) as connection:
        await connection.execute(delete(console_sessions).where(over))
        await connection.execute(delete(console_links).where(console_links.c.expires_at <= now))
