"""The work of `baobab migrate`."""

from collections.abc import Callable
from pathlib import Path

from baobab import tools
from baobab.cli.installation import load_settings
from baobab.composition import load_vault
from baobab.storage.clock import SystemClock
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import list_missing_revisions, migrate
from baobab.tools.core.registry import Registry
from baobab.waiting import survey_calls, survey_runs


async def migrate_database(data: Path | None, *, dry_run: bool, print_line: Callable[[str], None]) -> None:
    """Applies the missing migrations, and says whether this version can go on with what waits for a person.

    dry_run: only say it.
    """
    settings = load_settings(data=data)
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = database_at(settings.rows_url)
    await database.open()
    try:
        if dry_run:
            missing_revisions = await list_missing_revisions(database)
            outcome = f"Would apply {', '.join(missing_revisions)}." if missing_revisions else ""
        else:
            applied_revisions = await migrate(database)
            outcome = f"Applied {', '.join(applied_revisions)}." if applied_revisions else ""
        print_line(outcome or "The database is up to date.")
        vault, registry = load_vault(settings), Registry(tools.toolsets())
        calls = await survey_calls(database, vault, registry, SystemClock().now())
        for line in (calls + await survey_runs(database)).describe():
            print_line(line)
    finally:
        await database.close()
