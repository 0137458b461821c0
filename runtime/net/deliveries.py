"""Webhooks that are sent again for a day until their receiver takes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from baobab.runtime.net.addresses import EgressError

_SECONDS = 15.0
_PAUSES = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 21_600.0)
"""Seconds from each failed delivery to the next; after the last, 24 hours less some minutes have passed."""
_LONGEST_ERROR = 500


class Client(Protocol):
    """The guarded client, as far as it is needed here."""

    async def request(self, method: str, url: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a delivery. values: the columns `attempts`, `answer_status`, `error`, `status`, `delivered_at` and
    `next_attempt_at` after it. pause: the seconds to the next one; None if there is none.
    """

    values: Mapping[str, Any]
    pause: float | None


async def send(
    client: Client, url: str, headers: Mapping[str, str], body: bytes, attempts: int, now: datetime
) -> Attempt:
    """Sends a webhook once. Only a status from 200 to 299 is a success. attempts: how many there were before."""
    answer_status, error = None, None
    try:
        answer = await client.request("POST", url, headers=headers, body=body, timeout=_SECONDS)
        answer_status = answer.status
        if not 200 <= answer.status < 300:
            error = f"The receiver answered {answer.status}."
    except EgressError as exc:
        error = exc.message[:_LONGEST_ERROR]
    return build_attempt(attempts, answer_status, error, now)


def build_attempt(attempts: int, answer_status: int | None, error: str | None, now: datetime) -> Attempt:
    """Returns what follows from an attempt. error: why it failed; None if it did not."""
    pause = None if error is None or attempts >= len(_PAUSES) else _PAUSES[attempts]
    values: dict[str, Any] = {"attempts": attempts + 1, "answer_status": answer_status, "error": error}
    if error is None:
        values |= {"status": "delivered", "delivered_at": now, "next_attempt_at": None}
    elif pause is None:
        values |= {"status": "failed", "next_attempt_at": None}
    else:
        values |= {"next_attempt_at": now + timedelta(seconds=pause)}
    return Attempt(values, pause)
