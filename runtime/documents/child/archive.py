"""The package of a docx, xlsx or pptx: a zip archive of XML, which is unpacked within limits."""

import io
import posixpath
import zipfile
import zlib
from typing import Any

from baobab.runtime.documents.child.charsets import load_charsets
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.xml_events import read_elements

load_charsets("cp437", "utf-8", "utf-16", "utf-16-le", "utf-16-be")
_PIECE = 2**18
_SMALL = 10 * 2**20
"""The size in bytes up to which any compression ratio is accepted."""
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError)


class Archive:
    """Reads an archive. Its members are counted when it is opened and its bytes when they are read, because headers may
    lie.
    """

    def __init__(self, source: bytes, options: dict[str, Any]) -> None:
        """Raises Refused."""
        self._remaining = options["unpacked_bytes"]
        self._most = options["unpacked_bytes"]
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(source))
        except _DAMAGED as exc:
            raise Refused("The file is a damaged archive. Perhaps only a part of it was uploaded.") from exc
        members = self._zip.infolist()
        if len(members) > options["archive_members"]:
            raise Refused(f"The document has more than {options['archive_members']} parts.")
        size = sum(member.file_size for member in members)
        if size > self._most:
            raise Refused(f"The document is larger than {self._most} bytes when it is unpacked.")
        if size > max(_SMALL, options["archive_ratio"] * len(source)):
            raise Refused(f"The document is more than {options['archive_ratio']} times larger when it is unpacked.")
        if any(member.flag_bits & 1 for member in members):
            raise Refused("The document is protected by a password. Save it without one and upload it again.")
        self.names = frozenset(member.filename for member in members)

    def read(self, name: str) -> bytes:
        """Returns the content of a part; b"" if there is none. Raises Refused."""
        if name not in self.names:
            return b""
        pieces = []
        try:
            with self._zip.open(name) as part:
                while piece := part.read(_PIECE):
                    self._remaining -= len(piece)
                    if self._remaining < 0:
                        raise Refused(f"The document is larger than {self._most} bytes when it is unpacked.")
                    pieces.append(piece)
        except _DAMAGED as exc:
            raise Refused("The document is damaged: a part of it cannot be unpacked.") from exc
        return b"".join(pieces)

    def read_relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Returns the relations of a part: the id of each, the last word of its type, and the name of its target."""
        folder, file = posixpath.split(name)
        relations: dict[str, tuple[str, str]] = {}
        for tag, attributes in read_elements(self.read(posixpath.join(folder, "_rels", file + ".rels"))):
            if tag == "Relationship" and attributes.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, attributes.get("Target", "")))
                kind = attributes.get("Type", "").rpartition("/")[2]
                relations[attributes.get("Id", "")] = kind, target.lstrip("/")
        return relations

    def read_title(self) -> str | None:
        """Returns the title in the document's properties."""
        for tag, attributes in read_elements(self.read("docProps/core.xml"), texts=("title",)):
            if tag == "title":
                return attributes[""].strip() or None
        return None
