"""The zip of a deployment, which a stranger made: what it says of itself is checked before anything is unpacked."""

import struct
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import IO

from baobab.tools.sites.errors import SiteInvalid
from baobab.tools.sites.file_paths import check_path, is_clutter, require_distinct

MOST_ARCHIVE_BYTES = 100 * 2**20
MOST_FILES = 10_000
MOST_FILE_BYTES = 25 * 2**20
MOST_BYTES = 300 * 2**20
"""Of all files of a deployment, unpacked."""
_MOST_DIRECTORY_BYTES = 8 * 2**20
_MOST_RATIO, _SMALL_BYTES = 200, 2**20
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x07"
_END_BYTES, _LONGEST_COMMENT = 22, 2**16
_ENCRYPTED, _IS_UTF8 = 0x1, 0x800
_FILE_TYPE, _REGULAR, _FOLDER = 0o170000, 0o100000, 0o040000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass
class Archive:
    """The files of a zip by their paths, and what was left out of it."""

    zip: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def read(self, path: str) -> bytes:
        """Returns the content of a file. Raises SiteInvalid if it is not what the zip says of it."""
        member = self.members[path]
        try:
            with self.zip.open(member) as source:
                content = source.read(member.file_size + 1)
                # At its end, the checksum is compared.
                if len(content) != member.file_size or source.read(1):
                    raise SiteInvalid(f"The file {path[:120]!r} has another length than the zip says.")
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as exc:
            raise SiteInvalid(f"The file {path[:120]!r} in the zip is damaged.") from exc
        return content


def open_archive(file: IO[bytes]) -> Archive:
    """Reads the directory of a zip. Raises SiteInvalid. It unpacks nothing."""
    _check_end(file)
    try:
        archive = Archive(zipfile.ZipFile(file))
    except (zipfile.BadZipFile, UnicodeDecodeError, struct.error, NotImplementedError, ValueError, OSError) as exc:
        raise SiteInvalid("The upload is not a zip, or it is damaged.") from exc
    left_out: Counter[str] = Counter()
    total = 0
    for member in archive.zip.infolist():
        if member.is_dir():
            continue
        path = check_path(_read_name(member))
        if is_clutter(path):
            left_out[next(segment for segment in path.split("/") if is_clutter(segment))] += 1
            continue
        _check_member(path, member)
        if path in archive.members:
            raise SiteInvalid(f"The zip has the path {path[:120]!r} twice.")
        archive.members[path] = member
        total += member.file_size
    if not archive.members:
        raise SiteInvalid("The zip has no files that could be pages.")
    if total > MOST_BYTES:
        raise SiteInvalid(f"Unpacked, the files have {total} bytes; a deployment has at most {MOST_BYTES}.")
    if len(archive.members) > MOST_FILES:
        raise SiteInvalid(f"The zip has {len(archive.members)} files; a deployment has at most {MOST_FILES}.")
    if left_out:
        names = ", ".join(f"{name[:60]} ({count})" for name, count in left_out.most_common(20))
        archive.warnings.append(f"Hidden files and what systems leave behind are left out: {names}.")
    _strip_folder(archive)
    require_distinct(archive.members)
    return archive


def _check_end(file: IO[bytes]) -> None:
    """Raises SiteInvalid if the zip's directory would take too much memory: the library reads it as a whole.

    It looks for the directory's end as the library does, so that both find the same one.
    """
    size = file.seek(0, 2)
    file.seek(max(size - _END_BYTES - _LONGEST_COMMENT, 0))
    tail = file.read(_END_BYTES + _LONGEST_COMMENT)
    last = tail[-_END_BYTES:]
    at = len(tail) - _END_BYTES if last.startswith(_END) and last.endswith(b"\0\0") else tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_BYTES:
        raise SiteInvalid("The upload is not a zip.")
    _, _, _, _, count, directory_bytes, _, _ = struct.unpack("<4s4H2LH", tail[at : at + _END_BYTES])
    if tail[max(at - 20, 0) : at].startswith(_END_64):
        raise SiteInvalid("The zip is in the format zip64, which only larger archives need.")
    if count > 2 * MOST_FILES or directory_bytes > _MOST_DIRECTORY_BYTES:
        raise SiteInvalid(f"The zip has {count} entries; a deployment has at most {MOST_FILES} files.")


def _read_name(member: zipfile.ZipInfo) -> str:
    """Returns the name of a member. Some systems write UTF-8 without saying so; other encodings are refused."""
    name = member.orig_filename
    if member.flag_bits & _IS_UTF8 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError as exc:
        raise SiteInvalid(f"The name {name[:120]!r} in the zip is not in UTF-8.") from exc


def _check_member(path: str, member: zipfile.ZipInfo) -> None:
    path_text = path[:120]
    kind = member.external_attr >> 16 & _FILE_TYPE
    if kind not in (0, _REGULAR, _FOLDER):
        raise SiteInvalid(f"{path_text!r} is a link or another special file.")
    if member.flag_bits & _ENCRYPTED:
        raise SiteInvalid(f"{path_text!r} is encrypted.")
    if member.compress_type not in _METHODS:
        raise SiteInvalid(f"{path_text!r} is compressed in another way than deflate.")
    if member.file_size > MOST_FILE_BYTES:
        raise SiteInvalid(f"{path_text!r} has {member.file_size} bytes; a file has at most {MOST_FILE_BYTES}.")
    if member.file_size > _SMALL_BYTES and member.file_size > _MOST_RATIO * max(member.compress_size, 1):
        raise SiteInvalid(f"{path_text!r} unpacks to more than {_MOST_RATIO} times its size in the zip.")


def _strip_folder(archive: Archive) -> None:
    """Takes away the one folder that holds everything, as in a zip of `dist`, if there is an `index.html` in it."""
    folder = next(iter(archive.members)).split("/")[0]
    if f"{folder}/index.html" not in archive.members:
        return
    if all(path.startswith(f"{folder}/") for path in archive.members):
        archive.members = {path.removeprefix(f"{folder}/"): member for path, member in archive.members.items()}
        archive.warnings.append(f"The folder `{folder[:60]}`, which holds everything, was taken away from the paths.")
