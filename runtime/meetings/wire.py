"""The requests to a provider of meeting bots, whose failures become the errors of the port."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.meetings.provider import BotGone, ProviderBusy, ProviderRefused
from baobab.runtime.net.egress import EgressError, EgressResponse
from baobab.tools.core.services import HttpClient

_SECONDS = 20.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 30.0, 600.0
_ACCOUNT_SECONDS = 300.0
_LONGEST_WORDS = 300
_BUSY = frozenset({408, 409, 423, 425, 429, 507})
_OF_ACCOUNT: Mapping[int, str] = {
    401: "The provider of meetings does not accept this server's key.",
    402: "This server's account at the provider of meetings has no credits left.",
    403: "The provider of meetings does not let this server do that.",
}


class Wire:
    """JSON over HTTP to one provider."""

    def __init__(self, http_client: HttpClient, base_url: str, headers: Mapping[str, str]) -> None:
        self._http_client = http_client
        self._base_url = base_url.rstrip("/")
        self._headers = {"accept": "application/json", **headers}

    async def send(self, method: str, path: str, body: Any = None, *, starts: bool = False, conflict: str = "") -> Any:
        """Sends a request and returns the JSON of its answer; None for an empty one.

        starts: whether it starts a bot, which is refused for good where this server's account is at fault. Other
        requests are about bots that there are, and wait until the operator has mended that. conflict: what a 409 means.
        """
        url = path if path.startswith("https://") else f"{self._base_url}{path}"
        options: dict[str, Any] = {"headers": self._headers}
        if body is not None:
            options |= {"headers": {**self._headers, "content-type": "application/json"}, "body": to_json(body)}
        answer = await self._request(method, url, options)
        if 200 <= answer.status < 300:
            return _read_json(answer.body) if answer.body else None
        if answer.status == 409 and conflict:
            raise ProviderBusy(conflict, _read_pause(answer))
        raise self._translate(answer, starts=starts)

    async def fetch(self, url: str) -> Any:
        """Returns the JSON at an address that the provider has named, without this server's key."""
        answer = await self._request("GET", url, {"max_bytes": 50 * 2**20})
        if answer.status != 200:
            raise BotGone if answer.status in (403, 404, 410) else ProviderBusy(f"{answer.status} for a file")
        return _read_json(answer.body)

    async def _request(self, method: str, url: str, options: dict[str, Any]) -> EgressResponse:
        try:
            answer: EgressResponse = await self._http_client.request(method, url, timeout=_SECONDS, **options)
        except EgressError as exc:
            raise ProviderBusy(exc.message, _PAUSE_SECONDS) from exc
        return answer

    def _translate(self, answer: EgressResponse, *, starts: bool) -> Exception:
        if answer.status in _BUSY or answer.status >= 500:
            return ProviderBusy(f"The provider answered {answer.status}.", _read_pause(answer))
        if answer.status in _OF_ACCOUNT:
            words = _OF_ACCOUNT[answer.status]
            return ProviderRefused("provider_refused", words) if starts else ProviderBusy(words, _ACCOUNT_SECONDS)
        if answer.status in (404, 410):
            return BotGone()
        return ProviderRefused(*_read_refusal(answer.body))


def _read_json(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError as exc:
        raise ProviderBusy("The provider's answer is no JSON.", _PAUSE_SECONDS) from exc


def _read_pause(answer: EgressResponse) -> float:
    text = answer.headers.get("Retry-After", "")
    seconds = float(text) if text.isascii() and text.isdigit() else _PAUSE_SECONDS
    return min(seconds, _LONGEST_PAUSE_SECONDS)


def _read_refusal(body: bytes) -> tuple[str, str]:
    """Returns the code and the words of a refusal: `{code, detail}`, or texts by field."""
    try:
        content = from_json(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return "provider_refused", "The provider refused the bot."
    code = content.get("code")
    texts = [_join(name, value) for name, value in content.items() if name != "code"]
    words = " ".join(filter(None, texts))[:_LONGEST_WORDS]
    return code if isinstance(code, str) and code else "provider_refused", words or "The provider refused the bot."


def _join(name: str, value: Any) -> str:
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    prefix = "" if name in ("detail", "message", "error", "non_field_errors") else f"{name}: "
    return prefix + " ".join(texts) if texts else ""
