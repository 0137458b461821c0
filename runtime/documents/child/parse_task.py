"""The task `parse`: the text and the blocks of a document."""

import importlib
from collections.abc import Callable
from typing import Any

from baobab.runtime.documents.child.kinds import MEDIA_TYPES, PICTURES, detect_kind, read_declared_kind
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

_MODULES = {
    "pdf": "pdf_pages",
    "zip": "office",
    "docx": "office",
    "pptx": "office",
    "xlsx": "office",
    "html": "web_pages",
    "md": "markdown",
    "csv": "separated_values",
    "eml": "mail",
    "txt": "plain_text",
    **dict.fromkeys(PICTURES, "pictures"),
}


def import_ahead(options: dict[str, Any]) -> None:
    """Imports what is needed if the document is what its sender declared."""
    _import_reader(read_declared_kind(options["name"], options["media_type"]) or "txt")


def prepare(source: bytes, options: dict[str, Any]) -> Callable[[], bytes]:
    """Imports what this document needs, and returns the function that reads it."""
    if not source:
        raise Refused("The file is empty.")
    kind = detect_kind(source, options["name"], options["media_type"])
    reader = _import_reader(kind)

    def read() -> bytes:
        builder = TextBuilder(options)
        media_kind = reader.read_document(source, builder, options) or kind
        return builder.encode(MEDIA_TYPES[media_kind])

    return read


def _import_reader(kind: str) -> Any:
    return importlib.import_module(f"baobab.runtime.documents.child.{_MODULES[kind]}")
