"""Detects whether an archive is docx, xlsx or pptx, and reads it."""

from typing import Any

from baobab.runtime.documents.child import sheets, slides, word
from baobab.runtime.documents.child.archive import Archive
from baobab.runtime.documents.child.kinds import READABLE
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

_BY_FOLDER = {"word": "docx", "xl": "xlsx", "ppt": "pptx"}


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> str:
    """Reads an archive and returns its kind. Raises Refused."""
    archive = Archive(source, options)
    main = next((target for kind, target in archive.read_relations("").values() if kind == "officeDocument"), "")
    kind = _BY_FOLDER.get(main.partition("/")[0])
    if kind is None or main not in archive.names:
        raise Refused(f"The file is an archive. Upload its files one by one. {READABLE}")
    if any(name.lower().endswith("vbaproject.bin") for name in archive.names):
        raise Refused("The document has macros. Save it without them, as docx, xlsx or pptx, and upload it again.")
    builder.title = archive.read_title()
    if kind == "docx":
        word.read_word(archive, main, builder)
    elif kind == "pptx":
        slides.read_slides(archive, main, builder)
    else:
        sheets.read_sheets(archive, source, main, builder)
    return kind
