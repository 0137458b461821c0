"""Text in pictures and on scanned pages, which is recognised in a child process."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from baobab.runtime.documents.child.characters import Line, Rectangle
from baobab.runtime.documents.child.page_layout import add_lines
from baobab.runtime.documents.child.text_builder import TextBuilder
from baobab.runtime.documents.document import DEFAULT, ParsedDocument, ParseLimits, UnreadableDocument
from baobab.runtime.documents.parsing import parse_document
from tests.runtime.documents import samples

LINES = ("Baobabs store water.", "Total: 12.50 (net)", "mail@example.org")
TEXT = "\n".join(LINES)


async def parse(folder: Path, source: bytes, name: str = "a", limits: ParseLimits = DEFAULT) -> ParsedDocument:
    path = folder / "document"
    path.write_bytes(source)
    return await parse_document(path, name=name, media_type=None, limits=limits)


async def refuse(folder: Path, source: bytes, limits: ParseLimits = DEFAULT) -> str:
    with pytest.raises(UnreadableDocument) as refusal:
        await parse(folder, source, limits=limits)
    return refusal.value.reason


def show(document: ParsedDocument) -> list[tuple[str, int | None, str]]:
    return [(block.kind, block.page, document.text[block.start : block.end]) for block in document.blocks]


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("TIFF", "tiff"), ("BMP", "bmp"), ("GIF", "gif")],
)
async def test_the_text_of_a_picture_is_read(tmp_path: Path, kind: str, media_type: str) -> None:
    document = await parse(tmp_path, samples.encode_picture(kind, samples.draw_lines(*LINES)))
    assert show(document) == [("paragraph", None, TEXT)]
    assert (document.media_type, document.pages) == (f"image/{media_type}", None)


@pytest.mark.parametrize(
    "picture",
    [
        samples.draw_lines(*LINES).transpose(Image.Transpose.ROTATE_90),
        samples.draw_lines(*LINES).transpose(Image.Transpose.ROTATE_180),
        samples.draw_lines(*LINES).transpose(Image.Transpose.ROTATE_270),
        samples.draw_lines(*LINES, width=900).rotate(4, fillcolor="white", expand=True),
        samples.draw_lines(*LINES).convert("1"),
        samples.draw_lines(*LINES).convert("L").convert("I").point(lambda value: value * 257).convert("I;16"),
        samples.draw_lines(*LINES).convert("P"),
    ],
    ids=["on its left", "on its head", "on its right", "askew", "of two colours", "of 16 bits", "of a palette"],
)
async def test_a_picture_may_lie_as_it_likes_and_have_any_colours(tmp_path: Path, picture: Image.Image) -> None:
    assert (await parse(tmp_path, samples.encode_picture("PNG", picture))).text == TEXT


async def test_a_transparent_picture_is_read_on_white(tmp_path: Path) -> None:
    lines = samples.draw_lines(*LINES)
    lines.putalpha(lines.convert("L").point(lambda value: 255 - value))
    assert (await parse(tmp_path, samples.encode_picture("PNG", lines))).text == TEXT


async def test_a_photograph_is_read_the_way_up_that_its_camera_has_noted(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    turned_picture = samples.draw_lines(*LINES).transpose(Image.Transpose.ROTATE_90)
    assert (await parse(tmp_path, samples.encode_picture("JPEG", turned_picture, exif=exif))).text == TEXT


async def test_the_first_frame_of_a_moving_picture_is_read(tmp_path: Path) -> None:
    frames = samples.draw_lines("The first frame"), samples.draw_lines("Another frame")
    assert (await parse(tmp_path, samples.encode_picture("GIF", *frames))).text == "The first frame"


async def test_each_page_of_a_tiff_is_a_page(tmp_path: Path) -> None:
    pages = samples.draw_lines("The first page"), samples.draw_lines("The second page")
    document = await parse(tmp_path, samples.encode_picture("TIFF", *pages))
    assert show(document) == [("paragraph", 1, "The first page"), ("paragraph", 2, "The second page")]
    assert document.pages == 2


async def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    page = Image.new("RGB", (1200, 400), "white")
    left_lines = [f"Line {at} of the left column here" for at in range(4)]
    right_lines = [f"Line {at} of the right column there" for at in range(4)]
    page.paste(samples.draw_lines("A title in large letters", size=44, width=800), (0, 0))
    page.paste(samples.draw_lines(*left_lines, width=600), (0, 140))
    page.paste(samples.draw_lines(*right_lines, width=600), (600, 140))
    document = await parse(tmp_path, samples.encode_picture("PNG", page))
    assert show(document) == [
        ("heading", None, "A title in large letters"),
        ("paragraph", None, "\n".join(left_lines)),
        ("paragraph", None, "\n".join(right_lines)),
    ]
    assert document.title == "A title in large letters"


async def test_the_cells_of_a_row_are_read_as_a_line(tmp_path: Path) -> None:
    page = Image.new("RGB", (900, 200), "white")
    page.paste(samples.draw_lines("Bread", "Milk", "Total", width=300), (0, 0))
    page.paste(samples.draw_lines("3.20", "1.10", "4.30", width=150), (700, 0))
    document = await parse(tmp_path, samples.encode_picture("PNG", page))
    assert show(document) == [("paragraph", None, "Bread 3.20\nMilk 1.10\nTotal 4.30")]


async def test_a_scanned_pdf_has_the_text_of_its_pages(tmp_path: Path) -> None:
    pages = samples.draw_lines("The first page"), Image.new("RGB", (200, 200)), samples.draw_lines("The third page")
    document = await parse(tmp_path, samples.encode_picture("PDF", *pages, title="Scans"))
    assert show(document) == [("paragraph", 1, "The first page"), ("paragraph", 3, "The third page")]
    assert (document.media_type, document.pages, document.title) == ("application/pdf", 3, "Scans")


async def test_the_scanned_pages_of_a_pdf_stand_between_the_others(tmp_path: Path) -> None:
    source = samples.build_mixed_pdf(
        "Typed on the first page", samples.draw_lines("Scanned"), None, "Typed on the last"
    )
    document = await parse(tmp_path, source, "a.pdf")
    assert show(document) == [
        ("paragraph", 1, "Typed on the first page"),
        ("paragraph", 2, "Scanned"),
        ("paragraph", 4, "Typed on the last"),
    ]
    assert document.pages == 4


async def test_without_the_networks_the_text_of_pages_with_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    source = samples.build_mixed_pdf("Typed", samples.draw_lines("Scanned"))
    assert (await parse(tmp_path, source)).text == "Typed"
    for source in (
        samples.build_mixed_pdf(samples.draw_lines("x")),
        samples.encode_picture("PNG", Image.new("L", (9, 9))),
    ):
        reason = await refuse(tmp_path, source)
        assert "install rapidocr" in reason
        assert "let a model read" in reason


async def test_recognising_has_limits_of_its_own(tmp_path: Path) -> None:
    source = samples.encode_picture("PDF", samples.draw_lines("One"), samples.draw_lines("Two"))
    one = dataclasses.replace(DEFAULT, pictures=1)
    assert "2 pages that are pictures; up to 1 are read" in await refuse(tmp_path, source, one)
    short = dataclasses.replace(DEFAULT, picture_seconds=0.05)
    assert "Page 1: Reading the document takes more than 0.05 seconds" in await refuse(tmp_path, source, short)
    small = dataclasses.replace(DEFAULT, picture_memory_bytes=250 * 2**20)
    assert "memory" in await refuse(
        tmp_path, samples.encode_picture("PNG", Image.effect_noise((3000, 3000), 90)), small
    )
    few = dataclasses.replace(DEFAULT, text_characters=8)
    assert "more than 8 characters" in await refuse(tmp_path, source, few)


async def test_a_later_page_may_not_be_larger_than_the_first(tmp_path: Path) -> None:
    pages = samples.draw_lines("Small"), Image.new("1", (9_000, 9_000))
    assert "Page 2: The picture has more than 50000000 pixels" in await refuse(
        tmp_path, samples.encode_picture("TIFF", *pages)
    )


def test_what_recognises_text_is_not_loaded_for_other_documents() -> None:
    script = """
import sys
from baobab.runtime.documents.child.task import import_ahead
for name in ("a.txt", "a.pdf", "a.docx", "a.png"):
    import_ahead("parse", {"name": name, "media_type": ""})
print(sorted({"numpy", "onnxruntime", "rapidocr"} & set(sys.modules)))
"""
    process = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=True, text=True)
    assert process.stdout == "[]\n"


def test_a_page_with_a_thousand_lines_without_a_gap_is_read_from_top_to_bottom() -> None:
    # Two columns of which the left one reaches into the right one, so that no space divides them.
    lines = [
        Line(f"{number} {side}", Rectangle(x, 20 * number, 210, 16, 0))
        for number in range(500)
        for side, x in (("left", 100), ("right", 305))
    ]
    builder = TextBuilder(dataclasses.asdict(DEFAULT))
    add_lines(lines, builder, page=1)
    answer = builder.encode("image/png")
    rows = answer[answer.index(b"0 left") :].decode().split()
    assert rows == [word for number in range(500) for side in ("left", "right") for word in (str(number), side)]
