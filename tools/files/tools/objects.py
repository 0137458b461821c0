"""/storage/{app_id}: announce an upload, list files, ask for their addresses, say who sees them, delete them."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import select, update

from baobab.tools.core import AppId, Audit, Call, EndUser, Guard, Rest, one_of
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.listing import Listing
from baobab.tools.files import quota
from baobab.tools.files.access import OF_RUNNING_APP, is_own, is_readable, note_files
from baobab.tools.files.errors import ContentTypeRefused, FileNotFound, FileTooLarge, QuotaExceeded, TooManyUploads
from baobab.tools.files.foresight import list_deletion
from baobab.tools.files.schemas import (
    ContentType,
    Download,
    FileId,
    Filename,
    ResourceInfo,
    SizeBytes,
    StoredFile,
    Upload,
)
from baobab.tools.files.signed_urls import (
    DOWNLOAD_SECONDS,
    UPLOAD_SECONDS,
    build_download_url,
    build_thumbnail_url,
    build_upload_url,
)
from baobab.tools.files.storing import build_object_key, delete_file, describe, find_row, is_file, reserve
from baobab.tools.files.tables import FREEZES, PENDING, files_table
from baobab.tools.files.thumbnails import may_have_thumbnail
from baobab.tools.files.toolset import TUS, files

_columns = files_table.c
RESERVING = (ContentTypeRefused, FileTooLarge, QuotaExceeded, TooManyUploads)


@files.tool(
    "POST /upload",
    access=OF_RUNNING_APP,
    effect="write",
    raises=RESERVING,
    audit=Audit("storage.upload", category="storage", action="create", resource="file"),
    rest=Rest(examples={"filename": "baobab.png", "contentType": "image/png", "sizeBytes": 2048}),
    guard=Guard(widens={"public": one_of([True])}),
)
async def files_upload(
    call: Call,
    app_id: AppId,
    filename: Filename,
    contentType: ContentType,
    sizeBytes: SizeBytes,
    public: bool = False,
) -> Upload:
    """Begin to upload a file of any size: returns an address to send its bytes to.

    Send exactly `sizeBytes` bytes there with the method `put` and the same Content-Type, and begin within five minutes.
    The file is listed once its bytes have arrived. It belongs to the user who uploads it; with a key of the app, to the
    app itself. For up to 1 MiB, op:files_put is easier: it takes the content itself.

    public: whether every signed-in user of the app may download it.
    """
    async with FREEZES.writing(call) as unit:
        row, usage = await reserve(
            call,
            unit,
            filename=filename,
            content_type=contentType,
            size=sizeBytes,
            public=public,
        )
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": filename, "size_bytes": sizeBytes, "public": public}
    return {
        "uploadUrl": build_upload_url(call, app_id, row.id, contentType, sizeBytes),
        "objectKey": build_object_key(row),
        "objectId": row.id,
        "expiresIn": UPLOAD_SECONDS,
        "_meta": {"resource_info": quota.describe_usage(call.require_app(), usage)},
    }


@files.tool(
    "GET /objects",
    access=OF_RUNNING_APP,
    effect="read",
    listing=Listing("files", is_bare=True, continues=("cursor", "id")),
    taints=True,
)
async def files_list(
    call: Call,
    app_id: AppId,
    limit: Annotated[int, Field(ge=1, le=100)] = 100,
    cursor: FileId | None = None,
) -> list[StoredFile]:
    """List files, newest first: with a key of the app all of them, as a user your own.

    limit: how many at most.
    cursor: the id of the last file of the previous page.
    """
    conditions = [_columns.app_id == app_id, ~PENDING, *is_own(call.caller)]
    whole_query = query = select(files_table).where(*conditions)
    if cursor is not None:
        query = query.where(_columns.id < cursor)
    async with call.reading() as execute:
        rows = (await execute(query.order_by(_columns.id.desc()).limit(limit))).all()
        await count_list(call, execute, whole_query, is_all=cursor is None and len(rows) < limit)
    await note_files(call, *rows)
    return [describe(row) for row in rows]


@files.tool(
    "GET /usage",
    access=OF_RUNNING_APP,
    effect="read",
)
async def files_usage(call: Call, app_id: AppId) -> ResourceInfo:
    """Read how many bytes an app's files use, and how many they may use."""
    async with call.reading() as execute:
        usage = await quota.read_usage(execute, app_id, call.now)
        description = quota.describe_usage(call.require_app(), usage)
        if isinstance(call.caller, EndUser):
            description["user_used_bytes"] = await quota.read_user_usage(execute, app_id, call.caller.user_id, call.now)
            description["user_limit_bytes"] = quota.compute_user_limit(call.require_app())
    return description


@files.tool(
    "GET /download/{object_id}",
    access=OF_RUNNING_APP,
    effect="read",
    raises=(FileNotFound,),
    taints=True,
)
async def files_download(call: Call, app_id: AppId, object_id: FileId) -> Download:
    """Get an address at which anybody can read a file for an hour; for a picture, also one of its thumbnail."""
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, *is_readable(call))
    if row is None:
        raise FileNotFound
    await note_files(call, row)
    return {
        "downloadUrl": build_download_url(call, app_id, object_id),
        "filename": row.filename,
        "expiresIn": DOWNLOAD_SECONDS,
        "thumbnailUrl": build_thumbnail_url(call, app_id, object_id) if may_have_thumbnail(row) else None,
    }


@files.tool(
    "PATCH /objects/{object_id}",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(FileNotFound,),
    audit=Audit("storage.update", category="storage", action="update", resource="file"),
    rest=Rest(examples={"public": True}),
    guard=Guard(widens={"public": one_of([True])}),
)
async def files_update(call: Call, app_id: AppId, object_id: FileId, public: bool) -> StoredFile:
    """Change who may download a file. Existing addresses of it stay valid until they expire.

    public: whether every signed-in user of the app may download it.
    """
    conditions = (*is_file(app_id, object_id), ~PENDING, *is_own(call.caller))
    async with FREEZES.writing(call) as unit:
        update_result = await unit.execute(
            update(files_table).where(*conditions).values(public=public).returning(files_table)
        )
        row = update_result.first()
    if row is None:
        raise FileNotFound
    call.audit.resource_id = object_id
    call.audit.data |= {"filename": row.filename, "public": public}
    return describe(row)


async def _preview_deletion(call: Call, app_id: str, object_id: str) -> Preview:
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, *is_own(call.caller))
    if row is None:
        raise FileNotFound
    text = f"Deletes the file {escape_name(row.filename)} of {row.size_bytes} bytes for ever."
    return Preview(text, await list_deletion(call, app_id, object_id))


@files.tool(
    "DELETE /{object_id}",
    access=OF_RUNNING_APP,
    effect="destructive",
    raises=(FileNotFound,),
    audit=Audit("storage.delete", category="storage", action="delete", resource="file"),
    rest=Rest(status=204, also=("/objects/{object_id}", "/uploads/{object_id}"), headers=TUS),
    guard=Guard(preview=_preview_deletion, as_app=AsApp(fills=("object_id",))),
)
async def files_delete(call: Call, app_id: AppId, object_id: FileId) -> None:
    """Delete a file for ever, or cancel an upload that has not arrived. Its space is free at once."""
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, object_id, *is_own(call.caller))
        if row is None:
            raise FileNotFound
        await delete_file(call.services, unit, row, call.require_app().organisation_id)
    call.audit.resource_id = object_id
    call.audit.data |= {"filename": row.filename, "size_bytes": row.size_bytes}
