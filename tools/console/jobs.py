"""Jobs of the console."""

from datetime import timedelta

from sqlalchemy import delete, or_

from baobab.tools.console.tables import console_links, console_sessions, console_spent_attempts
from baobab.tools.console.toolset import console
from baobab.tools.core import Job


@console.job(every=3600, in_copies=True)
async def console_forget(job: Job) -> None:
    """Forget sessions and links that have ended."""
    now = job.services.clock.now()
    is_over = or_(console_sessions.c.expires_at <= now, console_sessions.c.revoked_at.is_not(None))
    async with job.services.database.writing(lock=None) as connection:
        await connection.execute(delete(console_sessions).where(is_over))
        day_ago = now - timedelta(days=1)
        await connection.execute(delete(console_spent_attempts).where(console_spent_attempts.c.used_at < day_ago))
        await connection.execute(delete(console_links).where(console_links.c.expires_at <= now))
