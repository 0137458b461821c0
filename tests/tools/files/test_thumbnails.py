"""Small copies of pictures, drawn in a process that can reach nothing."""

import asyncio
import io
import struct
import zlib
from typing import Any

import httpx
import pypdfium2 as pdfium
import pytest
from PIL import Image

from tests.jobs import run_due_jobs, run_job
from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


def draw_picture(kind: str, width: int = 800, height: int = 400, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 30)).save(file, kind, **options)
    return file.getvalue()


def build_bomb() -> bytes:
    """A PNG of a few KB that says that it has 40000 x 40000 pixels."""
    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1_000_000)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


async def fetch_thumbnail(app: FilesApp, file_id: str, user: str | None = None) -> httpx.Response:
    url = (await app.request("GET", f"/download/{file_id}", user)).json()["thumbnailUrl"]
    return await app.baobab.client.get(url)


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp", "avif", "tiff"])
async def test_a_picture_has_a_thumbnail(app: FilesApp, kind: str) -> None:
    file_id = await app.store(draw_picture(kind), contentType=f"image/{kind}")
    answer = await fetch_thumbnail(app, file_id)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
    assert answer.headers["x-content-type-options"] == "nosniff"
    with Image.open(io.BytesIO(answer.content)) as image:
        assert (image.format, image.size) == ("WEBP", (320, 160))
    assert (await fetch_thumbnail(app, file_id)).content == answer.content


async def test_a_thumbnail_stands_upright_and_says_nothing_of_where_it_was_taken(app: FilesApp) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "Secret camera"
    file_id = await app.store(draw_picture("jpeg", exif=exif), contentType="image/jpeg")
    answer = await fetch_thumbnail(app, file_id)
    assert b"Secret" not in answer.content
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (160, 320)


async def test_a_moving_picture_and_one_with_gaps_have_a_thumbnail(app: FilesApp) -> None:
    frames = [Image.new("P", (40, 40), number) for number in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], transparency=0)
    moving = await fetch_thumbnail(app, await app.store(file.getvalue(), contentType="image/gif"))
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "MPO", save_all=True, append_images=[Image.new("RGB", (40, 40))])
    double = await fetch_thumbnail(app, await app.store(file.getvalue(), contentType="image/jpeg"))
    assert (moving.status_code, double.status_code) == (200, 200)


async def test_what_is_no_picture_has_no_thumbnail(app: FilesApp) -> None:
    for content_type in ("text/plain", "image/svg+xml", "application/zip"):
        file_id = await app.store(b"hello", contentType=content_type)
        assert (await app.request("GET", f"/download/{file_id}")).json()["thumbnailUrl"] is None


@pytest.mark.parametrize("content", [b"hello", build_bomb(), draw_picture("png")[:100], b"%!PS-Adobe-3.0 EPSF-3.0\n"])
async def test_a_picture_that_cannot_be_drawn_has_none_and_is_tried_once(app: FilesApp, content: bytes) -> None:
    file_id = await app.store(content, contentType="image/png")
    for _ in range(2):
        refusal = await fetch_thumbnail(app, file_id)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (404, "RESOURCE_NOT_FOUND")


async def test_a_thumbnail_is_seen_by_those_who_may_download_the_file(app: FilesApp) -> None:
    file_id = await app.store(draw_picture("png"), ANN, contentType="image/png")
    assert (await app.request("GET", f"/download/{file_id}", BEN)).status_code == 404
    url = (await app.request("GET", f"/download/{file_id}", ANN)).json()
    forged_url = url["downloadUrl"].replace("?", "/thumbnail?")
    assert (await app.baobab.client.get(forged_url)).status_code == 403
    forged_url = url["thumbnailUrl"].replace("/thumbnail", "")
    assert (await app.baobab.client.get(forged_url)).status_code == 403
    app.clock.advance(3600)
    assert (await app.baobab.client.get(url["thumbnailUrl"])).status_code == 403


