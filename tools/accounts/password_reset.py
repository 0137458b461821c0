"""Setting a password by the data folder, which is the credential: an account's first, or one that was forgotten."""

from sqlalchemy import select, update

from baobab.tools.accounts import passwords
from baobab.tools.accounts.errors import NoAccountYet
from baobab.tools.accounts.tables import refresh_tokens
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.services import Services


async def set_password(services: Services, email: str | None, password: str) -> str:
    """Sets the password of an account, and ends its sessions; its e-mail address.

    email: left out, it is the first account. NoAccountYet where there is none, WeakPassword.
    """
    passwords.check(password)
    encoded = await passwords.encode(password)
    which = select(accounts.c.id, accounts.c.email).order_by(accounts.c.created_at, accounts.c.id).limit(1)
    if email is not None:
        which = which.where(accounts.c.email == email.lower())
    async with services.database.writing() as connection:
        account = (await connection.execute(which)).first()
        if account is None:
            raise NoAccountYet
        changed = update(accounts).where(accounts.c.id == account.id).values(password_hash=encoded)
        await connection.execute(changed)
        live = (refresh_tokens.c.account_id == account.id, refresh_tokens.c.revoked_at.is_(None))
        ended = update(refresh_tokens).where(*live).values(revoked_at=services.clock.now())
        await connection.execute(ended)
    return str(account.email)
