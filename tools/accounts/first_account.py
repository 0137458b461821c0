"""Does what needs only the data folder: creates the first account, and sets an account's password."""

from sqlalchemy import insert, select, update

from baobab.runtime.passwords import hash_password
from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import INSTALLATION, DatabaseConnection
from baobab.tools.accounts.errors import NoAccountYet
from baobab.tools.accounts.tables import refresh_tokens
from baobab.tools.core import Account, Services
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.membership import UNNAMED, create_organisation_row, select_memberships
from baobab.tools.core.auth.passwords import check_password
from baobab.tools.core.auth.tables import accounts, api_keys

EMAIL = "owner@localhost"


async def ensure_first_account(services: Services, bootstrap_key: str | None) -> str | None:
    """Creates the first account, its personal organisation and its key, if there is no account yet.

    Returns the key's text if this call created the account, else None. A given bootstrap key belongs to the first
    account afterwards in either case, unless it was revoked. Several workers may call this at once.
    """
    async with services.database.writing(lock=INSTALLATION) as connection:
        account_id = await _oldest(connection)
        if account_id is None:
            key = bootstrap_key or keys.plaintext(services.ids)
            await _keep(connection, services, key, await _create(connection, services))
            return key
        if bootstrap_key and not await connection.scalar(
            select(api_keys.c.id).where(api_keys.c.digest == digest_token(bootstrap_key))
        ):
            await _keep(connection, services, bootstrap_key, account_id)
        return None


async def first_account(services: Services) -> Account:
    """Returns the first account in its personal organisation; commands that have the data folder act as this account.

    Raises NoAccountYet.
    """
    async with services.database.reading() as connection:
        account_id = await _oldest(connection)
        if account_id is None:
            raise NoAccountYet
        return Account(account_id, (await connection.execute(select_memberships(account_id).limit(1))).one().id)


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
        is_live = (refresh_tokens.c.account_id == account.id, refresh_tokens.c.revoked_at.is_(None))
        end_sessions = update(refresh_tokens).where(*is_live).values(revoked_at=services.clock.now())
        await connection.execute(end_sessions)
    return str(account.email)


async def _oldest(connection: DatabaseConnection) -> str | None:
    oldest = select(accounts.c.id).order_by(accounts.c.created_at, accounts.c.id).limit(1)
    account_id: str | None = await connection.scalar(oldest)
    return account_id


async def _create(connection: DatabaseConnection, services: Services) -> str:
    account_id = services.ids.uuid()
    account = {"id": account_id, "email": EMAIL, "name": "Owner", "created_at": services.clock.now()}
    await connection.execute(insert(accounts), account)
    await create_organisation_row(connection.execute, services, UNNAMED, account_id, personal=True)
    return account_id


async def _keep(connection: DatabaseConnection, services: Services, key: str, account_id: str) -> None:
    home = (await connection.execute(select_memberships(account_id).limit(1))).one()
    row = keys.key_row(services, key, "first key", ["*"], organisation_id=home.id, account_id=account_id)
    await connection.execute(insert(api_keys), row)
