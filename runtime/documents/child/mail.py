"""Mail (eml): its headers, its text, and the names of its attachments."""

import email
import email.policy
from email.message import EmailMessage
from typing import Any

from baobab.runtime.documents.child.plain_text import decode_text
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder, clean_text, squeeze
from baobab.runtime.documents.child.web_pages import read_html

# Reading one letter imports what the library imports late, while files can still be opened.
_SAMPLE = b"""From: =?utf-8?q?A?= <a@example.org>
To: =?utf-8?b?QQ==?= <b@example.org>
Subject: =?iso-8859-1?q?A?=
Date: Mon, 2 Nov 2026 10:00:00 +0000
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="x"

--x
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

A=20
--x
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: base64
Content-Disposition: attachment; filename*=utf-8''A.txt

QQ==
--x--
"""
_HEADERS = ("From", "To", "Cc", "Date")
_MOST_PARTS = 1_000


def read_document(source: bytes, builder: TextBuilder, _options: dict[str, Any]) -> None:
    letter = _read_letter(source)
    if not any(letter.get(name) for name in ("From", "To", "Subject", "Date", "Received")):
        raise Refused("The file is declared as an e-mail (eml), but has none of an e-mail's headers.")
    subject = squeeze(str(letter.get("Subject", "")))
    builder.title = subject or None
    builder.add("heading", subject, level=1)
    lines = [f"{name}: {squeeze(str(letter[name]))}" for name in _HEADERS if letter.get(name)]
    builder.add("paragraph", "\n".join(lines))
    body = letter.get_body(("plain", "html"))
    if body is not None:
        _read_body(body, builder)
    for at, part in enumerate(letter.iter_attachments()):
        if at == _MOST_PARTS:
            raise Refused(f"The e-mail has more than {_MOST_PARTS} attachments.")
        name = squeeze(part.get_filename() or "without a name")
        builder.add_item(f"Attachment, which is not read: {name} ({part.get_content_type()})")


def _read_body(body: Any, builder: TextBuilder) -> None:
    content = body.get_payload(decode=True) or b""
    text = decode_text(content, body.get_content_charset() or "")
    if body.get_content_type() == "text/html":
        read_html(text, builder)
        return
    for paragraph in clean_text(text).split("\n\n"):
        builder.add("paragraph", paragraph)


def _read_letter(source: bytes) -> EmailMessage:
    letter = email.message_from_bytes(source, policy=email.policy.default)
    assert isinstance(letter, EmailMessage)
    return letter


for _part in _read_letter(_SAMPLE).walk():
    _part.items()
    _part.get_filename()
    _part.get_payload(decode=True)
