"""/storage/{app_id}: announce an upload, list files, ask for their addresses, say who sees them, delete them."""

from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import ColumnElement, select, tuple_, update

from baobab.runtime.documents.thumbnails import PictureKind
from baobab.storage.sql.database import Execute
from baobab.tools.core import AppId, Audit, BadRequest, Call, EndUser, Guard, Rest, Text, one_of
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.listing import Listing
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.files import quota
from baobab.tools.files.access import OF_RUNNING_APP, is_own, is_readable, note_files
from baobab.tools.files.errors import (
    ContentTypeRefused,
    FileNotFound,
    FileTooLarge,
    PublishingRefused,
    QuotaExceeded,
    TooManyUploads,
)
from baobab.tools.files.foresight import list_deletion
from baobab.tools.files.names import has_prefix, is_direct, name_order
from baobab.tools.files.schemas import (
    ContentType,
    Download,
    FileId,
    Filename,
    FilenamePrefix,
    FileOrder,
    Metadata,
    MetadataName,
    PictureShape,
    PictureSize,
    ResourceInfo,
    SizeBytes,
    StoredFile,
    Upload,
)
from baobab.tools.files.signed_urls import (
    DOWNLOAD_SECONDS,
    LONGEST_SECONDS,
    PICTURE_SUFFIX,
    THUMBNAIL_SUFFIX,
    UPLOAD_SECONDS,
    build_reading_url,
    build_upload_url,
)
from baobab.tools.files.storing import (
    build_object_key,
    choose_writer,
    delete_file,
    describe,
    find_row,
    is_file,
    reserve,
)
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
    metadata: Metadata | None = None,
) -> Upload:
    """Begin to upload a file of any size: returns an address to send its bytes to.

    Send exactly `sizeBytes` bytes there with the method `put` and the same Content-Type, and begin within five minutes.
    The file is listed once its bytes have arrived. It belongs to the user who uploads it; with a key of the app, to the
    app itself. For up to 1 MiB, op:files_put is easier: it takes the content itself.

    public: whether every signed-in user of the app may download it.
    metadata: texts that are stored with it; null for none.
    """
    async with FREEZES.writing(call) as unit:
        row, usage = await reserve(
            call,
            unit,
            filename=filename,
            content_type=contentType,
            size=sizeBytes,
            public=public,
            metadata=metadata,
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
    raises=(BadRequest, CursorInvalid),
    listing=Listing("files", is_bare=True, continues=("cursor", "id")),
    taints=True,
)
async def files_list(
    call: Call,
    app_id: AppId,
    limit: Annotated[int, Field(ge=1, le=100)] = 100,
    cursor: FileId | None = None,
    prefix: FilenamePrefix | None = None,
    name: Annotated[str, Text(255, min_length=1)] | None = None,
    sort: FileOrder = "created",
    order: Literal["asc", "desc"] | None = None,
    direct: bool = False,
    metadata_name: MetadataName | None = None,
    metadata_value: Annotated[str, Text(500)] | None = None,
    published: bool | None = None,
) -> list[StoredFile]:
    """List files, newest first: with a key of the app all of them, as a user your own.

    limit: how many at most.
    cursor: the id of the last file of the previous page; null for the first page.
    prefix: only files whose names begin so, such as `photos/`; null for all.
    name: only files whose names contain this, in upper or lower case; null for all.
    sort: by when they were stored, by name or by size.
    order: null for the newest and the largest first, and for names from A.
    direct: leave out files in folders below the prefix; op:files_folders lists these.
    metadata_name: only files that have this name in their metadata; null for all.
    metadata_value: what that name says there; null for anything.
    published: only files that are published, or only others; null for both.
    """
    conditions = [_columns.app_id == app_id, ~PENDING, *is_own(call.caller), *has_prefix(prefix)]
    dialect = call.stores.database.dialect
    if name is not None:
        conditions.append(_columns.filename.icontains(name, autoescape=True))
    if direct:
        conditions.append(is_direct(dialect, prefix))
    if metadata_name is not None:
        said_value = _columns.metadata[metadata_name].as_string()
        conditions.append(said_value.is_not(None) if metadata_value is None else said_value == metadata_value)
    elif metadata_value is not None:
        raise BadRequest("`metadata_value` needs `metadata_name`.", remediation="Send both, or neither.")
    if published is not None:
        conditions.append(_columns.published_at.is_not(None) if published else _columns.published_at.is_(None))
    keys_by_order: dict[FileOrder, list[Any]] = {
        "name": [name_order(dialect)],
        "size": [_columns.size_bytes],
        "created": [],
    }
    keys = keys_by_order[sort]
    is_up = (order or ("asc" if sort == "name" else "desc")) == "asc"
    whole_query = query = select(files_table).where(*conditions)
    async with call.reading() as execute:
        if cursor is not None:
            query = query.where(await _is_behind(execute, app_id, cursor, sort, keys, is_up=is_up, call=call))
        ordering = [key.asc() if is_up else key.desc() for key in (*keys, _columns.id)]
        rows = (await execute(query.order_by(*ordering).limit(limit))).all()
        await count_list(call, execute, whole_query, is_all=cursor is None and len(rows) < limit)
    await note_files(call, *rows)
    return [describe(call, row) for row in rows]


