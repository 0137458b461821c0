"""Documents that are made to harm: each is refused with a sentence, and its process is gone."""

import asyncio
import dataclasses
import io
import os
import signal
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image

from baobab.runtime.documents.document import DEFAULT, ParseLimits, UnreadableDocument
from baobab.runtime.documents.parsing import parse_document
from tests.runtime.documents import samples

BILLION = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


async def refuse(folder: Path, source: bytes, name: str, limits: ParseLimits = DEFAULT) -> str:
    """Returns the sentence with which a document is refused."""
    path = folder / "document"
    path.write_bytes(source)
    with pytest.raises(UnreadableDocument) as refusal:
        await parse_document(path, name=name, media_type=None, limits=limits)
    return refusal.value.reason


def build_encrypted_zip() -> bytes:
    source = bytearray(samples.build_docx(samples.build_paragraph("secret")))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        begin = -1
        while (begin := source.find(mark, begin + 1)) >= 0:
            source[begin + at] |= 1
    return bytes(source)


def build_encrypted_pdf() -> bytes:
    """A PDF whose password is not the empty one."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"]
    o, u = "<" + "ab" * 32 + ">", "<" + "cd" * 32 + ">"
    objects.append(f"<< /Filter /Standard /V 1 /R 2 /O {o} /U {u} /P -44 >>")
    return samples.build_pdf_file(objects, "/Root 1 0 R /Encrypt 3 0 R /ID [<00><00>]")


def build_liar() -> bytes:
    """An archive whose directory says that a part of 20 MB has 10 bytes."""
    source = bytearray(samples.build_docx("x" * 20_000_000))
    name = b"word/document.xml"
    for begin in (source.find(name) - 30 + 22, source.rfind(name) - 46 + 24):
        source[begin : begin + 4] = (10).to_bytes(4, "little")
    return bytes(source)


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b"  \n ", "has no text"),
        ("a.txt", bytes(range(256)) * 20, "is not a text"),
        ("a.pdf", b"Hello", "declared as pdf, but its content is not"),
        ("a.docx", b"<html>", "declared as docx, but its content is not"),
        ("a.pdf", b"%PDF-1.4\nrubbish", "damaged"),
        ("a.pdf", samples.build_pdf(*([(12, "x")],) * 5)[:900], "damaged"),
        ("a.pdf", build_encrypted_pdf(), "password"),
        ("a.pdf", samples.encode_picture("PDF", Image.new("RGB", (40, 40))), "has no text"),
        ("a.png", samples.encode_picture("PNG", Image.new("RGB", (4, 4))), "has no text"),
        ("a.png", samples.encode_picture("PNG", Image.new("RGB", (4, 4)))[:40], "is damaged"),
        ("a.png", b"Hello", "declared as png, but its content is not"),
        ("a.avif", b"\0\0\0\x1cftypavif", "pictures of this kind are not read"),
        ("a.doc", OLD + b"\0" * 600, "before 2007"),
        ("a.docx", OLD + "EncryptedPackage".encode("utf-16-le"), "password"),
        ("a.docx", build_encrypted_zip(), "password"),
        ("a.docx", samples.build_docx(samples.build_paragraph("x"))[:-40], "damaged archive"),
        ("a.docx", samples.build_docx("<w:p>"), "not well-formed"),
        ("a.docx", samples.build_docx("<w:p>" * 2000 + "</w:p>" * 2000), "nested too deeply"),
        ("a.docm", samples.build_docx("x", **{"word__vbaProject.bin": b"x"}), "has macros"),
        ("a.xlsm", samples.build_xlsx({"S": [["x"]]}, **{"xl__vbaProject.bin": b"x"}), "has macros"),
        ("a.docx", samples.build_docx("x", word__styles_xml=BILLION + "<x>&b;</x>"), "defines a type or entities"),
        ("a.zip", samples.build_archive({"a.txt": "x"}), "is an archive"),
        ("a.docx", samples.build_archive({f"p{at}": "" for at in range(5_001)}), "more than 5000 parts"),
        ("a.xlsx", samples.build_xlsx({"S": [["x"]]}, xl__workbook_xml="<workbook/>"), "no text"),
        ("a.eml", b"Hello there", "none of an e-mail's headers"),
    ],
)
async def test_a_bad_document_is_refused_in_words(tmp_path: Path, name: str, source: bytes, words: str) -> None:
    assert words in await refuse(tmp_path, source, name)


async def test_a_picture_of_more_pixels_than_memory_holds_is_refused(tmp_path: Path) -> None:
    assert "more than 50000000 pixels" in await refuse(tmp_path, samples.encode_black_square(40_000), "a.png")


async def test_an_archive_is_not_unpacked_beyond_its_limits(tmp_path: Path) -> None:
    bomb = samples.build_docx("x" * 20_000_000)
    assert "more than 100 times larger" in await refuse(tmp_path, bomb, "a.docx")
    small = dataclasses.replace(DEFAULT, unpacked_bytes=2**20)
    assert "larger than 1048576 bytes when it is unpacked" in await refuse(tmp_path, bomb, "a.docx", small)
    assert "cannot be unpacked" in await refuse(tmp_path, build_liar(), "a.docx")


async def test_slides_that_are_named_again_and_again_count_each_time(tmp_path: Path) -> None:
    source = samples.build_pptx(samples.build_shape("x" * 1000))
    parts = {
        name: zipfile.ZipFile(io.BytesIO(source)).read(name) for name in zipfile.ZipFile(io.BytesIO(source)).namelist()
    }
    again = '<p:sldId id="256" r:id="r1"/>' * 3000
    parts["ppt/presentation.xml"] = f"<p:presentation {samples.P}>{again}</p:presentation>".encode()
    assert "3000 pages; up to 2000" in await refuse(tmp_path, samples.build_archive(parts), "a.pptx")


async def test_a_pdf_of_ten_thousand_pages_is_refused(tmp_path: Path) -> None:
    source = samples.build_pdf(*([(12, "x")],) * 10_000)
    assert "10000 pages; up to 2000 are read" in await refuse(tmp_path, source, "a.pdf")


async def test_a_pdf_whose_pages_hold_themselves_ends(tmp_path: Path) -> None:
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 4 >>"]
    assert await refuse(tmp_path, samples.build_pdf_file(objects, "/Root 1 0 R"), "a.pdf")


async def test_a_pdf_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    packed_text = zlib.compress(zlib.compress(b"\0" * 100_000_000)).decode("latin-1")
    stream = f"<< /Filter [/FlateDecode /FlateDecode] /Length {len(packed_text)} >>\nstream\n{packed_text}\nendstream"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        stream,
    ]
    few = dataclasses.replace(DEFAULT, memory_bytes=200 * 2**20, seconds=20)
    assert await refuse(tmp_path, samples.build_pdf_file(objects, "/Root 1 0 R"), "a.pdf", few)


async def test_a_document_with_too_much_text_is_refused(tmp_path: Path) -> None:
    few = dataclasses.replace(DEFAULT, text_characters=1000, blocks=10, source_bytes=10_000)
    assert "more than 1000 characters" in await refuse(tmp_path, b"x" * 1001, "a.txt", few)
    assert "more than 10 paragraphs" in await refuse(tmp_path, b"x\n\n" * 11, "a.txt", few)
    assert "up to 10000 bytes" in await refuse(tmp_path, b"x" * 10_001, "a.txt", few)


async def test_a_document_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """Its process is gone too: nothing reads the file any more."""
    short = dataclasses.replace(DEFAULT, seconds=0.05)
    source = b"<div>" * 300_000
    assert "more than 0.05 seconds" in await refuse(tmp_path, source, "a.html", short)
    while count_children():
        await asyncio.sleep(0)


async def test_a_document_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    few = dataclasses.replace(DEFAULT, memory_bytes=60 * 2**20)
    assert "memory" in await refuse(tmp_path, b"<p>x" * 5_000_000, "a.html", few)


async def test_the_process_of_a_reader_who_is_gone_is_gone_too(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"<div>" * 300_000)
    reading = asyncio.create_task(parse_document(path, name="a.html", media_type=None))
    while not count_children():
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    while count_children():
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "opening_tags", ["<div>" * 10_000, "<b>" * 10_000, "<table><tr><td>" * 3_000, "<ul><li>" * 5_000]
)
async def test_html_may_be_nested_as_deep_as_it_likes(tmp_path: Path, opening_tags: str) -> None:
    path = tmp_path / "document"
    path.write_bytes(f"<html>{opening_tags}deep".encode())
    assert (await parse_document(path, name="a.html", media_type=None)).text.endswith("deep")


def test_what_reads_a_document_reaches_nothing() -> None:
    """No file, no address, no other process, no variable of the environment."""
    script = """
