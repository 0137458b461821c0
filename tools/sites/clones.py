"""What a clone of an app has of its site: the deployment that is live, with its files."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from sqlalchemy import and_, select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Services
from baobab.tools.core.app_clones import Ability, ClonedStore, CloneRefused, CloneRule, Cloning, Place, never_clone
from baobab.tools.core.app_data import copy_object
from baobab.tools.sites.tables import (
    build_content_key,
    site_contents,
    site_deployments,
    site_files,
    sites_table,
)

_MOST_READ = 2**20
"""The bytes of a file that are searched for secrets."""
_IS_CONTENT = and_(site_contents.c.app_id == site_files.c.app_id, site_contents.c.sha256 == site_files.c.sha256)


async def _read_live(place: Place) -> tuple[Any, Sequence[Any]]:
    """Returns the live deployment, and its files with their contents; None and nothing if there is none."""
    is_live = and_(site_deployments.c.app_id == sites_table.c.app_id, site_deployments.c.id == sites_table.c.live_id)
    query = select(site_deployments).join(sites_table, is_live).where(sites_table.c.app_id == place.app_id)
    columns = (site_files.c.path, *site_contents.columns)
    async with place.stores.database.reading() as connection:
        row: Any = (await connection.execute(query)).mappings().first()
        if row is None:
            return None, ()
        of_row = (site_files.c.app_id == place.app_id, site_files.c.deployment_id == row["id"])
        files = select(*columns).select_from(site_files).join(site_contents, _IS_CONTENT).where(*of_row)
        return row, (await connection.execute(files.order_by(site_files.c.path))).all()


async def _copy_live(cloning: Cloning) -> None:
    source, dest = cloning.source, cloning.dest
    row, files = await _read_live(source)
    if row is None:
        return
    deployment_id = cloning.derive_id(site_deployments.name, row["id"])
    contents = {file.sha256: file for file in files}
    for sha256, content in contents.items():
        for is_compressed in (False, True) if content.gzip_bytes is not None else (False,):
            is_there = await copy_object(
                source.stores.objects,
                build_content_key(source.app_id, content.stored_by, sha256, compressed=is_compressed),
                dest.stores.objects,
                build_content_key(dest.app_id, deployment_id, sha256, compressed=is_compressed),
            )
            if not is_there:
                raise CloneRefused("The template got another site while it was copied. Try the clone again.")
    sizes = ("sha256", "size_bytes", "gzip_bytes")
    content_rows = [
        {"app_id": dest.app_id, "stored_by": deployment_id, **{name: getattr(each, name) for name in sizes}}
        for each in contents.values()
    ]
    file_rows = [
        {"app_id": dest.app_id, "deployment_id": deployment_id, "path": file.path, "sha256": file.sha256}
        for file in files
    ]
    made_at = dict.fromkeys(("created_at", "started_at", "ended_at"), cloning.started_at)
    no_upload = {"upload_as": None, "upload_bytes": None}
    deployment_row = {**row, "app_id": dest.app_id, "id": deployment_id, "position": 1, **no_upload, **made_at}
    site_row = {"app_id": dest.app_id, "live_id": deployment_id, "variables": None}
    rows: tuple[tuple[Any, Any], ...] = (
        (site_contents, content_rows),
        (site_files, file_rows),
        (site_deployments, deployment_row),
        (sites_table, site_row),
    )
    async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
        for table, values in rows:
            if values:
                insert = build_upsert(dest.stores.database.dialect, table).on_conflict_do_nothing()
                await connection.execute(insert, values)


async def _list_abilities(place: Place) -> Iterable[Ability]:
    row, _ = await _read_live(place)
    if row is None:
        return ()
    says = f"Pages of {row['files_count']} files are shown to everybody at the app's own address, and run there."
    return (Ability("site", "live", says),)


async def _list_variables(services: Services, place: Place) -> Iterable[Ability]:
    del services
    async with place.stores.database.reading() as connection:
        query = select(sites_table.c.variables).where(sites_table.c.app_id == place.app_id)
        has_variables = await connection.scalar(query) is not None
    says = "The next build of its site has environment variables."
    return (Ability("build_variables", "site", says, tool="sites_env_change"),) if has_variables else ()


async def _read_texts(place: Place) -> AsyncIterator[tuple[str, str]]:
    _, files = await _read_live(place)
    for file in files:
        key = build_content_key(place.app_id, file.stored_by, file.sha256)
        reader = await place.stores.objects.get(key, start=0, end=_MOST_READ)
        if reader is None:
            continue
        try:
            content = b"".join([chunk async for chunk in reader])
        finally:
            await reader.aclose()
        if b"\0" not in content:
            yield f"{file.path} of the site", content.decode(errors="replace")


CLONES: tuple[CloneRule, ...] = (
    ClonedStore(
        "site",
        "the deployment that is live, with its files",
        {"copying_repo": _copy_live},
        tables=(sites_table.name, site_deployments.name, site_files.name, site_contents.name),
        list_abilities=_list_abilities,
        read_texts=_read_texts,
        is_code=True,
    ),
    *never_clone("history", "site_traffic"),
    *never_clone("credentials", "variables of builds", list_abilities=_list_variables),
)
