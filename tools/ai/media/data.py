"""An app's generation jobs as a whole: what is moved with the app, and goes with it. Their files go with all others."""

from sqlalchemy import delete, insert, select

from baobab.tools.ai.media.tables import FREEZES, generation_jobs
from baobab.tools.core.stores import Stores


class GenerationData:
    async def freeze(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing() as connection:
            await FREEZES.freeze(connection.execute, stores.database.dialect, app_id)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing() as connection:
            await FREEZES.thaw(connection.execute, app_id)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        mine = generation_jobs.c.app_id == app_id
        async with source.database.reading() as connection:
            found = (await connection.execute(select(generation_jobs).where(mine))).mappings().all()
        async with dest.database.writing() as connection:
            await connection.execute(delete(generation_jobs).where(mine))
            if found:
                # The durable jobs stay behind; those that are not done are taken up there (sweeping.py).
                await connection.execute(insert(generation_jobs), [{**row, "worker": None} for row in found])

    async def erase(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing() as connection:
            await connection.execute(delete(generation_jobs).where(generation_jobs.c.app_id == app_id))
            await FREEZES.thaw(connection.execute, app_id)
