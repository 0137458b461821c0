"""Jobs of OAuth."""

from datetime import timedelta

from sqlalchemy import delete, func, or_, select, update

from baobab.tools.core import Job
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.oauth.grants import (
    REFRESH_LIFETIME,
)
from baobab.tools.oauth.tables import oauth_clients, oauth_codes, oauth_refresh_tokens
from baobab.tools.oauth.toolset import oauth

UNUSED_CLIENTS_KEPT = timedelta(days=30)


@oauth.job(every=3600, in_copies=True)
async def oauth_forget(job: Job) -> None:
    """Delete expired codes, and registered clients that no person has decided about for 30 days."""
    now = job.services.clock.now()
    unused_clients = (oauth_clients.c.last_used_at.is_(None), oauth_clients.c.created_at < now - UNUSED_CLIENTS_KEPT)
    async with job.writing(last=True) as unit:
        await unit.execute(delete(oauth_codes).where(oauth_codes.c.expires_at < now))
        await unit.execute(delete(oauth_clients).where(*unused_clients))
        # A grant ends when its newest refresh token expires unused.
        newest = (
            select(oauth_refresh_tokens.c.key_id)
            .group_by(oauth_refresh_tokens.c.key_id)
            .having(func.max(oauth_refresh_tokens.c.created_at) < now - REFRESH_LIFETIME)
        )
        has_ended = api_keys.c.ends_at <= now
        expired_grants = (or_(api_keys.c.id.in_(newest), has_ended), api_keys.c.revoked_at.is_(None))
        await unit.execute(update(api_keys).where(*expired_grants).values(revoked_at=now))
        expired_tokens = (oauth_refresh_tokens.c.used_at < now - REFRESH_LIFETIME,)
        await unit.execute(delete(oauth_refresh_tokens).where(*expired_tokens))
