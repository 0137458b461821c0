"""`baobab transfer`: an installation on files becomes one on servers, or the other way round."""

import contextlib
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import select

import baobab.composition  # noqa: F401 - brings the tables of the runtime; those of the domains come with toolsets()
from baobab import tools
from baobab.settings import Settings, load_settings
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.databases import POSTGRES, SQLITE, database_at
from baobab.storage.kv.engine import Engine
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.errors import KvError
from baobab.storage.objects.errors import ObjectError
from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from baobab.storage.secrets import write_private
from baobab.storage.transfer import entries, mark, objects, rows
from baobab.storage.transfer.errors import TransferRefused
from baobab.storage.transfer.source import build_source
from baobab.storage.transfer.survey import Survey
from baobab.tools.approvals.tables import approvals


@dataclass(frozen=True)
class _Side:
    rows: Database
    entries: Engine
    objects: ObjectStore | None
    """None where they stay in the place they are in."""

    async def survey(self, *, tokens: bool) -> Survey:
        return Survey(
            await rows.survey(self.rows),
            await entries.survey(self.entries, with_tokens=tokens),
            await objects.survey(self.objects) if self.objects else {},
        )


def target_settings(here: Settings, to: str, *, valkey_url: str | None, objects_url: str | None) -> Settings:
    """The settings of an installation after it has been carried over. to: `postgresql://...`, or a folder.

    TransferRefused where it is neither, SettingsError where an address is wrong.
    """
    if to.startswith(POSTGRES):
        return load_settings(data=here.data, database_url=to, valkey_url=valkey_url, objects_url=objects_url)
    if "://" in to:
        raise TransferRefused("--to must be postgresql://USER:PASSWORD@HOST:PORT/NAME, or a folder")
    if valkey_url:
        raise TransferRefused("an installation on files keeps its keys there; leave --valkey out")
    objects = here.objects_url if objects_url is None else objects_url
    return load_settings(data=Path(to), database_url="", valkey_url="", objects_url=objects)


async def transfer(here: Settings, there: Settings, *, dry_run: bool, print_line: Callable[[str], None]) -> None:
    """Carry everything over, look whether all of it arrived, and only then make the target usable.

    here, there: the settings of the installation before and after. tell: is given lines for people.
    TransferRefused says in one line why not, and what to do.
    """
    # A table is known when the domain that owns it is loaded.
    tuple(tools.toolsets())
    _require_source(here, there)
    instant = time.time()
    # Where all entries are in Valkey it has its own way of keeping them.
    tokens = not any(side.valkey_url and side.kv_durable == "valkey" for side in (here, there))
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_translate_errors("it was interrupted, and goes on when the same command is run again"))
        old, new = stack.enter_context(_open_objects(here, there))
        source = await stack.enter_async_context(_open_source(here, lambda: instant, old))
        target = await stack.enter_async_context(_open_target_rows(there))
        found = await source.survey(tokens=tokens)
        for line in (*found.render_lines(), *await _list_left_behind(here, source)):
            print_line(line)
        if not tokens:
            await _require_finished(source.rows)
        with _translate_errors("the target"):
            is_resumed = await mark.is_begun(target, found.fingerprint)
        if dry_run:
            print_line("Nothing was changed: the target can be reached, and is ours to fill.")
            return
        target_entries = await stack.enter_async_context(
            _open_entries("the target's", _build_engine(there, lambda: instant))
        )
        target_side = _Side(target, target_entries, new)
        await _require_no_foreign_data(target_side, found if is_resumed else Survey({}, {}))
        if not is_resumed:
            with _translate_errors("the target"):
                await mark.begin_transfer(target, found.fingerprint)
        await rows.copy(source.rows, target)
        await entries.copy(source.entries, target_entries, found.entries)
        if old and new:
            await objects.copy(old, new)
        differences = found.list_differences(await target_side.survey(tokens=tokens))
        if differences:
            named = ", ".join(differences)
            raise TransferRefused(f"not the same on both sides: {named}; empty the target and begin again")
        _keep_secret(here, there)
        await mark.finish_transfer(target)
    print_line("Verified.")
    for line in _list_next_steps(here, there):
        print_line(line)


def _require_source(here: Settings, there: Settings) -> None:
    if not here.secret_key and not here.secret_file.is_file():
        raise TransferRefused(f"there is no installation in {here.data}: {here.secret_file.name} is missing")
    if here.rows_url.startswith(SQLITE) == there.rows_url.startswith(SQLITE):
        raise TransferRefused(
            "both sides are on files: copy the folder with `baobab backup` and `baobab restore`"
            if there.rows_url.startswith(SQLITE)
            else "only an installation on files can be carried to Postgres, and BAOBAB_DATABASE_URL names a server; "
            "unset BAOBAB_DATABASE_URL, or copy a Postgres database with pg_dump"
        )
    if not here.rows_url.startswith(SQLITE):
        return
    if here.valkey_url:
        raise TransferRefused(
            "an installation whose rows are on files and whose keys are in Valkey cannot be carried over; "
            "unset BAOBAB_VALKEY_URL if that is not so"
        )
    if not _kv_folder(here).is_dir():
        raise TransferRefused(f"{_kv_folder(here)} is missing; is BAOBAB_REGION right?")


async def _require_no_foreign_data(target: _Side, ours: Survey) -> None:
    """ours: what may be there already."""
    space = await entries.find_foreign_space(target.entries, ours.entries)
    if space is not None:
        raise TransferRefused(f"the target's key-value store holds data already (space {space})")
    if target.objects and not ours.rows and not await objects.is_empty(target.objects):
        raise TransferRefused("the target's place for objects holds some already")


