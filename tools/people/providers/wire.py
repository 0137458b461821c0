"""What the wires of real providers share: requests, and the meaning of refusals."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pydantic_core import from_json, to_json

from baobab.runtime.net.egress import EgressError
from baobab.tools.core.services import HttpClient
from baobab.tools.people.errors import (
    ProviderBusy,
    ProviderError,
    ProviderFailed,
    ProviderForbidden,
    ProviderNotFound,
    ProviderRefused,
    ProviderUnauthorized,
    ProviderUnpaid,
    ProviderUnprocessable,
)

_SECONDS = 60.0
_MOST_BYTES = 5 * 2**20
_MOST_WORDS = 300
_BUSY_SECONDS = 60
_FIRST_FAILURE, _MOST_BUSY = 500, 3600
_ERRORS: Mapping[int, type[ProviderError]] = {
    401: ProviderUnauthorized,
    402: ProviderUnpaid,
    403: ProviderForbidden,
    404: ProviderNotFound,
    422: ProviderUnprocessable,
}
_UNSEEN = re.compile(r"[^ -~]+")


class Wire:
    """One provider's HTTP API. headers: those that hold the key."""

    def __init__(self, client: HttpClient, base_url: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)

    async def get(self, path: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Reads an object. A first failure of the provider is tried again: nothing is done twice by a read."""
        target = f"{path}?{urlencode(parameters)}"
        try:
            return await self.send("GET", target)
        except ProviderFailed:
            return await self.send("GET", target)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self.send("POST", path, body)

    async def send(self, method: str, target: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends one request and returns the object of its answer. Raises ProviderError."""
        headers = {**self._headers, "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            answer = await self._client.request(
                method,
                self._base_url + target,
                headers=headers,
                body=None if body is None else to_json(body),
                timeout=_SECONDS,
                max_bytes=_MOST_BYTES,
            )
        except EgressError as exc:
            raise ProviderFailed(f"The provider of people did not answer. {exc.message}") from exc
        if answer.status >= _FIRST_FAILURE or answer.status in range(300, 400):
            raise ProviderFailed(f"The provider of people failed with the status {answer.status}.")
        content = _read_object(answer.body)
        if answer.status in range(400, _FIRST_FAILURE):
            raise _read_refusal(answer.status, answer.headers, content)
        if content is None:
            raise ProviderFailed("The answer of the provider of people cannot be read.")
        return content


def _read_object(body: bytes) -> dict[str, Any] | None:
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _read_refusal(status: int, headers: Mapping[str, str], content: dict[str, Any] | None) -> ProviderError:
    if status == 429:
        wait = headers.get("Retry-After", "")
        return ProviderBusy(retry_after=min(int(wait), _MOST_BUSY) if wait.isdigit() else _BUSY_SECONDS)
    kind = _ERRORS.get(status, ProviderRefused)
    words = ""
    if content is not None and issubclass(kind, ProviderRefused):
        # What the caller has sent wrong, in the provider's words.
        reason = content.get("description") or content.get("message") or content.get("error") or ""
        words = _UNSEEN.sub(" ", reason)[:_MOST_WORDS] if isinstance(reason, str) else ""
    return kind(f"{kind.summary} It says: {words}" if words else None)


def as_text(value: Any) -> str | None:
    """Returns a text of a provider's; None for anything else."""
    return value if isinstance(value, str) and value else None


def as_objects(value: Any) -> list[dict[str, Any]]:
    """Returns the objects of a provider's list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
