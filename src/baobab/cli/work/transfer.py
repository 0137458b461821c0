"""`baobab transfer`: moves an installation from files to servers (Postgres, Valkey, S3), or back."""

import contextlib
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import select

import baobab.composition  # noqa: F401 - brings the tables of the runtime; those of the domains come with toolsets()
from baobab import tools
from baobab.addresses import KvPlace
from baobab.cli.installation import TRANSFER_NOTE
from baobab.settings import Settings, load_settings
from baobab.storage.copies import write_note
from baobab.storage.data.store import DataStore
from baobab.storage.data.stores import data_store_at
from baobab.storage.kv.engine import Engine
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.errors import KvError
from baobab.storage.objects.errors import ObjectError
from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at
from baobab.storage.secrets import write_private
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.databases import POSTGRES, SQLITE, database_at
from baobab.storage.transfer import entries, mark, objects, rows
from baobab.storage.transfer.errors import TransferRefused
from baobab.storage.transfer.source import build_source
from baobab.storage.transfer.survey import Survey
from baobab.storage.transfer.trial import TrialNotPossible, open_trial
from baobab.storage.vectors.extension import offers_vectors
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.tables import apps
from baobab.tools.data.exchange.copying import copy_tables, find_difference, find_vector_column, survey_tables

_MOST_NAMED = 3
"""The tables of which a row is named if source and target differ."""


@dataclass(frozen=True)
class _Side:
    rows: Database
    entries: entries.EntrySource
    objects: ObjectStore | None
    """None if the objects stay where they are."""
    tables: DataStore

    async def survey(self, *, tokens: bool) -> Survey:
        return Survey(
            await rows.survey(self.rows),
            await entries.survey(self.entries, with_tokens=tokens),
            await objects.survey(self.objects) if self.objects else {},
            await survey_tables(self.tables, await self.list_apps()),
        )

    async def list_apps(self) -> list[str]:
        async with self.rows.reading() as connection:
            return list((await connection.execute(select(apps.c.id).order_by(apps.c.id))).scalars())


def target_settings(
    here: Settings, to: str, *, kv: KvPlace, valkey_url: str | None, objects_url: str | None
) -> Settings:
    """Returns the settings of the installation after the transfer. to: `postgresql://...`, or a folder.

    Raises TransferRefused if it is neither, SettingsError if an address is wrong.
    """
    if to.startswith(POSTGRES):
        return load_settings(data=here.data, database_url=to, kv=kv, valkey_url=valkey_url, objects_url=objects_url)
    if "://" in to:
        raise TransferRefused("--to must be postgresql://USER:PASSWORD@HOST:PORT/NAME, or a folder")
    if valkey_url or kv == "valkey":
        raise TransferRefused(
            "an installation on files keeps its key-value store there too; leave --valkey and --kv out"
        )
    objects = here.objects_url if objects_url is None else objects_url
    return load_settings(data=Path(to), database_url="", valkey_url="", kv="database", objects_url=objects)


