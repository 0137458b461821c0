"""Detects the kind of a file, by its content first and by its sender's information second."""

import re

from baobab.runtime.documents.child.refusal import Refused

READABLE = "Documents that are read: pdf, docx, xlsx, pptx, html, Markdown, CSV, eml, plain text and pictures of text."
MEDIA_TYPES = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "html": "text/html",
    "md": "text/markdown",
    "csv": "text/csv",
    "eml": "message/rfc822",
    "txt": "text/plain",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "tiff": "image/tiff",
    "bmp": "image/bmp",
    "gif": "image/gif",
}
_BY_TYPE = {
    **{media_type: kind for kind, media_type in MEDIA_TYPES.items() if kind != "txt"},
    "application/xhtml+xml": "html",
    "text/x-markdown": "md",
    "text/tab-separated-values": "csv",
}
_BY_SUFFIX = {
    **{kind: kind for kind in MEDIA_TYPES},
    "htm": "html",
    "xhtml": "html",
    "markdown": "md",
    "tsv": "csv",
    "mail": "eml",
    "jpg": "jpeg",
    "tif": "tiff",
}
PICTURES = ("png", "jpeg", "webp", "tiff", "bmp", "gif")
_BINARY = ("pdf", "docx", "xlsx", "pptx", *PICTURES)
# The first two bytes of a BMP begin many a text; behind its size it has zeros.
_SIGNATURES = {
    "png": rb"\x89PNG\r\n",
    "jpeg": rb"\xff\xd8\xff",
    "webp": rb"RIFF.{4}WEBP",
    "tiff": rb"II\*\0|MM\0\*",
    "bmp": rb"BM.{4}\0{4}",
    "gif": rb"GIF8",
}
_PICTURE = re.compile(
    b"|".join(b"(?P<%s>%s)" % (kind.encode(), signature) for kind, signature in _SIGNATURES.items()), re.DOTALL
)
_UNREAD = re.compile(rb".{4}ftyp|\0\0\0\x0cJXL |\xff\x0a|RIFF.{4}(?:WAVE|AVI )", re.DOTALL)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HTML = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)


def detect_kind(source: bytes, name: str, media_type: str) -> str:
    """Returns a key of MEDIA_TYPES, or `zip` for a file that may be docx, xlsx or pptx. Raises Refused."""
    declared_kind = read_declared_kind(name, media_type)
    head = source[:1024]
    if b"%PDF-" in head:
        return "pdf"
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    if head.startswith(_OLD_OFFICE):
        _refuse_old_office(source)
    if picture := _PICTURE.match(head):
        return str(picture.lastgroup)
    if _UNREAD.match(head):
        raise Refused(f"Sound, video and pictures of this kind are not read. {READABLE}")
    if declared_kind in _BINARY:
        raise Refused(f"The file is declared as {declared_kind}, but its content is not. {READABLE}")
    if declared_kind:
        return declared_kind
    return "html" if _HTML.match(source[:4096]) else "txt"


def read_declared_kind(name: str, media_type: str) -> str | None:
    """Returns the kind that the sender declared. If the media type says little, as text/plain does, the file name's
    extension decides.
    """
    essence = media_type.partition(";")[0].strip().lower()
    _, dot, suffix = name.lower().rpartition(".")
    return _BY_TYPE.get(essence) or (_BY_SUFFIX.get(suffix.strip()) if dot else None)


def _refuse_old_office(source: bytes) -> None:
    if "EncryptedPackage".encode("utf-16-le") in source:
        raise Refused("The document is protected by a password. Save it without one and upload it again.")
    raise Refused("This is a document of Office before 2007. Save it as docx, xlsx or pptx and upload it again.")