async def _is_behind(
    execute: Execute, app_id: str, cursor: str, sort: FileOrder, keys: list[Any], *, is_up: bool, call: Call
) -> ColumnElement[bool]:
    """Returns the condition for files behind the one with the cursor's id. Raises CursorInvalid."""
    position: list[Any] = []
    if keys:
        # By time, an id says its place, even of a file that is gone. By name or size, the file does.
        row = await find_row(execute, app_id, cursor, ~PENDING, *is_own(call.caller))
        if row is None:
            raise CursorInvalid("The file of the cursor has been deleted.")
        position.append(row.filename if sort == "name" else row.size_bytes)
    place, behind = tuple_(*keys, _columns.id), tuple_(*position, cursor)
    return place > behind if is_up else place < behind


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
    guard=Guard(widens={"expires_in": lambda seconds: seconds > DOWNLOAD_SECONDS}),
)
async def files_download(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    expires_in: Annotated[int, Field(ge=60, le=LONGEST_SECONDS)] = DOWNLOAD_SECONDS,
    download_name: Filename | None = None,
    picture_size: PictureSize | None = None,
    picture_shape: PictureShape = "whole",
    picture_format: PictureKind | None = None,
) -> Download:
    """Get an address at which anybody can read a file for an hour; for a picture or a PDF, also one of its thumbnail.

    expires_in: the seconds for which the addresses are valid, from a minute to seven days.
    download_name: the name under which a browser saves the file instead of showing it; null to let its type decide.
    picture_size: the most pixels of a side of another small copy, at `pictureUrl`; null for none.
    picture_shape: `whole`, or `square` for the middle of the picture.
    picture_format: null for the smallest that the reader takes.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, *is_readable(call))
    if row is None:
        raise FileNotFound
    await note_files(call, row)
    is_drawn = may_have_thumbnail(row)
    return {
        "downloadUrl": build_reading_url(call, app_id, object_id, expires_in, download=download_name),
        "filename": row.filename,
        "expiresIn": expires_in,
        "thumbnailUrl": build_reading_url(call, app_id, object_id, expires_in, THUMBNAIL_SUFFIX) if is_drawn else None,
        "pictureUrl": build_reading_url(
            call,
            app_id,
            object_id,
            expires_in,
            PICTURE_SUFFIX,
            size=picture_size,
            shape=picture_shape,
            format=picture_format,
        )
        if is_drawn and picture_size is not None
        else None,
    }


@files.tool(
    "PATCH /objects/{object_id}",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(FileNotFound, PublishingRefused),
    audit=Audit("storage.update", category="storage", action="update", resource="file"),
    rest=Rest(examples={"public": True}),
    guard=Guard(widens={"public": one_of([True]), "published": one_of([True])}),
)
async def files_update(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    public: bool | None = None,
    filename: Filename | None = None,
    metadata: Metadata | None = None,
    published: bool | None = None,
) -> StoredFile:
    """Rename or move a file, change who may read it, or what is stored with it. Its bytes and its id stay.

    Existing addresses of it stay valid until they expire; the permanent one of a published file ends at once. Only
    those who run the app publish files.

    public: whether every signed-in user of the app may download it; null: unchanged.
    filename: its new name, in another folder to move it; null: unchanged.
    metadata: the texts that are stored with it from then on; null: unchanged, {}: none.
    published: whether everybody may read it at `published_url`, without a credential; null: unchanged.
    """
    changes: dict[str, Any] = {"public": public, "filename": filename, "metadata": metadata}
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes and published is None:
        raise BadRequest("Nothing is to be changed.", remediation="Send at least one of the fields of a file.")
    if published and isinstance(call.caller, EndUser):
        raise PublishingRefused
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, object_id, ~PENDING, *is_own(call.caller))
        if row is None:
            raise FileNotFound
        if filename is not None or metadata is not None:
            # Both are text, which whoever lists files reads.
            changes["writer"] = await choose_writer(call, unit.execute, row)
        if published is not None and published != (row.published_at is not None):
            changes["published_at"] = call.now if published else None
        if changes:
            query = update(files_table).where(*is_file(app_id, object_id)).values(changes).returning(files_table)
            row = (await unit.execute(query)).one()
    call.audit.resource_id = object_id
    call.audit.data |= {"filename": row.filename, "public": row.public, "published": row.published_at is not None}
    return describe(call, row)


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
