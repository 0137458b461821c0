"""Sets an account's first or forgotten password for whoever has the data folder: the command `baobab password`."""

from sqlalchemy import select, update

from baobab.runtime.passwords import hash_password
from baobab.tools.accounts.errors import NoAccountYet
from baobab.tools.accounts.tables import refresh_tokens
from baobab.tools.core.auth.passwords import check_password
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.services import Services


async def set_password(services: Services, email: str | None, password: str) -> str:
    """Sets the password of an account, ends its sessions and returns its e-mail address.

    email: None means the first account.
    Raises NoAccountYet and WeakPassword.
    """
    check_password(password)
    password_hash = await hash_password(password)
    query = select(accounts.c.id, accounts.c.email).order_by(accounts.c.created_at, accounts.c.id).limit(1)
    if email is not None:
        query = query.where(accounts.c.email == email.lower())
    async with services.database.writing(lock=None) as connection:
        account = (await connection.execute(query)).first()
        if account is None:
            raise NoAccountYet
        set_hash = update(accounts).where(accounts.c.id == account.id).values(password_hash=password_hash)
        await connection.execute(set_hash)
        live = (refresh_tokens.c.account_id == account.id, refresh_tokens.c.revoked_at.is_(None))
        end_sessions = update(refresh_tokens).where(*live).values(revoked_at=services.clock.now())
        await connection.execute(end_sessions)
    return str(account.email)