async def transfer(here: Settings, there: Settings, *, dry_run: bool, print_line: Callable[[str], None]) -> None:
    """Copies everything to the target, checks that all of it arrived, and only then makes the target usable.

    here, there: the settings of the installation before and after. print_line: receives lines for people. Raises
    TransferRefused, whose message is one line that says what is wrong and what to do.
    """
    # Loading the toolsets registers the tables of all domains.
    tuple(tools.toolsets())
    _require_source(here, there)
    instant = time.time()
    # Valkey stores idempotency tokens in its own way.
    tokens = here.kv == there.kv == "database"
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(translate_errors("the transfer was interrupted; run the same command again to continue"))
        old, new = stack.enter_context(_open_objects(here, there))
        source = await stack.enter_async_context(_open_source(here, lambda: instant, old))
        target = await stack.enter_async_context(_open_target_rows(there))
        source_survey = await source.survey(tokens=tokens)
        for line in (*source_survey.render_lines(), *await _list_left_behind(here, source)):
            print_line(line)
        if not tokens:
            await require_finished(source.rows)
        with translate_errors("the target"):
            is_resumed = await mark.is_begun(target, source_survey.fingerprint)
        await _require_vectors(source, source_survey, target)
        if not is_resumed:
            await _require_no_foreign_objects(new)
        if dry_run:
            if there.kv == "valkey":
                async with open_entries("the target's", _build_engine(there, lambda: instant)) as target_entries:
                    await _require_no_foreign_entries(target_entries, source_survey if is_resumed else Survey({}, {}))
            await _try_rows(source, source_survey, there, print_line)
            print_line("Nothing was changed. The target can be reached and is ready for the transfer.")
            return
        target_entries = await stack.enter_async_context(
            open_entries("the target's", _build_engine(there, lambda: instant))
        )
        target_tables = data_store_at(target, there.tables_folder(there.region))
        stack.push_async_callback(target_tables.close)
        target_side = _Side(target, target_entries, new, target_tables)
        await _require_no_foreign_entries(target_entries, source_survey if is_resumed else Survey({}, {}))
        if not is_resumed:
            with translate_errors("the target"):
                await mark.begin_transfer(target, source_survey.fingerprint)
        await _copy_rows(source, target_side)
        await entries.copy(source.entries, target_entries, source_survey.entries)
        if old and new:
            await objects.copy(old, new)
        target_survey = await target_side.survey(tokens=tokens)
        if differences := await _describe_differences(source, source_survey, target_side, target_survey):
            raise TransferRefused(
                f"source and target differ in: {differences}; empty the target and begin again, and if it says the same"
                " then, change or delete what it names"
            )
        _keep_secret(here, there)
        await mark.finish_transfer(target)
    _note_transfer(here, there)
    print_line("Verified.")
    for line in _list_next_steps(here, there):
        print_line(line)


async def _copy_rows(source: _Side, target: _Side) -> None:
    """Copies the installation's rows and the apps' tables."""
    await rows.copy(source.rows, target.rows)
    for app_id in await source.list_apps():
        with translate_errors(f"the tables of {app_id}"):
            await copy_tables(source.tables, target.tables, app_id)