@contextlib.asynccontextmanager
async def _open_source(here: Settings, clock: Callable[[], float], kept: ObjectStore | None) -> AsyncIterator[_Side]:
    source_database = build_source(here.rows_url)
    try:
        # Before the entries are opened: it is what keeps servers out of both.
        with _translate_errors("the source"):
            await source_database.open()
        async with _open_entries("the source's", _build_engine(here, clock)) as engine:
            yield _Side(source_database, engine, kept)
    finally:
        await source_database.close()


@contextlib.asynccontextmanager
async def _open_target_rows(there: Settings) -> AsyncIterator[Database]:
    if there.rows_url.startswith(SQLITE):
        there.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = database_at(there.rows_url)
    try:
        with _translate_errors("the target"):
            await database.open()
        yield database
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def _open_entries(whose: str, engine: Engine) -> AsyncIterator[Engine]:
    try:
        with _translate_errors(f"{whose} key-value store"):
            await engine.open()
        yield engine
    finally:
        await engine.close()


@contextlib.contextmanager
def _open_objects(here: Settings, there: Settings) -> Iterator[tuple[ObjectStore | None, ObjectStore | None]]:
    """Both stores where they are two, and nothing to do where they are one."""
    if here.objects_url == there.objects_url and (here.objects_url or here.data == there.data):
        yield None, None
        return
    # What is on its way must not lie in the source.
    with tempfile.TemporaryDirectory(prefix="baobab-transfer-") as drafts:
        try:
            stores = _build_store(here, Path(drafts)), _build_store(there, Path(drafts))
        except ValueError as exc:
            raise TransferRefused(str(exc)) from exc
        yield stores


def _build_store(settings: Settings, drafts: Path) -> ObjectStore:
    return store_at(
        settings.objects_url, drafts if settings.objects_url else settings.data / "objects" / settings.region
    )


@contextlib.contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Tell what a store said in one line."""
    try:
        yield
    except DatabaseUnavailable as exc:
        raise TransferRefused(f"{what}: {exc.reason}") from exc
    except (KvError, ObjectError) as exc:
        raise TransferRefused(f"{what}: {exc}") from exc


def _build_engine(settings: Settings, clock: Callable[[], float]) -> Engine:
    return engine_at(_kv_folder(settings), settings.rows_url, settings.valkey_url, clock, settings.kv_durable)


def _kv_folder(settings: Settings) -> Path:
    return settings.data / "kv" / settings.region


async def _require_finished(source: Database) -> None:
    """An approved call may have been begun, and only its tokens keep what it has done from being done again."""
    async with source.reading() as connection:
        begun = await connection.scalar(select(approvals.c.id).where(approvals.c.status == "approved").limit(1))
    if begun is not None:
        raise TransferRefused(f"approved call {begun} is not finished; start the server until it is, then stop it")


async def _list_left_behind(here: Settings, source: _Side) -> list[str]:
    """What is in the folder and not carried over, so that nobody believes it was."""
    kept = _kv_folder(here).parent
    regions = sorted(folder.name for folder in kept.iterdir() if folder != _kv_folder(here)) if kept.is_dir() else []
    unmoved = source.objects is None and not here.objects_url and (here.data / "objects" / here.region).is_dir()
    return [
        *(["Left behind: the objects stay where they are; give --objects to carry them over"] if unmoved else []),
        *(
            f"Left behind: table {name}, which this version does not know"
            for name in await rows.find_unknown_tables(source.rows)
        ),
        *(f"Left behind: region {name}, which has stores of its own" for name in regions),
    ]


def _list_next_steps(here: Settings, there: Settings) -> list[str]:
    if there.rows_url.startswith(SQLITE):
        return [
            f"Start it without BAOBAB_DATABASE_URL, with BAOBAB_DATA={there.data} and BAOBAB_REGION={there.region}.",
            f"Secrets are sealed as they were; the keys are in {there.secret_file}.",
            *([f"Files stay where they are: BAOBAB_OBJECTS_URL={there.objects_url}"] if there.objects_url else []),
            "What is on the servers is as it was. Start nothing on it any more.",
        ]
    keys = "as it is now" if here.secret_key else f"the keys in {here.secret_file}, newest first, commas in between"
    named = {"DATABASE_URL": there.rows_url, "VALKEY_URL": there.valkey_url, "OBJECTS_URL": there.objects_url}
    return [
        "Secrets are sealed as they were. Every server needs, from now on:",
        *(f"  BAOBAB_{name}={_without_password(url)}" for name, url in named.items() if url),
        *([f"  BAOBAB_KV_DURABLE={there.kv_durable}"] if there.valkey_url else []),
        f"  BAOBAB_REGION={there.region}",
        f"  BAOBAB_SECRET_KEY   {keys}",
        f"What is in {here.data} is as it was. Start nothing on it any more.",
    ]


def _keep_secret(here: Settings, there: Settings) -> None:
    """Give an installation on files the keys that its secrets are sealed with."""
    if there.rows_url.startswith(SQLITE) and not there.secret_file.exists():
        keys = here.secret_key.split(",") if here.secret_key else here.secret_file.read_text().split()
        write_private(there.secret_file, "\n".join(key.strip() for key in keys) + "\n")


def _without_password(url: str) -> str:
    parts = urlsplit(re.sub("(password=)[^&]*", r"\1***", url))
    if parts.password is None:
        return parts.geturl()
    return parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}").geturl()
