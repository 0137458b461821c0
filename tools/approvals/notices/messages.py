"""The text of a message, in the form of each kind of channel. Texts of proposers are data in all of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

MOST = 20
"""How many calls one message names; it counts the others."""
_MOST_TITLE = 200
_DISCORD_MARKS = re.compile(r"([\\*_~`|>#\[\]()<@:-])")


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call as a message tells of it. title and asked_by hold text of its proposer, made visible."""

    id: str
    title: str
    asked_by: str
    app_name: str | None
    tool: str
    effect: str
    expires_at: datetime
    url: str
    asks: str = ""
    """The agent, key or person that asks: calls of one of them stand together, as in the inbox."""
    excerpt: str | None = None
    """One line of the text that the call proposes."""
    warning: str | None = None
    """Why whoever decides should look twice; what is stored may stand in it, made visible."""


@dataclass(frozen=True, slots=True)
class Notice:
    """calls: at least one, the oldest first. url: where all that waits is listed."""

    id: str
    calls: Sequence[WaitingCall]
    url: str
    sent_at: datetime
    is_test: bool = False

    @property
    def subject(self) -> str:
        """Says how many calls wait; nothing in it is a proposer's."""
        if self.is_test:
            return "A test: notices of Baobab reach you here"
        number = len(self.calls)
        return "A call waits for your decision" if number == 1 else f"{number} calls wait for your decision"

    @property
    def link(self) -> str:
        return self.calls[0].url if len(self.calls) == 1 else self.url

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The calls as a mail tells of them: by who asks in which app, what expires first on top."""
        groups: dict[tuple[str, str | None], list[WaitingCall]] = {}
        for call in sorted(self.calls[:MOST], key=lambda call: call.expires_at):
            groups.setdefault((call.asks, call.app_name), []).append(call)
        return [
            {
                "name": f"{asks}, in {app_name}" if app_name else asks,
                "calls": [
                    {
                        "title": _cut(call.title),
                        "excerpt": _cut(call.excerpt or ""),
                        "warning": _cut(call.warning or ""),
                        "left": _say_left(call.expires_at - self.sent_at),
                        "url": call.url,
                    }
                    for call in calls
                ],
            }
            for (asks, app_name), calls in groups.items()
        ]

    @property
    def more(self) -> int:
        """How many calls the message only counts."""
        return max(0, len(self.calls) - MOST)

    @property
    def lines(self) -> list[str]:
        """One line for each call, and one that counts those that have none."""
        lines = [_describe(call) for call in self.calls[:MOST]]
        return [*lines, f"and {self.more} more"] if self.more else lines


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TITLE else f"{text[:_MOST_TITLE]}…"


def _say_left(left: timedelta) -> str:
    minutes = max(0, int(left.total_seconds() // 60))
    return f"{minutes // 60} h left" if minutes >= 60 else f"{minutes} min left"


def _describe(call: WaitingCall) -> str:
    title = _cut(call.title)
    place = f", in “{call.app_name}”" if call.app_name else ""
    words = f"“{title}”{place}, asked by “{call.asked_by[:_MOST_TITLE]}”"
    # What should be read before all else, where only the first lines are shown.
    return words if call.warning is None else f"Check: {_cut(call.warning)} {words}"


def compose_webhook(message: Notice) -> bytes:
    data: Mapping[str, Any] = {
        "approvals": [
            {
                "id": call.id,
                "title": call.title,
                "tool": call.tool,
                "effect": call.effect,
                "asked_by": call.asked_by,
                "warning": call.warning,
                "app_name": call.app_name,
                "expires_at": call.expires_at,
                "url": call.url,
            }
            for call in message.calls[:MOST]
        ],
        "count": len(message.calls),
        "url": message.url,
    }
    kind = "notices.test" if message.is_test else "approvals.waiting"
    return to_json({"type": kind, "timestamp": message.sent_at, "data": data})


def compose_slack(message: Notice) -> bytes:
    text = "\n".join([message.subject, *message.lines])
    button = {"type": "button", "text": {"type": "plain_text", "text": "Open the console"}, "url": message.link}
    # Plain text is shown as it is: no mention, link or mark in it is one.
    section = {"type": "section", "text": {"type": "plain_text", "text": text[:3000], "emoji": False}}
    return to_json({"text": message.subject, "blocks": [section, {"type": "actions", "elements": [button]}]})


def compose_discord(message: Notice) -> bytes:
    lines = "\n".join(_DISCORD_MARKS.sub(r"\\\1", line) for line in message.lines)
    embed = {"title": message.subject, "url": message.link, "description": lines[:4000]}
    return to_json({"content": message.link, "embeds": [embed], "allowed_mentions": {"parse": []}})


def compose_push(message: Notice) -> bytes:
    """Returns the text that our service worker shows; the tag replaces a notification that came twice."""
    body = "\n".join(message.lines[:3])
    return to_json({"title": message.subject, "body": body[:500], "url": message.link, "tag": message.id})
