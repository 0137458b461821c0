"""The task `parse`: the text and the blocks of a document."""

import importlib
from collections.abc import Callable
from typing import Any

from baobab.runtime.documents.child.kinds import MEDIA_TYPES, detect_kind
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

_MODULES = {
    "pdf": "pdf_pages",
    "zip": "office",
    "html": "web_pages",
    "md": "markdown",
    "csv": "separated_values",
    "eml": "mail",
    "txt": "plain_text",
}


def prepare(source: bytes, options: dict[str, Any]) -> Callable[[], bytes]:
    """Imports what this document needs, and returns the work on it."""
    if not source:
        raise Refused("The file is empty.")
    kind = detect_kind(source, options["name"], options["media_type"])
    reader = importlib.import_module(f"baobab.runtime.documents.child.{_MODULES[kind]}")

    def read() -> bytes:
        builder = TextBuilder(options)
        media_kind = reader.read_document(source, builder, options) or kind
        return builder.encode(MEDIA_TYPES[media_kind])

    return read
