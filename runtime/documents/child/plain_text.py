"""Plain text, in which empty lines separate the blocks."""

import codecs
import re
from typing import Any

from baobab.runtime.documents.child.charsets import load_charsets
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder, clean_text

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
load_charsets(
    *("utf-8", "utf-16-le", "utf-16-be", "utf-32", "ascii", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1256"),
    *("latin-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "iso8859-15", "koi8-r", "koi8-u", "mac-roman"),
    *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "gb2312", "gbk", "gb18030", "big5", "euc_kr", "cp949"),
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_PARAGRAPH = re.compile(r"\S(?:.*\S)?(?:\n[^\S\n]*\S(?:.*\S)?)*")


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> None:
    text = clean_text(decode_text(source, read_charset(options["media_type"])))
    builder.add_source(text)
    for paragraph in _PARAGRAPH.finditer(text):
        builder.mark("paragraph", paragraph.start(), paragraph.end())


def read_charset(content_type: str) -> str:
    """Returns the charset of a content type; "" where it names none."""
    match = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    return match[1] if match else ""


def decode_text(source: bytes, charset: str = "") -> str:
    """Decodes text by its byte order mark, then as UTF-8, then by its charset, then as cp1252. Raises Refused for bytes
    that are not text.
    """
    for mark, name in _MARKS:
        if source.startswith(mark):
            return _require_text(source[len(mark) :].decode(name, "replace"))
    for name in ("utf-8", charset):
        try:
            return _require_text(source.decode(name or "cp1252"))
        except (UnicodeError, LookupError, ValueError):
            continue
    return _require_text(source.decode("cp1252", "replace"))


def _require_text(text: str) -> str:
    sample = text[:100_000]
    strange = len(_CONTROL.findall(sample)) + sample.count("\ufffd")
    if strange > 1 + len(sample) // 50:
        raise Refused("The file is not a text: it has bytes that no text has. Upload a document or a text in UTF-8.")
    return text
