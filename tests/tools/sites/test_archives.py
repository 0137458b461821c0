"""Zips that a stranger made: bombs, paths that lead out, links, collisions, encodings, clutter."""

import io
import struct
import zipfile
from collections.abc import Callable

import pytest

from tests.tools.sites.conftest import Site, build_zip


def _write_link(archive: zipfile.ZipFile) -> None:
    link = zipfile.ZipInfo("passwd.txt")
    link.external_attr = 0o120777 << 16
    archive.writestr(link, "/etc/passwd")


def _write_names(*names: str) -> Callable[[zipfile.ZipFile], None]:
    def write(archive: zipfile.ZipFile) -> None:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), "x")

    return write


def _write_bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("bomb.txt", b"\0" * (20 * 2**20), compress_type=zipfile.ZIP_DEFLATED)


def _write_large(archive: zipfile.ZipFile) -> None:
    archive.writestr("large.bin", b"\0" * (25 * 2**20 + 1))


def _write_other_compression(archive: zipfile.ZipFile) -> None:
    archive.writestr("a.txt", b"x" * 100, compress_type=zipfile.ZIP_BZIP2)


def _write_many(archive: zipfile.ZipFile) -> None:
    for number in range(10_001):
        archive.writestr(zipfile.ZipInfo(f"{number}.txt"), b"")


def write_zip(write: Callable[[zipfile.ZipFile], None]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        write(archive)
    return buffer.getvalue()


def _name_in_latin_1() -> bytes:
    return build_zip({"caf_.html": "x"}).replace(b"caf_.html", b"caf\xe9.html")


def _encrypt() -> bytes:
    raw = bytearray(build_zip({"a.html": "x" * 50}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset] |= 1
    return bytes(raw)


def _damage() -> bytes:
    raw = bytearray(write_zip(_write_names("a.html")))
    raw[raw.index(b"a.html") + len("a.html")] ^= 0xFF
    return bytes(raw)


def _promise_entries() -> bytes:
    """A zip that says of itself that it has more entries than it could be wanted to read."""
    raw = bytearray(build_zip({"a.html": "x"}))
    end = raw.rindex(b"PK\x05\x06")
    struct.pack_into("<HH", raw, end + 8, 0xFFFF, 0xFFFF)
    return bytes(raw)


ODD_ZIPS = [
    (write_zip(_write_link), "link"),
    (write_zip(_write_names("../out.html")), "`..`"),
    (write_zip(_write_names("a/../../out.html")), "`..`"),
    (write_zip(_write_names("/etc/passwd")), "not relative"),
    (write_zip(_write_names("a\\..\\b.html")), "character"),
    (write_zip(_write_names("C:/a.html")), "character"),
    (write_zip(_write_names("a\nb.html")), "character"),
    (write_zip(_write_names("Index.html", "index.html")), "differ only in case"),
    (write_zip(_write_names("stra\u00dfe.html", "strasse.html")), "differ only in case"),
    (write_zip(_write_names("a", "a/b.html")), "also a folder"),
    (write_zip(_write_names("a" * 401 + ".html")), "longer than"),
    (write_zip(_write_bomb), "200 times"),
    (write_zip(_write_large), "a file has at most"),
    (write_zip(_write_many), "10001 files"),
    (write_zip(_write_other_compression), "deflate"),
    (write_zip(_write_names()), "no files"),
    (write_zip(_write_names("__MACOSX/._a", ".env")), "no files"),
    (_name_in_latin_1(), "UTF-8"),
    (_encrypt(), "encrypted"),
    (_damage(), "damaged"),
    (_promise_entries(), "65535 entries"),
    (build_zip({"a.html": "x"})[:-30], "not a zip"),
    (b"", "not a zip"),
]


@pytest.mark.parametrize(
    ("content", "why"), ODD_ZIPS, ids=[f"{number}: {why}" for number, (_, why) in enumerate(ODD_ZIPS)]
)
async def test_a_zip_that_is_no_site_is_refused_with_its_reason(site: Site, content: bytes, why: str) -> None:
    deployment = await site.deploy_zip(content)
    assert (deployment["status"], why in deployment["error"]["message"]) == ("ERROR", True), deployment["error"]
    assert (await site.get("/")).status_code == 404


async def test_one_top_folder_and_what_systems_leave_behind_are_taken_away_and_named(site: Site) -> None:
    files = {
        "dist/index.html": "home",
        "dist/.well-known/security.txt": "mail us",
        "dist/.env": "SECRET=1",
        "dist/.git/config": "x",
        "dist/caf\u00e9.html": "coffee",
        "__MACOSX/dist/._index.html": "x",
        "dist/Thumbs.db": "x",
    }
    deployment = await site.deploy(files)
    assert (deployment["status"], deployment["files_count"]) == ("READY", 3)
    warnings = " ".join(deployment["warnings"])
    for name in (".env (1)", ".git (1)", "__MACOSX (1)", "Thumbs.db (1)", "The folder `dist`"):
        assert name in warnings, warnings
    assert (await site.get("/")).text == "home"
    assert (await site.get("/.well-known/security.txt")).text == "mail us"
    assert (await site.get("/caf%C3%A9")).text == "coffee"
    for path in ("/.env", "/.git/config", "/dist/.env"):
        assert (await site.get(path)).status_code == 404


async def test_files_below_paths_of_the_api_are_named_and_not_reached(site: Site) -> None:
    deployment = await site.deploy({"index.html": "home", "auth/a.html": "x", "data/a.json": "x", "docs/a.txt": "d"})
    (warning,) = deployment["warnings"]
    assert ("`/auth`, `/data`" in warning, "docs" in warning) == (True, False)
    assert (await site.get("/data/a.json")).status_code in (401, 404)
    assert (await site.get("/docs/a.txt")).text == "d"
    (without_page,) = (await site.write(about__html="x"))["warnings"]
    assert "no `index.html`" in without_page


@pytest.mark.parametrize(
    "files",
    [
        {"../a.html": "x"},
        {"a.html": "x", "A.html": "y"},
        {"caf\u00e9.html": "x", "cafe\u0301.html": "y"},
        {"a.html": "x" * 600_000, "b.html": "\u00e9" * 300_000},
    ],
)
async def test_texts_that_are_no_site_are_refused_in_the_call(site: Site, files: dict[str, str]) -> None:
    refusal = await site.request("POST", "/deployments/files", 400, json={"files": files})
    assert refusal["error"]["code"] == "VALIDATION_INVALID_INPUT"
    assert (await site.request("GET", "/deployments"))["deployments"] == []
