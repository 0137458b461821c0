"""Logs a sample of the requests that are refused before they reach the application; strangers can cause many."""

import logging
import time

_EVERY_SECONDS = 10.0
_LONGEST = 200

_log = logging.getLogger("uvicorn.error")


class RefusalLog:
    """Logs the first refusal at once, then one every ten seconds, with the number of others in between."""

    def __init__(self) -> None:
        self._next = 0.0
        self._unsaid = 0

    def write(self, client: str, status: int, code: str, request_id: str, path: bytes) -> None:
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        unsaid, self._unsaid, self._next = self._unsaid, 0, now + _EVERY_SECONDS
        unsaid_note = f", and {unsaid} others since the last that was logged" if unsaid else ""
        printable_path = (
            path[:_LONGEST].decode("latin-1").partition("?")[0].encode("ascii", "backslashreplace").decode()
        )
        _log.warning(
            "Refused a request from %s: %d %s%s",
            client,
            status,
            code,
            unsaid_note,
            extra={"request_id": request_id, "path": "".join(c if c.isprintable() else "?" for c in printable_path)},
        )
