"""Forms of our own pages: limits on their size, and refusal of forms that another site sends."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from baobab.tools.core.errors import BadRequest, Forbidden

_MOST_FILES = 2000
MULTIPART = "multipart/form-data"


class ForeignForm(Forbidden):
    code = "CONSOLE_FOREIGN_FORM"
    summary = "This form does not come from a page of this session."
    remediation = "Open the page again and send the form from there; nothing has been done."


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuses a form that another site sends. Every browser says where a form comes from, so a request without that is
    not from a browser.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        raise ForeignForm
    if site is not None and site != "same-origin":
        raise ForeignForm
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise ForeignForm


async def read_form(request: Request, largest: int) -> dict[str, str]:
    """Returns the fields of a form. Raises BadRequest for one that is too large or of another type."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise BadRequest("A form is sent as application/x-www-form-urlencoded.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > largest:
            raise BadRequest("The form is too large.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200))
    except ValueError as exc:
        raise BadRequest("The form cannot be read.") from exc


@asynccontextmanager
async def read_form_with_files(
    request: Request, largest: int
) -> AsyncIterator[tuple[dict[str, str], list[UploadFile]]]:
    """Reads a form of multipart/form-data: its fields, and the files that were chosen, which are on disk meanwhile.

    largest: the most bytes of all of it. Raises BadRequest.
    """
    parser = MultiPartParser(
        request.headers, _count_bytes(request, largest), max_files=_MOST_FILES, max_fields=20, max_part_size=64 * 1024
    )
    try:
        form = await parser.parse()
    except MultiPartException as exc:
        raise BadRequest(f"The form cannot be read: {exc.message}") from exc
    try:
        items = form.multi_items()
        # An input in which nothing was chosen sends a file without a name.
        files = [value for _, value in items if isinstance(value, UploadFile) and value.filename]
        yield {name: value for name, value in items if isinstance(value, str)}, files
    finally:
        await form.close()


async def _count_bytes(request: Request, largest: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise BadRequest("The files are too large.")
        yield part


def name_source(address: str) -> str:
    """Returns where a redirect leads, in the form of a content security policy."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or "[" in parts.netloc:
        # A policy can name no IPv6 address.
        return f"{parts.scheme}:"
    return f"{parts.scheme}://{parts.netloc}"