async def _try_rows(source: _Side, source_survey: Survey, there: Settings, print_line: Callable[[str], None]) -> None:
    """Copies the rows into an empty database beside the target. Raises TransferRefused if there is a value that it does
    not take, or does not give back. Prints a line if the account may create no database.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            with translate_errors("the trial"):
                database, folder = await stack.enter_async_context(open_trial(there.rows_url))
        except TrialNotPossible as exc:
            print_line(f"The values were not tried, because no database could be created for that: {exc}.")
            return
        tables = data_store_at(database, folder / "tables")
        stack.push_async_callback(tables.close)
        trial = _Side(database, source.entries, None, tables)
        await _copy_rows(source, trial)
        trial_survey = replace(
            source_survey,
            rows=await rows.survey(database),
            tables=await survey_tables(tables, await trial.list_apps()),
        )
        if differences := await _describe_differences(source, source_survey, trial, trial_survey):
            raise TransferRefused(
                f"the target would not hold the same in: {differences}; change or delete what it names"
            )
        print_line("Every row was tried in a database like the target, which is gone again.")


async def _describe_differences(source: _Side, source_survey: Survey, target: _Side, target_survey: Survey) -> str:
    """Returns what differs, with a row of each of the first tables; empty if nothing does."""
    if differences := source_survey.list_differences(target_survey):
        named_rows = await _name_rows(source, target, *source_survey.list_differing_tables(target_survey))
        return f"{', '.join(differences)}{named_rows}"
    return ""


async def _name_rows(source: _Side, target: _Side, tables: Sequence[str], tables_of_apps: Sequence[str]) -> str:
    """Names one row of each of the first tables that differ."""
    keys = {name: await rows.find_difference(source.rows, target.rows, name) for name in tables[:_MOST_NAMED]}
    for name in tables_of_apps[:_MOST_NAMED]:
        app_id, _, table = name.partition(".")
        keys[name] = await find_difference(source.tables, target.tables, app_id, table)
    first_rows = "; ".join(f"{name}: {key}" for name, key in keys.items() if key is not None)
    return f" (the first rows: {first_rows})" if first_rows else ""


def _require_source(here: Settings, there: Settings) -> None:
    if not here.secret_key and not here.secret_file.is_file():
        raise TransferRefused(f"there is no installation in {here.data}: {here.secret_file.name} is missing")
    if here.rows_url.startswith(SQLITE) == there.rows_url.startswith(SQLITE):
        raise TransferRefused(
            "both sides are on files: copy the folder with `baobab backup` and `baobab restore`"
            if there.rows_url.startswith(SQLITE)
            else "only an installation on files can be moved to Postgres, and BAOBAB_DATABASE_URL names a server; "
            "unset BAOBAB_DATABASE_URL, or copy a Postgres database with pg_dump"
        )
    if not here.rows_url.startswith(SQLITE):
        return
    if here.kv == "valkey":
        raise TransferRefused(
            "the rows are in files and the key-value store is in Valkey; bring them together first, by "
            "`baobab transfer --kv database`"
        )
    if not here.kv_folder(here.region).is_dir():
        raise TransferRefused(f"{here.kv_folder(here.region)} is missing; is BAOBAB_REGION right?")


async def _require_vectors(source: _Side, survey: Survey, target: Database) -> None:
    """Raises TransferRefused if the source holds vectors and the target has no type for them."""
    if await offers_vectors(target):
        return
    digest = survey.rows.get("rag_vectors")
    holder = "documents" if digest is not None and digest.count else None
    holder = holder or await find_vector_column(source.tables, await source.list_apps())
    if holder is not None:
        raise TransferRefused(
            f"the target lacks the extension pgvector (0.7 or later), and the source holds vectors ({holder}); "
            "install it there"
        )


async def _require_no_foreign_entries(target: Engine, ours: Survey) -> None:
    """ours: what an interrupted transfer may have copied already."""
    space = await entries.find_foreign_space(target, ours.entries)
    if space is not None:
        raise TransferRefused(f"the target's key-value store already holds data (space {space})")


async def _require_no_foreign_objects(target: ObjectStore | None) -> None:
    if target and not await objects.is_empty(target):
        raise TransferRefused("the target's object store already holds objects")


@contextlib.asynccontextmanager
async def _open_source(
    here: Settings, clock: Callable[[], float], kept_objects: ObjectStore | None
) -> AsyncIterator[_Side]:
    source_database = build_source(here.rows_url)
    try:
        # Opened before the entries, since its lock keeps servers out of both.
        with translate_errors("the source"):
            await source_database.open()
        engine = _build_engine(here, clock)
        async with open_entries("the source's", engine):
            tables = data_store_at(source_database, here.tables_folder(here.region))
            try:
                yield _Side(source_database, engine, kept_objects, tables)
            finally:
                await tables.close()
    finally:
        await source_database.close()


@contextlib.asynccontextmanager
async def _open_target_rows(there: Settings) -> AsyncIterator[Database]:
    if there.rows_url.startswith(SQLITE):
        there.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = database_at(there.rows_url)
    try:
        with translate_errors("the target"):
            await database.open()
        yield database
    finally:
        await database.close()


class EntryReader(entries.EntrySource, Protocol):
    """A key-value store that a transfer opens and reads."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


E = TypeVar("E", bound=EntryReader)


@contextlib.asynccontextmanager
async def open_entries(owner: str, engine: E) -> AsyncIterator[E]:
    """Raises TransferRefused if the store does not open. owner: the beginning of its name for people."""
    try:
        with translate_errors(f"{owner} key-value store"):
            await engine.open()
        yield engine
    finally:
        await engine.close()


@contextlib.contextmanager
def _open_objects(here: Settings, there: Settings) -> Iterator[tuple[ObjectStore | None, ObjectStore | None]]:
    """Yields the object stores of source and target, or None and None if they are the same store."""
    if here.objects_url == there.objects_url and (here.objects_url or here.data == there.data):
        yield None, None
        return
    # Unfinished copies must not be in the source.
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
def translate_errors(subject: str) -> Iterator[None]:
    """Turns the errors of a store into TransferRefused, with one line that begins with `subject`."""
    try:
        yield
    except DatabaseUnavailable as exc:
        raise TransferRefused(f"{subject}: {exc.reason}") from exc
    except (KvError, ObjectError) as exc:
        raise TransferRefused(f"{subject}: {exc}") from exc


