"""/storage/{app_id}/folders and /objects/delete: many files at once."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import func, select

from baobab.tools.core import AppId, Audit, Call, Guard, Rest
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.files.access import OF_RUNNING_APP, is_own
from baobab.tools.files.errors import ChoiceAmbiguous
from baobab.tools.files.names import has_prefix, split_folder
from baobab.tools.files.schemas import Deletion, FileId, FilenamePrefix, Folders
from baobab.tools.files.storing import delete_files
from baobab.tools.files.tables import FREEZES, PENDING, files_table
from baobab.tools.files.toolset import files

_MOST_FOLDERS = 1000
_MOST_DELETED = 500
_MOST_SHOWN = 10
_columns = files_table.c
FileIds = Annotated[list[FileId], Field(min_length=1, max_length=_MOST_DELETED, description="The ids of files.")]


@files.tool("GET /folders", access=OF_RUNNING_APP, effect="read", taints=True)
async def files_folders(call: Call, app_id: AppId, prefix: FilenamePrefix | None = None) -> Folders:
    """List the folders that the names of files form, with what is in each: all files with a key of the app, your own as
    a user.

    prefix: only the folders inside of this one, such as `photos/`; null for the outermost.
    """
    begin = prefix or ""
    conditions = [_columns.app_id == app_id, ~PENDING, *is_own(call.caller), *has_prefix(prefix)]
    async with call.reading() as execute:
        folder = split_folder(call.stores.database.dialect, begin)
        inner = select(folder.label("folder"), _columns.size_bytes).where(*conditions).subquery()
        sums = (func.count().label("files_count"), func.sum(inner.c.size_bytes).label("size_bytes"))
        query = select(inner.c.folder, *sums).where(inner.c.folder != "").group_by(inner.c.folder)
        rows = (await execute(query.order_by(inner.c.folder).limit(_MOST_FOLDERS + 1))).all()
    call.note_texts()
    return {
        "folders": [
            {"prefix": f"{begin}{row.folder}/", "files_count": row.files_count, "size_bytes": int(row.size_bytes)}
            for row in rows[:_MOST_FOLDERS]
        ],
        "has_more": len(rows) > _MOST_FOLDERS,
    }


def _choose(call: Call, app_id: str, ids: list[str] | None, prefix: str | None) -> list[Any]:
    """Returns the conditions for the files that are meant. Raises ChoiceAmbiguous."""
    if (ids is None) == (prefix is None):
        raise ChoiceAmbiguous
    conditions = [_columns.app_id == app_id, *is_own(call.caller)]
    if ids is not None:
        return [*conditions, _columns.id.in_(ids)]
    return [*conditions, ~PENDING, *has_prefix(prefix)]


async def _preview(call: Call, app_id: str, ids: list[str] | None, prefix: str | None) -> Preview:
    conditions = _choose(call, app_id, ids, prefix)
    async with call.reading() as execute:
        choice = select(files_table).where(*conditions).order_by(_columns.id).limit(_MOST_DELETED).subquery()
        counting = select(func.count(), func.coalesce(func.sum(choice.c.size_bytes), 0)).select_from(choice)
        count, size = (await execute(counting)).one()
        rows = (await execute(select(choice.c.filename).order_by(choice.c.id).limit(_MOST_SHOWN))).scalars().all()
    names = ", ".join(escape_name(name) for name in rows)
    more = f" and {count - len(rows)} more" if count > len(rows) else ""
    return Preview(f"Deletes {count} files of {size} bytes for ever: {names}{more}.")


@files.tool(
    "POST /objects/delete",
    access=OF_RUNNING_APP,
    effect="destructive",
    raises=(ChoiceAmbiguous,),
    audit=Audit("storage.delete", category="storage", action="delete", resource="file"),
    rest=Rest(examples={"prefix": "drafts/"}),
    guard=Guard(preview=_preview),
)
async def files_delete_many(
    call: Call, app_id: AppId, ids: FileIds | None = None, prefix: FilenamePrefix | None = None
) -> Deletion:
    """Delete up to 500 files for ever, by their ids or by the prefix of their names. Their space is free at once.

    With a key of the app, it deletes any file; as a user, only your own.

    ids: null if `prefix` chooses.
    prefix: null if `ids` choose. Call again while the answer says `has_more`.
    """
    conditions = _choose(call, app_id, ids, prefix)
    async with FREEZES.writing(call) as unit:
        query = select(_columns.id).where(*conditions).order_by(_columns.id).limit(_MOST_DELETED + 1)
        found_ids = (await unit.execute(query)).scalars().all()
        chosen_ids = found_ids[:_MOST_DELETED]
        rows = await delete_files(call, unit, [_columns.app_id == app_id, _columns.id.in_(chosen_ids)])
    deleted_ids = sorted(row.id for row in rows)
    call.audit.data |= {"prefix": prefix, "count": len(rows), "size_bytes": sum(row.size_bytes for row in rows)}
    call.audit.data["ids"] = deleted_ids[:100]
    return {
        "deleted_ids": deleted_ids,
        "missing_ids": sorted(set(ids or ()).difference(deleted_ids)),
        "has_more": len(found_ids) > _MOST_DELETED,
    }