async def test_a_thumbnail_goes_with_its_file_and_is_not_counted(app: FilesApp) -> None:
    content = draw_picture("png")
    file_id = await app.store(content, contentType="image/png")
    answers = await asyncio.gather(*(fetch_thumbnail(app, file_id) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {200}
    assert (await app.read_usage())["storage_used_bytes"] == len(content)
    await app.request("DELETE", f"/{file_id}")
    await run_due_jobs(app.baobab.application)
    assert await app.read_keys() == []


async def fetch_picture(app: FilesApp, file_id: str, accept: str = "*/*", **query: str) -> httpx.Response:
    answer = await app.request("GET", f"/download/{file_id}", params=query)
    assert answer.status_code == 200, answer.text
    return await app.baobab.client.get(answer.json()["pictureUrl"], headers={"accept": accept})


@pytest.mark.parametrize("kind", ["webp", "avif", "jpeg", "png"])
@pytest.mark.parametrize(("shape", "size"), [("whole", (640, 320)), ("square", (400, 400))])
async def test_a_picture_has_copies_of_several_sizes_shapes_and_kinds(
    app: FilesApp, kind: str, shape: str, size: tuple[int, int]
) -> None:
    file_id = await app.store(draw_picture("png"), contentType="image/png")
    answer = await fetch_picture(app, file_id, picture_size="640", picture_shape=shape, picture_format=kind)
    assert (answer.status_code, answer.headers["content-type"]) == (200, f"image/{kind}")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert (image.format, image.size) == (kind.upper(), size)
    assert f"{app.id}/files/{file_id}/picture-640-{shape}.{kind}" in await app.read_keys()
    await run_job(app.baobab.application, "files_leftovers")
    assert f"{app.id}/files/{file_id}/picture-640-{shape}.{kind}" in await app.read_keys()
    await app.request("DELETE", f"/{file_id}")
    await run_due_jobs(app.baobab.application)
    assert await app.read_keys() == []


@pytest.mark.parametrize(
    ("accept", "kind"), [("image/avif,image/webp", "avif"), ("image/webp,*/*", "webp"), ("*/*", "png"), ("", "png")]
)
async def test_the_kind_of_a_copy_follows_from_what_the_reader_takes(app: FilesApp, accept: str, kind: str) -> None:
    file_id = await app.store(draw_picture("png", 8, 4), contentType="image/png")
    answer = await fetch_picture(app, file_id, accept, picture_size="160")
    assert (answer.headers["content-type"], answer.headers["vary"]) == (f"image/{kind}", "Origin, Accept")
    large_answer = await fetch_picture(app, file_id, accept, picture_size="1280")
    assert large_answer.headers["content-type"] == f"image/{kind.replace('avif', 'webp')}"
    # A picture never becomes larger than it is.
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (8, 4)


async def test_a_copy_says_nothing_of_where_a_picture_was_taken(app: FilesApp) -> None:
    exif = Image.Exif()
    exif[0x010F] = "Secret camera"
    options = {"exif": exif, "comment": b"Secret comment", "xmp": b"<Secret/>", "icc_profile": b"Secret profile"}
    file_id = await app.store(draw_picture("jpeg", 40, 20, **options), contentType="image/jpeg")
    for kind in ("webp", "avif", "jpeg", "png"):
        answer = await fetch_picture(app, file_id, picture_size="160", picture_format=kind)
        assert answer.status_code == 200
        assert b"Secret" not in answer.content


async def test_a_picture_with_gaps_is_white_there_as_jpeg(app: FilesApp) -> None:
    file = io.BytesIO()
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(file, "PNG")
    file_id = await app.store(file.getvalue(), contentType="image/png")
    answer = await fetch_picture(app, file_id, picture_size="160", picture_format="jpeg")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.getpixel((20, 20)) == (255, 255, 255)


async def test_the_address_of_a_copy_gives_no_other_copy(app: FilesApp) -> None:
    file_id = await app.store(draw_picture("png"), contentType="image/png")
    path = f"/download/{file_id}?picture_size=160"
    url = (await app.request("GET", path)).json()["pictureUrl"]
    for changed_url in (
        url.replace("size=160", "size=1920"),
        url.replace("shape=whole", "shape=square"),
        f"{url}&format=png",
        url.replace("/picture?", "/thumbnail?"),
        url.replace("/picture?", "?"),
    ):
        answer = await app.baobab.client.get(changed_url)
        assert answer.status_code in (400, 403), changed_url
    assert (await app.request("GET", f"{path}1")).status_code == 400


async def test_a_bomb_has_no_copy_of_any_size_and_is_tried_once(app: FilesApp) -> None:
    file_id = await app.store(build_bomb(), contentType="image/png")
    assert (await fetch_thumbnail(app, file_id)).status_code == 404
    for size in ("160", "1920"):
        assert (await fetch_picture(app, file_id, picture_size=size, picture_format="png")).status_code == 404
    assert [key for key in await app.read_keys() if "picture-" in key] == []


def draw_page(width: float = 200, height: float = 100) -> bytes:
    document = pdfium.PdfDocument.new()
    document.new_page(width, height)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


async def test_the_first_page_of_a_pdf_has_a_thumbnail_and_copies(app: FilesApp) -> None:
    file_id = await app.store(draw_page(), contentType="application/pdf")
    answer = await fetch_thumbnail(app, file_id)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (320, 160)
        assert image.convert("RGB").getpixel((10, 10)) == (255, 255, 255)
    answer = await fetch_picture(app, file_id, picture_size="640", picture_format="png", picture_shape="square")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.size == (640, 640)


@pytest.mark.parametrize("content", [b"hello", b"%PDF-1.7\n", draw_page(0.0001, 0.0001), draw_page(14_400, 0.001)])
async def test_a_pdf_that_cannot_be_drawn_harms_nobody(app: FilesApp, content: bytes) -> None:
    file_id = await app.store(content, contentType="application/pdf")
    assert (await fetch_thumbnail(app, file_id)).status_code in (200, 404)
