"""Access objects of files: who may do what with them.

Accounts of the app's organisation and keys of the app see every file. A user of the app sees their own files, and may
download those that are open to every user. A file that a caller may not see is treated as if it did not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from baobab.tools.core import AppNotFound, BaobabError, Call, Caller, EndUser
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.errors import AppPaused, UrlExpired, UrlRefused
from baobab.tools.core.guard.own_prefixes import is_covered, list_prefixes
from baobab.tools.core.guard.read_text import ReadText
from baobab.tools.core.guard.texts import is_own_text
from baobab.tools.core.signed_urls import Method, require_signature
from baobab.tools.files.signed_urls import PICTURE_SUFFIX, THUMBNAIL_SUFFIX, build_content_path
from baobab.tools.files.tables import files_table, own_folders

_columns = files_table.c


@dataclass(frozen=True, slots=True)
class OfRunningApp:
    """The same as OfApp, while the app is not paused."""

    anonymous: bool = False
    credential: bool = True
    description: str = OF_APP.description
    raises: tuple[type[BaobabError], ...] = (*OF_APP.raises, AppPaused)

    def admits(self, caller: Caller) -> bool:
        return OF_APP.admits(caller)

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        await OF_APP.authorise(call, arguments)
        _require_running(call)


@dataclass(frozen=True, slots=True)
class BySignedUrl:
    """Any caller with an address that this server has signed, with or without a credential."""

    method: Method
    suffix: str = ""
    """What follows the address of the file's content."""
    bound_names: tuple[str, ...] = ()
    """The arguments that the signature covers."""
    anonymous: bool = True
    credential: bool = False
    description: str = "Whoever has the signed address; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, UrlRefused, UrlExpired, AppPaused)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        path = build_content_path(call.require_app().id, str(arguments.get("object_id"))) + self.suffix
        require_signature(call, self.method, path, arguments, *self.bound_names)
        _require_running(call)


@dataclass(frozen=True, slots=True)
class OfVisitors:
    """Everybody, while the app is not paused."""

    anonymous: bool = True
    credential: bool = False
    description: str = "Everybody, while the file is published; no credential."
    raises: tuple[type[BaobabError], ...] = (AppNotFound, AppPaused)

    def admits(self, caller: Caller) -> bool:
        return True

    async def authorise(self, call: Call, arguments: Mapping[str, Any]) -> None:
        _require_running(call)


OF_RUNNING_APP = OfRunningApp()
BY_UPLOAD_URL = BySignedUrl("PUT", bound_names=("type", "size"))
BY_DOWNLOAD_URL = BySignedUrl("GET", bound_names=("download",))
BY_THUMBNAIL_URL = BySignedUrl("GET", suffix=THUMBNAIL_SUFFIX)
BY_PICTURE_URL = BySignedUrl("GET", suffix=PICTURE_SUFFIX, bound_names=("size", "shape", "format"))
VISITORS = OfVisitors()


async def note_files(call: Call, *rows: Any) -> None:
    """Notes whose texts files are, for the run that has read them."""
    if call.context.step is None:
        return
    async with call.stores.database.reading() as connection:
        folders = [row.prefix for row in await list_prefixes(connection.execute, own_folders, call.require_app().id)]
    for row in rows:
        in_own_place = is_covered(row.filename, folders)
        is_own_file = row.user_id is None and is_own_text(row.writer, in_own_place=in_own_place)
        call.note_texts(ReadText("file", row.filename, is_own_file, user_id=row.user_id))
    call.note_texts()


def owner_of(caller: Caller) -> str | None:
    """Returns the user whose file a caller uploads; None for a file of the app itself."""
    return caller.user_id if isinstance(caller, EndUser) else None


def is_own(caller: Caller) -> list[ColumnElement[bool]]:
    """Returns the conditions for files that a caller may list and delete."""
    return [_columns.user_id == caller.user_id] if isinstance(caller, EndUser) else []


def is_readable(call: Call) -> list[ColumnElement[bool]]:
    """Returns the conditions for files that a caller may download."""
    caller = call.caller
    if not isinstance(caller, EndUser) or call.require_app().storage_config.get("publicReadEnabled", False):
        return []
    return [(_columns.user_id == caller.user_id) | _columns.public]


def _require_running(call: Call) -> None:
    app = call.require_app()
    if app.is_paused:
        raise AppPaused(app.paused_reason)
