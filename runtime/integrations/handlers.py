"""What a few tools need beside one plain request: bodies that are built, and answers that are read on.

A writer takes the parameters that are not in the address, and returns the body. A reader takes the answer and a
function that reads another address of the service, and returns what the caller gets.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any

ReadOn = Callable[[str], Awaitable[Any]]
_GMAIL = "https://gmail.googleapis.com/gmail/v1/users/me/messages"
_HEADERS = ("From", "To", "Subject", "Date")
_AT_ONCE = 5


def _build_mail(params: Mapping[str, Any]) -> dict[str, Any]:
    message = EmailMessage()
    message["To"] = params["recipient_email"].replace("\r", "").replace("\n", "")
    message["Subject"] = params.get("subject", "").replace("\r", " ").replace("\n", " ")
    if params.get("cc"):
        message["Cc"] = ", ".join(params["cc"]).replace("\r", "").replace("\n", "")
    message.set_content(params["body"], subtype="html" if params.get("is_html") else "plain")
    raw = base64.urlsafe_b64encode(message.as_bytes()).decode()
    return {"raw": raw, **({"threadId": params["thread_id"]} if "thread_id" in params else {})}


def _build_calendar_event(params: Mapping[str, Any]) -> dict[str, Any]:
    event = {name: params[name] for name in ("summary", "description", "location") if name in params}
    for name in ("start", "end"):
        if f"{name}_datetime" in params:
            event[name] = {"dateTime": params[f"{name}_datetime"]}
    if "attendees" in params:
        event["attendees"] = [{"email": address} for address in params["attendees"]]
    return event


def _build_paragraphs(text: str) -> list[dict[str, Any]]:
    return [
        {"object": "block", "type": "paragraph", "paragraph": {"rich_text": _build_text(line)}}
        for line in text.split("\n")[:100]
    ]


def _build_text(text: str) -> list[dict[str, Any]]:
    # Notion takes 2000 characters in one piece.
    pieces = [text[start : start + 2000] for start in range(0, len(text), 2000)]
    return [{"type": "text", "text": {"content": piece}} for piece in pieces]


def _build_notion_page(params: Mapping[str, Any]) -> dict[str, Any]:
    title = {"title": {"title": _build_text(params["title"])}}
    page = {"parent": {"page_id": params["parent_id"]}, "properties": title}
    return {**page, "children": _build_paragraphs(params["text"])} if params.get("text") else page


def _build_graph_message(params: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {
        "subject": params["subject"],
        "body": {"contentType": "HTML" if params.get("is_html") else "Text", "content": params["body"]},
    }
    for ours, theirs in (("to", "toRecipients"), ("cc", "ccRecipients")):
        if ours in params:
            message[theirs] = [{"emailAddress": {"address": address}} for address in params[ours]]
    return message


def _build_graph_event(params: Mapping[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = {"subject": params["subject"]}
    for name in ("start", "end"):
        event[name] = {"dateTime": params[f"{name}_datetime"].removesuffix("Z"), "timeZone": "UTC"}
    if "body" in params:
        event["body"] = {"contentType": "Text", "content": params["body"]}
    if "location" in params:
        event["location"] = {"displayName": params["location"]}
    if "attendees" in params:
        addresses = params["attendees"]
        event["attendees"] = [{"emailAddress": {"address": each}, "type": "required"} for each in addresses]
    return event


def _build_folder(params: Mapping[str, Any]) -> dict[str, Any]:
    folder = {"name": params["folder_name"], "mimeType": "application/vnd.google-apps.folder"}
    return {**folder, "parents": [params["parent_id"]]} if "parent_id" in params else folder


WRITERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "gmail_mail": _build_mail,
    "gmail_draft": lambda params: {"message": _build_mail(params)},
    "calendar_event": _build_calendar_event,
    "notion_page": _build_notion_page,
    "notion_blocks": lambda params: {"children": _build_paragraphs(params["text"])},
    "notion_comment": lambda params: {
        "parent": {"page_id": params["page_id"]},
        "rich_text": _build_text(params["text"]),
    },
    "graph_message": _build_graph_message,
    "graph_mail": lambda params: {"message": _build_graph_message(params)},
    "graph_event": _build_graph_event,
    "drive_folder": _build_folder,
    "sheet_title": lambda params: {"properties": {"title": params["title"]}},
}


async def _read_gmail_summaries(answer: Any, read_on: ReadOn) -> Any:
    """Gmail lists ids only: the headers of each message are read, a few at a time."""
    names = "&".join(f"metadataHeaders={name}" for name in _HEADERS)
    places = asyncio.Semaphore(_AT_ONCE)

    async def read(message_id: str) -> Any:
        async with places:
            return await read_on(f"{_GMAIL}/{message_id}?format=metadata&{names}")

    ids = [each["id"] for each in (answer or {}).get("messages", [])]
    messages = [_describe_gmail(each) for each in await asyncio.gather(*map(read, ids))]
    further = {name: answer[name] for name in ("nextPageToken", "resultSizeEstimate") if name in (answer or {})}
    return {"messages": messages, **further}


async def _read_gmail_message(answer: Any, _read_on: ReadOn) -> Any:
    return {**_describe_gmail(answer), "messageText": _find_text(answer.get("payload", {}))}


def _describe_gmail(message: Mapping[str, Any]) -> dict[str, Any]:
    pairs = message.get("payload", {}).get("headers", [])
    headers = {pair["name"].lower(): pair["value"] for pair in pairs}
    return {
        "messageId": message.get("id"),
        "threadId": message.get("threadId"),
        "sender": headers.get("from", ""),
        "to": headers.get("to", ""),
        "subject": headers.get("subject", ""),
        "messageTimestamp": headers.get("date", ""),
        "labelIds": message.get("labelIds", []),
        "messageText": message.get("snippet", ""),
    }


def _find_text(part: Mapping[str, Any]) -> str:
    """Returns the text of a message: the plain one, else that of its HTML."""
    texts = dict(reversed(_list_texts(part)))
    if "text/plain" in texts:
        return texts["text/plain"]
    reader = _TextOfHtml()
    reader.feed(texts.get("text/html", ""))
    return "".join(reader.pieces).strip()


def _list_texts(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    data = part.get("body", {}).get("data", "")
    try:
        text = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)).decode(errors="replace")
    except (ValueError, binascii.Error):
        text = ""
    texts = [(part.get("mimeType", ""), text)] if text else []
    return texts + [each for inner in part.get("parts", []) for each in _list_texts(inner)]


class _TextOfHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


READERS: Mapping[str, Callable[[Any, ReadOn], Awaitable[Any]]] = {
    "gmail_summaries": _read_gmail_summaries,
    "gmail_message": _read_gmail_message,
}
