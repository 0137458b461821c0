"""Many apps at once, without the time that creating each through an interface takes."""

from sqlalchemy import insert, select

from baobab.tools.core.auth.tables import apps
from tests.conftest import Baobab


async def create_many_apps(baobab: Baobab, count: int) -> None:
    """So many more apps of the first account, called `one-of-many-0` and so on."""
    model = await baobab.create_app()
    services = baobab.application.services
    async with services.database.writing() as connection:
        row = dict((await connection.execute(select(apps).where(apps.c.id == model))).mappings().one())
        own = [
            {"id": services.ids.app(), "name": f"one-of-many-{n}", "subdomain": f"one-of-many-{n}"}
            for n in range(count)
        ]
        secret = [{"anon_key": f"bb_anon_{n}", "function_key_digest": f"{n}"} for n in range(count)]
        await connection.execute(insert(apps), [{**row, **own[n], **secret[n]} for n in range(count)])
