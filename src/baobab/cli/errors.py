"""The errors of commands: each is one line for the person at the terminal."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from baobab.settings import SettingsError

T = TypeVar("T")


class CommandError(click.ClickException):
    """An error that is shown as one line on standard error; the exit status is 1."""


def run_work(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, with its errors as `translate_errors` turns them."""
    return translate_errors(lambda: asyncio.run(work))


def translate_errors(work: Callable[[], T]) -> T:
    """Calls `work` and turns errors that an operator can fix into a CommandError of one line."""
    from baobab.region_stores import RegionUnavailable
    from baobab.storage.backup.errors import BackupError
    from baobab.storage.identity import StoreLost
    from baobab.storage.kv.errors import StoreUnavailable
    from baobab.storage.secrets import SecretUnreadable
    from baobab.storage.sql.database import DatabaseUnavailable
    from baobab.storage.sql.migrate import SchemaTooNew
    from baobab.storage.transfer.errors import TransferRefused
    from baobab.tools.core.errors import BaobabError

    try:
        return work()
    except BaobabError as exc:
        raise CommandError(f"{exc.message} {exc.remedy}") from exc
    except (
        BackupError,
        RegionUnavailable,
        SchemaTooNew,
        SecretUnreadable,
        SettingsError,
        StoreLost,
        TransferRefused,
    ) as exc:
        raise CommandError(str(exc)) from exc
    except DatabaseUnavailable as exc:
        raise CommandError(f"the database does not open: {exc.reason}") from exc
    except StoreUnavailable as exc:
        raise CommandError(f"the key-value store does not open: {exc}") from exc
    except (FileExistsError, NotADirectoryError) as exc:
        raise CommandError(
            f"{exc.filename}: a file is where a folder is needed. Move it, or choose a folder with --data."
        ) from exc
    except IsADirectoryError as exc:
        raise CommandError(f"{exc.filename}: a folder is where a file is needed. Move it away.") from exc
    except OSError as exc:
        raise CommandError(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": ")) from exc
