"""Objects in an S3 bucket, or on a server with the same protocol.

The digest is stored as metadata, which S3 takes before the first byte. So a put collects the content in a local file
first, and sends it when it is complete. An upload that is slow, cancelled or too large never reaches the bucket. An
interrupted multipart upload leaves its parts there, invisible and charged for: give the bucket a lifecycle rule that
aborts incomplete uploads.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store as Bucket

from baobab.storage.cancellation import run_to_completion
from baobab.storage.objects.draft import Draft
from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.key import check_content_type, check_key, check_prefix, is_key
from baobab.storage.objects.store import ObjectInfo, clip_range

if TYPE_CHECKING:
    from obstore import BytesStream, GetOptions, GetResult
    from obstore.store import ClientConfig, RetryConfig, S3Config

# Some network failures are raised as OSError.
_FAILURES = (BaseError, OSError)
_CHUNK = 256 * 1024
# Content up to this size goes in one request. Parts are at least this large; S3 allows at most 10 000 of them.
_PART = 8 * 1024 * 1024
_MOST_PARTS = 9_000
_PARTS_AT_ONCE = 4
_PAGE = 1000
_DIGEST = "sha256"
# How often an object may be replaced between reading its size and reading a part of it.
_ATTEMPTS = 10
# A read may take as long as its caller takes; a server that is silent for a minute counts as gone.
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),
    "timeout": timedelta(days=1),
}
_RETRIES: RetryConfig = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 3},
}


class S3Store:
    """`drafts` is a folder for unfinished puts. Credentials come from the environment (AWS_*).

    `endpoint` is the address of a server other than Amazon's; `region` is us-east-1 unless the environment sets it.
    """

    def __init__(
        self,
        bucket: str,
        drafts: Path,
        *,
        prefix: str = "",
        endpoint: str = "",
        region: str = "",
        timeout: float = 5.0,
    ) -> None:
        config: S3Config = {}
        client = _CLIENT.copy()
        if region:
            config["region"] = region
        if endpoint:
            # Both names, because otherwise AWS_ENDPOINT_URL_S3 of the environment would win.
            config["endpoint"] = config["aws_endpoint_url_s3"] = endpoint
            client["allow_http"] = endpoint.startswith("http://")
        self._bucket = Bucket(
            bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_RETRIES
        )
        self._drafts = drafts
        self._timeout = timeout

    async def put(self, key: str, chunks: AsyncIterator[bytes], *, content_type: str, max_bytes: int) -> ObjectInfo:
        check_key(key)
        check_content_type(content_type)
        draft = Draft(self._new_file, max_bytes)
        try:
            await draft.receive(chunks)
            info = draft.build_info(content_type)
            await self._send(key, draft, info)
            return info
        finally:
            # Shielded, because a caller that is cancelled here would leave the file open.
            await run_to_completion(asyncio.to_thread(draft.drop))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> S3Reader | None:
        check_key(key)
        if start == 0 and end is None:
            whole = await self._get(key, {})
            return None if whole is None else S3Reader(key, whole)
        for _ in range(_ATTEMPTS):
            head = await self._get(key, {"head": True})
            if head is None:
                return None
            first, stop = clip_range(head.meta["size"], start, end)
            if first == stop:
                # S3 cannot answer an empty range.
                return S3Reader(key, head, length=0)
            options: GetOptions = {"range": (first, stop)}
            if head.meta["e_tag"] is not None:
                options["if_match"] = head.meta["e_tag"]
            try:
                part = await self._get(key, options)
            except PreconditionError:
                continue
            return None if part is None else S3Reader(key, part, length=stop - first)
        raise StoreUnavailable(f"{key!r} is replaced again and again while it is read")

    async def head(self, key: str) -> ObjectInfo | None:
        response = await self._get(check_key(key), {"head": True})
        return None if response is None else _parse_info(key, response)

    async def delete(self, key: str) -> bool:
        # S3's answer does not say whether the object existed.
        if await self._get(check_key(key), {"head": True}) is None:
            return False
        with _translate_errors():
            await obstore.delete_async(self._bucket, key)
        return True

    async def delete_all(self, prefix: str) -> int:
        count = 0
        after = ""
        while page := await self._page(check_prefix(prefix), after, _PAGE):
            with _translate_errors():
                await obstore.delete_async(self._bucket, page)
            count += len(page)
            after = page[-1]
        return count

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        return await self._page(prefix and check_prefix(prefix), after and check_key(after), limit)

    async def sweep(self) -> int:
        # Drafts are unnamed files, which vanish with the process.
        return 0

    async def check(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._page("", "", 1)
        except TimeoutError as exc:
            raise StoreUnavailable(f"no answer within {self._timeout:g} seconds") from exc

    def _new_file(self) -> BinaryIO:
        self._drafts.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._drafts)

    async def _send(self, key: str, draft: Draft, info: ObjectInfo) -> None:
        with draft.file() as file:
            await asyncio.to_thread(file.seek, 0)
            with _translate_errors():
                await obstore.put_async(
                    self._bucket,
                    key,
                    file,
                    attributes={"Content-Type": info.content_type, _DIGEST: info.sha256},
                    use_multipart=info.size > _PART,
                    chunk_size=max(_PART, -(-info.size // _MOST_PARTS)),
                    max_concurrency=_PARTS_AT_ONCE,
                )

    async def _get(self, key: str, options: GetOptions) -> GetResult | None:
        """Raises StoreUnavailable, and PreconditionError if the object has been replaced meanwhile."""
        try:
            return await obstore.get_async(self._bucket, key, options=options)
        except FileNotFoundError:
            return None
        except PreconditionError:
            raise
        except _FAILURES as exc:
            raise StoreUnavailable.because(exc) from exc

    async def _page(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        keys: list[str] = []
        with _translate_errors():
            pages = obstore.list(self._bucket, prefix or None, offset=after or None, chunk_size=limit)
            async for page in pages:
                # Skips the placeholder objects that consoles create for folders.
                keys += islice((entry["path"] for entry in page if is_key(entry["path"])), limit - len(keys))
                if len(keys) == limit:
                    break
        return keys


class S3Reader:
    """Reads one response of the server, as far as the caller wants."""

    def __init__(self, key: str, answer: GetResult, *, length: int | None = None) -> None:
        self.info = _parse_info(key, answer)
        self._key = key
        self._remaining = self.info.size if length is None else length
        # None if nothing is left to read, which releases the connection.
        self._stream: BytesStream | None = answer.stream(min_chunk_size=_CHUNK) if self._remaining else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._stream is None:
            raise StopAsyncIteration
        try:
            with _translate_errors():
                chunk = bytes(await anext(self._stream))
        except StopAsyncIteration:
            await self.aclose()
            if self._remaining:
                raise ObjectDamaged(self._key, "it ends too early") from None
            raise
        self._remaining -= len(chunk)
        return chunk

    async def aclose(self) -> None:
        self._stream = None


def _parse_info(key: str, answer: GetResult) -> ObjectInfo:
    digest, content_type = answer.attributes.get(_DIGEST), answer.attributes.get("Content-Type")
    if digest is None or content_type is None:
        raise ObjectDamaged(key, "it has no digest or no type")
    return ObjectInfo(answer.meta["size"], digest, content_type)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _FAILURES as exc:
        raise StoreUnavailable.because(exc) from exc
