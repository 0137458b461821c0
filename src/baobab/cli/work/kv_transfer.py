"""`baobab transfer --kv`: moves the key-value stores of an installation between its databases and its Valkeys."""

import contextlib
import time
from collections.abc import Callable

from sqlalchemy import select

from baobab import tools
from baobab.addresses import KvPlace
from baobab.cli.work.transfer import open_entries, require_finished, translate_errors
from baobab.regions import Region
from baobab.settings import Settings
from baobab.storage.identity import SPACE, load_id, read_mark
from baobab.storage.kv.engine import Engine
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.valkey.contents import delete_entries
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.sql.database import Database
from baobab.storage.transfer import entries
from baobab.storage.transfer.errors import TransferRefused
from baobab.storage.transfer.source import build_source
from baobab.storage.transfer.survey import Survey
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.tools.moves.tables import moves_table


async def transfer_kv(settings: Settings, to: KvPlace, *, dry_run: bool, print_line: Callable[[str], None]) -> None:
    """Moves the key-value store of each region with a Valkey, compares it, and deletes what was moved where it was.

    Raises TransferRefused, whose message is one line that says what is wrong and what to do.
    """
    # Loading the toolsets registers the tables of all domains.
    tuple(tools.toolsets())
    regions = {name: place for name, place in settings.all_regions.items() if place.valkey_url}
    if not regions:
        raise TransferRefused("no region has a Valkey; set BAOBAB_VALKEY_URL to the one that holds keys")
    instant = time.time()
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(translate_errors("the transfer was interrupted; run the same command again to continue"))
        # Locked against servers, the installation's own database first.
        urls = dict.fromkeys([settings.rows_url, *(place.database_url for place in regions.values())])
        databases = {url: build_source(url) for url in urls}
        for database in databases.values():
            stack.push_async_callback(database.close)
            await database.open()
        own = databases[settings.rows_url]
        for name, place in regions.items():
            store = _RegionStore(settings, name, place, lambda: instant)
            await store.transfer(to, own, dry_run=dry_run, print_line=print_line)
    if dry_run:
        print_line("Nothing was changed.")
    elif to == "valkey":
        print_line("Start every server with BAOBAB_KV=valkey, and further regions with kv = 'valkey'.")
    else:
        print_line("Start every server without BAOBAB_KV, and without kv for further regions.")


class _RegionStore:
    """The key-value store of one region, in its database or in its Valkey."""

    def __init__(self, settings: Settings, name: str, place: Region, clock: Callable[[], float]) -> None:
        self._name = name
        self._place = place
        folder = settings.kv_folder(name)
        self._database = engine_at(folder, place.database_url, "", clock)
        self._valkey = ValkeyEngine(place.valkey_url, clock)

    async def transfer(
        self, to: KvPlace, own_rows: Database, *, dry_run: bool, print_line: Callable[[str], None]
    ) -> None:
        async with open_entries("the database's", self._database), open_entries("Valkey's", self._valkey):
            source = await self._find_source(await load_id(own_rows))
            target: Engine = self._database if to == "database" else self._valkey
            if source is not target:
                # The engines store idempotency tokens and the marks of frozen apps each in its own way.
                await require_finished(own_rows)
                await _require_no_move(own_rows)
            survey = Survey({}, await entries.survey(source, with_tokens=False))
            print_line(f"{self._name}: {next(survey.render_lines())}")
            if dry_run:
                return
            if source is not target:
                await self._copy(source, target, survey)
            elif source is self._valkey and await read_mark(self._database) is not None:
                raise TransferRefused(f"{self._name}: it is in Valkey already, and the database holds another one")
            await self._delete_rest(to)

    async def _find_source(self, installation_id: str | None) -> Engine:
        in_database, in_valkey = await read_mark(self._database), await read_mark(self._valkey)
        if not {in_database, in_valkey} <= {None, installation_id}:
            raise TransferRefused(f"{self._name}: its database or its Valkey belongs to another installation")
        if in_database is in_valkey is None:
            raise TransferRefused(f"the region {self._name} has no key-value store yet")
        # If both are marked, an earlier transfer was interrupted, and the settings say which one was in use.
        is_in_valkey = in_valkey is not None and (self._place.kv == "valkey" or in_database is None)
        return self._valkey if is_in_valkey else self._database

    async def _copy(self, source: Engine, target: Engine, survey: Survey) -> None:
        if source is self._database or await read_mark(target) is None:
            # The mark comes last: a store without it is not used.
            last = {SPACE: survey.entries[SPACE]}
            await entries.copy(source, target, {name: survey.entries[name] for name in survey.entries.keys() - last})
            await entries.copy(source, target, last)
        differences = survey.list_differences(Survey({}, await entries.survey(target, with_tokens=False)))
        if differences:
            raise TransferRefused(f"{self._name}: source and target differ in: {', '.join(differences)}")

    async def _delete_rest(self, to: KvPlace) -> None:
        """Deletes what the target does not use, its mark first."""
        try:
            if to == "database":
                await self._valkey.erase(SPACE)
                await delete_entries(self._place.valkey_url)
            else:
                await entries.erase(self._database, SPACE)
        except ValkeyUnavailable as exc:
            raise TransferRefused(f"Valkey: {exc.reason}; run the same command again") from exc


async def _require_no_move(own_rows: Database) -> None:
    """Raises TransferRefused while an app is being moved, which has frozen its keys."""
    async with own_rows.reading() as connection:
        query = select(moves_table.c.app_id).where(moves_table.c.completed_at.is_(None)).limit(1)
        app_id = await connection.scalar(query)
    if app_id is not None:
        raise TransferRefused(f"app {app_id} is being moved; start the server until that has ended, then stop it")