import os, signal, socket, sys
from baobab.runtime.documents.child.confinement import close_everything, limit_resources
limit_resources(2**28, 5)
close_everything()
for attempt in (
    lambda: open("/etc/passwd"), lambda: socket.socket(), os.fork, lambda: os.kill(os.getppid(), 0),
    lambda: os.listdir("/"), lambda: os.execv("/bin/true", ["true"]), lambda: os.stat("/etc/passwd"), os.pipe,
    lambda: os.dup(0),
):
    try:
        attempt()
    except OSError:
        continue
    os.write(1, b"reached ")
os.write(1, b"end")
os._exit(0)
"""
    process = subprocess.run([sys.executable, "-I", "-c", script], env={}, capture_output=True, check=True)
    assert process.stdout == b"end"


async def test_documents_are_read_after_what_starts_their_processes_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"Hello there")
    for _ in range(2):
        assert (await parse_document(path, name="a.txt", media_type=None)).text == "Hello there"
        for fork_server in list_processes(os.getpid()):
            os.kill(fork_server, signal.SIGKILL)


def count_children() -> int:
    """The processes that read documents for this one."""
    return sum(len(list_processes(fork_server)) for fork_server in list_processes(os.getpid()))


def list_processes(of: int) -> list[int]:
    """The ids of the children of a process that have to do with documents."""
    process_ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == of and b"documents.child" in command:
            process_ids.append(int(folder.name))
    return process_ids
