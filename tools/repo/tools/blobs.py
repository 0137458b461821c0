"""/v1/{app_id}/repo/blobs: the bytes of files, at signed addresses."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from pydantic import Field

from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.store import ObjectReader
from baobab.tools.core import AppId, Audit, Call, Mcp, PerAddress, Rest
from baobab.tools.core.errors import Damaged
from baobab.tools.core.signed_urls import Expires, Signature, build_signed_url
from baobab.tools.core.stream import Body, Stream
from baobab.tools.repo.access import BY_DOWNLOAD_URL, BY_UPLOAD_URL, READERS, build_blob_path
from baobab.tools.repo.contents import find_blobs, store_blob
from baobab.tools.repo.errors import BlobDiffers, BlobNotFound, BlobStoreFailed
from baobab.tools.repo.schemas import Blob, Blobs, Bytes, Sha256, StoredBlob
from baobab.tools.repo.tables import build_key
from baobab.tools.repo.toolset import repo

_DOWNLOAD_SECONDS = 3600
_LIMIT = PerAddress(3000, 60, per_app=True)


@repo.tool(
    "GET /blobs/{sha256}",
    access=READERS,
    effect="read",
    raises=(BlobNotFound,),
)
async def repo_blob(call: Call, app_id: AppId, sha256: Sha256) -> Blob:
    """Get the address of a blob, the bytes of a file in the repository. It is valid for an hour."""
    async with call.reading() as execute:
        blob_rows = await find_blobs(execute, app_id, [sha256])
    if not blob_rows:
        raise BlobNotFound
    return _describe(call, blob_rows[sha256])


@repo.tool(
    "POST /blobs/batch",
    access=READERS,
    effect="read",
    rest=Rest(examples={"shas": ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}),
)
async def repo_blobs(
    call: Call, app_id: AppId, shas: Annotated[list[Sha256], Field(max_length=1000, description="The contents.")]
) -> Blobs:
    """Get the addresses of up to 1000 blobs of the repository. Those that it does not have are left out."""
    async with call.reading() as execute:
        blob_rows = await find_blobs(execute, app_id, shas)
    return {"blobs": [_describe(call, blob_rows[digest]) for digest in dict.fromkeys(shas) if digest in blob_rows]}


@repo.tool(
    "PUT /blobs/{sha256}/content",
    access=BY_UPLOAD_URL,
    effect="write",
    raises=(BlobDiffers, BlobStoreFailed),
    limit=_LIMIT,
    audit=Audit("app.repo.store", action="create", resource="blob", tallied=True),
    rest=Rest(raw_body="content", query=("size", "expires", "signature")),
    mcp=Mcp(offered=False),
)
async def repo_blob_store(
    call: Call,
    app_id: AppId,
    sha256: Sha256,
    content: Body,
    size: Annotated[int, Field(ge=0, le=2**40)] = 0,
    expires: Expires = 0,
    signature: Signature = "",
) -> StoredBlob:
    """Send a blob to the address that op:repo_prepare answered. It is stored if its digest and length are right.

    content: the bytes.
    size: the prepared length in bytes.
    """
    if content.size is not None and content.size != size:
        raise BlobDiffers(details={"expected_bytes": size, "received_bytes": content.size})
    await store_blob(call, app_id, sha256, size, content.chunks)
    return {"sha256": sha256, "size": size}


@repo.tool(
    "GET /blobs/{sha256}/content",
    access=BY_DOWNLOAD_URL,
    effect="read",
    raises=(BlobNotFound, BlobStoreFailed, Damaged),
    limit=_LIMIT,
    rest=Rest(
        media_type="application/octet-stream",
        headers={"content-disposition": "attachment", "content-security-policy": "default-src 'none'; sandbox"},
        apart=True,
    ),
    mcp=Mcp(offered=False),
)
async def repo_blob_content(
    call: Call, app_id: AppId, sha256: Sha256, expires: Expires = 0, signature: Signature = ""
) -> Bytes:
    """Read a blob at the address that op:repo_blob answered."""
    async with call.reading() as execute:
        blob_rows = await find_blobs(execute, app_id, [sha256])
    if not blob_rows:
        raise BlobNotFound
    row = blob_rows[sha256]
    call.headers = [*(call.headers or ()), (b"content-length", b"%d" % row.size_bytes)]
    return Stream(_read(call, row), "application/octet-stream")


async def _read(call: Call, row: Any) -> AsyncGenerator[bytes, None]:
    # Opened with the first piece, so that an unread stream has nothing to close.
    if call.context.method == "HEAD" or not row.size_bytes:
        return
    reader: ObjectReader | None = None
    try:
        reader = await call.stores.objects.get(build_key(row.app_id, row.sha256, row.stored_as))
        if reader is None:
            raise Damaged("The bytes of this content are missing.")
        async for piece in reader:
            yield piece
    except StoreUnavailable as exc:
        raise BlobStoreFailed from exc
    except ObjectDamaged as exc:
        raise Damaged("The bytes of this content are damaged.") from exc
    finally:
        if reader is not None:
            await reader.aclose()


def _describe(call: Call, row: Any) -> Blob:
    path = build_blob_path(row.app_id, row.sha256)
    base_url = call.services.options.build_files_address(row.app_id)
    url = build_signed_url(call, "GET", path, _DOWNLOAD_SECONDS, base_url=base_url)
    return {"sha256": row.sha256, "size": row.size_bytes, "downloadUrl": url, "expiresIn": _DOWNLOAD_SECONDS}
