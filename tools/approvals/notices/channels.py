"""Channels: where a person is told, and how one message gets there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.net.egress import AddressRefused, EgressError, EgressTimeout, UrlRefused
from baobab.runtime.net.webhooks import build_headers
from baobab.storage.secrets import Vault
from baobab.tools.approvals.notices.messages import (
    Notice,
    compose_discord,
    compose_push,
    compose_slack,
    compose_webhook,
)
from baobab.tools.approvals.notices.push import PushSender, encrypt
from baobab.tools.approvals.notices.tables import notice_channels
from baobab.tools.core import Services

EMAIL, WEBHOOK, SLACK, DISCORD, PUSH = "email", "webhook", "slack", "discord", "push"
REPEATABLE = frozenset((WEBHOOK, PUSH))
"""Kinds whose receiver recognises a message that comes twice: by its id, or by the tag of its notification."""
_SECONDS = 10.0
_MOST_ANSWER = 64 * 1024
_GONE = (404, 410)
_NEVER = (400, 401, 403, 405, 413)
_COMPOSE: Mapping[str, Callable[[Notice], bytes]] = {
    WEBHOOK: compose_webhook,
    SLACK: compose_slack,
    DISCORD: compose_discord,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt to send. fault: None if the message was accepted.

    is_final: whether another attempt is pointless. is_unknown: whether it may have been taken all the same.
    is_gone: whether the receiver says that the channel itself no longer exists.
    """

    fault: str | None = None
    is_final: bool = False
    is_unknown: bool = False
    is_gone: bool = False


def seal_context(column: str, channel_id: str) -> str:
    return f"{notice_channels.name}.{column}:{channel_id}"


def open_target(vault: Vault, row: Any) -> dict[str, str]:
    """Returns the address of a channel: `email`, or `url`, with `p256dh` and `auth` for push."""
    target: dict[str, str] = json.loads(vault.open(row.target, seal_context("target", row.id)))
    return target


def open_secret(vault: Vault, row: Any) -> str:
    return vault.open(row.secret, seal_context("secret", row.id)).decode()


async def send_message(services: Services, row: Any, message: Notice) -> Outcome:
    """Makes one attempt to send a message to a channel that is no mail address."""
    target = open_target(services.vault, row)
    if row.kind == PUSH:
        body = encrypt(compose_push(message), target["p256dh"], target["auth"])
        authorization = await services.of(PushSender).build_authorization(target["url"], services.clock.now())
        headers = {"content-encoding": "aes128gcm", "content-type": "application/octet-stream", "ttl": "86400"}
        headers |= {"urgency": "high", "topic": message.id.replace("-", ""), "authorization": authorization}
    else:
        body = _COMPOSE[row.kind](message)
        secrets = [open_secret(services.vault, row)] if row.kind == WEBHOOK else []
        headers = build_headers(message.id, message.sent_at, body, secrets) | {"idempotency-key": message.id}
    try:
        answer = await services.http_client.request(
            "POST", target["url"], headers=headers, body=body, timeout=_SECONDS, max_bytes=_MOST_ANSWER
        )
    except EgressError as error:
        is_final = isinstance(error, (AddressRefused, UrlRefused))
        return Outcome(error.message, is_final=is_final, is_unknown=isinstance(error, EgressTimeout))
    if answer.status < 300:
        return Outcome()
    is_gone = row.kind != WEBHOOK and answer.status in _GONE
    is_final = is_gone or (row.kind != WEBHOOK and answer.status in _NEVER)
    return Outcome(f"It answered {answer.status}.", is_final=is_final, is_gone=is_gone)