def _build_engine(settings: Settings, clock: Callable[[], float]) -> Engine:
    folder = settings.kv_folder(settings.region)
    return engine_at(folder, settings.rows_url, settings.valkey_url, clock, settings.kv)


async def require_finished(source: Database) -> None:
    """Raises TransferRefused if an approved call is unfinished: without its tokens, it could be executed a
    second time.
    """
    async with source.reading() as connection:
        approval_id = await connection.scalar(select(approvals.c.id).where(approvals.c.status == "approved").limit(1))
    if approval_id is not None:
        raise TransferRefused(
            f"approved call {approval_id} is not finished; start the server until it is, then stop it"
        )


async def _list_left_behind(here: Settings, source: _Side) -> list[str]:
    """Returns a line for each thing in the folder that the transfer does not copy."""
    own = here.kv_folder(here.region)
    regions = sorted(folder.name for folder in own.parent.iterdir() if folder != own) if own.parent.is_dir() else []
    has_unmoved_objects = (
        source.objects is None and not here.objects_url and (here.data / "objects" / here.region).is_dir()
    )
    return [
        *(["Left behind: the objects stay where they are; give --objects to move them"] if has_unmoved_objects else []),
        *(
            f"Left behind: table {name}, which this version does not know"
            for name in await rows.find_unknown_tables(source.rows)
        ),
        *(f"Left behind: region {name}, which has stores of its own" for name in regions),
    ]


def _list_next_steps(here: Settings, there: Settings) -> list[str]:
    if there.rows_url.startswith(SQLITE):
        return [
            "Start it without BAOBAB_DATABASE_URL, BAOBAB_VALKEY_URL and BAOBAB_KV, "
            f"with BAOBAB_DATA={there.data} and BAOBAB_REGION={there.region}.",
            f"Secrets are encrypted with the same keys as before; the keys are in {there.secret_file}.",
            *([f"Files stay where they are: BAOBAB_OBJECTS_URL={there.objects_url}"] if there.objects_url else []),
            "The data on the servers is unchanged. Start nothing on it any more.",
        ]
    keys = "as it is now" if here.secret_key else f"the keys in {here.secret_file}, newest first, commas in between"
    urls = {"DATABASE_URL": there.rows_url, "VALKEY_URL": there.valkey_url, "OBJECTS_URL": there.objects_url}
    return [
        "Secrets are encrypted with the same keys as before. Every server needs, from now on:",
        *(f"  BAOBAB_{name}={_without_password(url)}" for name, url in urls.items() if url),
        *(["  BAOBAB_KV=valkey"] if there.kv == "valkey" else []),
        f"  BAOBAB_REGION={there.region}",
        f"  BAOBAB_SECRET_KEY   {keys}",
        f"The data in {here.data} is unchanged. Start nothing on it any more.",
    ]


def _keep_secret(here: Settings, there: Settings) -> None:
    """Writes the keys that encrypt secrets into the folder of an installation on files."""
    if there.rows_url.startswith(SQLITE) and not there.secret_file.exists():
        keys = here.secret_key.split(",") if here.secret_key else here.secret_file.read_text().split()
        write_private(there.secret_file, "\n".join(key.strip() for key in keys) + "\n")


def _note_transfer(here: Settings, there: Settings) -> None:
    """Leaves a note in the folder that was copied, for whoever starts a server on it by mistake."""
    if here.rows_url.startswith(SQLITE):
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        text = f"`baobab transfer` copied this folder to {_without_password(there.rows_url)} on {day}.\n"
        (here.data / TRANSFER_NOTE).write_text(text)
        write_note(here.data, f"`baobab transfer` has moved it to {_without_password(there.rows_url)}")


def _without_password(url: str) -> str:
    parts = urlsplit(re.sub("(password=)[^&]*", r"\1***", url))
    if parts.password is None:
        return parts.geturl()
    return parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}").geturl()
