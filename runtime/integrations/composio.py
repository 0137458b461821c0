"""The wire of Composio (REST v3.1), which has hundreds of toolkits and keeps the tokens of their accounts itself."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from pydantic_core import from_json, to_json

from baobab.runtime.integrations.facts import load_facts
from baobab.runtime.integrations.provider import (
    CURATED,
    Connected,
    ConnectFailed,
    Connection,
    ConnectionLost,
    Effect,
    Grant,
    Link,
    LinkOrder,
    Outcome,
    ProviderBusy,
    Setting,
    ToolFacts,
    ToolFailed,
    Toolkit,
    ToolUnknown,
)
from baobab.runtime.net.egress import EgressError, EgressResponse
from baobab.runtime.net.webhooks import is_signed
from baobab.tools.core.services import HttpClient

NAME = "composio"
URL = "https://backend.composio.dev"
_SECONDS, _EXECUTE_SECONDS = 20.0, 60.0
_PAGE, _MOST_TOOLS = 500, 2000
_FOUND = 50
_OURS = {slug.replace("-", ""): slug for slug in CURATED}
"""Our slugs of the curated toolkits by Composio's, which have no hyphens."""
_LONGEST_WORDS = 500


class HookRefused(Exception):
    """The webhook is not signed with our secret, or was signed too long ago."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """What a verified webhook says of a connected account. status: as Composio has it."""

    external_id: str
    status: str
    reason: str


class Composio:
    """Composio, with the key of the operator's project."""

    name = NAME
    is_simulated = False

    def __init__(self, http_client: HttpClient, key: str, url: str, webhook_secret: str) -> None:
        self._http_client = http_client
        self._base_url = f"{(url or URL).rstrip('/')}/api/v3.1"
        self._headers = {"accept": "application/json", "x-api-key": key}
        self._secret = webhook_secret

    async def list_toolkits(self, search: str) -> Sequence[Toolkit]:
        if not search:
            facts = load_facts()
            return [facts[slug].toolkit for slug in CURATED]
        query = urlencode({"search": search, "limit": _FOUND, "sort_by": "usage"})
        answer = await self._ask("GET", f"/toolkits?{query}")
        return [_read_toolkit(each) for each in _list_items(answer)]

    async def find_toolkit(self, slug: str) -> Toolkit | None:
        answer = await self._ask("GET", f"/toolkits/{quote(_to_theirs(slug))}", missing=True)
        return None if answer is None else _read_toolkit(answer)

    async def list_tools(self, toolkit: str) -> Sequence[ToolFacts]:
        tools: list[ToolFacts] = []
        cursor: str | None = None
        while len(tools) < _MOST_TOOLS:
            parameters = {"toolkit_slug": _to_theirs(toolkit), "limit": str(_PAGE)}
            parameters |= {} if cursor is None else {"cursor": cursor}
            answer = await self._ask("GET", f"/tools?{urlencode(parameters)}")
            tools += [_read_tool(each, toolkit) for each in _list_items(answer)]
            cursor = answer.get("next_cursor")
            if not cursor:
                break
        return tools

    async def find_tool(self, toolkit: str, name: str) -> ToolFacts:
        answer = await self._ask("GET", f"/tools/{quote(name)}", missing=True)
        its_toolkit = answer.get("toolkit", {}).get("slug") if answer else None
        if answer is None or its_toolkit != _to_theirs(toolkit):
            raise ToolUnknown(f"The toolkit {toolkit} has no tool {name}.")
        return _read_tool(answer, toolkit)

    async def enable(self, setting: Setting) -> str | None:
        auth_config: dict[str, Any]
        scopes = ",".join(setting.scopes)
        if setting.client is None:
            auth_config = {"type": "use_composio_managed_auth"}
            if scopes:
                auth_config["credentials"] = {"scopes": scopes}
        else:
            credentials = {"client_id": setting.client.client_id, "client_secret": setting.client.client_secret}
            credentials |= {"scopes": scopes} if scopes else {}
            auth_config = {"type": "use_custom_auth", "authScheme": "OAUTH2", "credentials": credentials}
        if setting.reference is not None:
            kind = "default" if setting.client is None else "custom"
            change = {"type": kind, "credentials": auth_config.get("credentials", {})}
            if await self._ask("PATCH", f"/auth_configs/{quote(setting.reference)}", change, missing=True) is not None:
                return setting.reference
        body = {"toolkit": {"slug": _to_theirs(setting.toolkit)}, "auth_config": auth_config}
        answer = await self._ask("POST", "/auth_configs", body)
        reference = answer.get("auth_config", {}).get("id")
        if not isinstance(reference, str):
            raise ProviderBusy("Composio's answer names no auth config.")
        return reference

    async def disable(self, setting: Setting) -> None:
        if setting.reference is not None:
            await self._ask("PATCH", f"/auth_configs/{quote(setting.reference)}/DISABLED", missing=True)

    async def begin(self, order: LinkOrder) -> Link:
        callback_url = f"{order.callback_url}?{urlencode({'state': order.state})}"
        body = {"auth_config_id": order.setting.reference, "user_id": order.user, "callback_url": callback_url}
        body |= {} if order.alias is None else {"alias": order.alias}
        answer = await self._ask("POST", "/connected_accounts/link", body)
        address, account_id = answer.get("redirect_url"), answer.get("connected_account_id")
        if not isinstance(address, str) or urlsplit(address).scheme not in ("http", "https"):
            raise ConnectFailed("Composio's answer has no address to go to.")
        return Link(address, account_id if isinstance(account_id, str) else None)

    async def finish(self, order: LinkOrder, query: Mapping[str, str], external_id: str | None) -> Connected:
        if external_id is None or query.get("connected_account_id", external_id) != external_id:
            raise ConnectFailed("The browser has come back with another account than the one that was asked for.")
        account = await self._ask("GET", f"/connected_accounts/{quote(external_id)}", missing=True)
        if account is None:
            raise ConnectFailed("Composio has no such account.")
        its_toolkit = account.get("toolkit", {}).get("slug")
        if account.get("user_id") != order.user or its_toolkit != _to_theirs(order.setting.toolkit):
            raise ConnectFailed("The account belongs to somebody else.")
        if account.get("status") != "ACTIVE":
            raise ConnectFailed(f"The account is {account.get('status')}: {account.get('status_reason') or ''}")
        name = account.get("alias") or order.alias or f"{order.setting.toolkit} {external_id}"
        return Connected(None, _find_name(account) or str(name), order.setting.scopes, None, external_id)

    async def refresh(self, setting: Setting, grant: Grant) -> Grant:
        # Composio refreshes by itself; asking it to would put a good account back to its beginning.
        del setting
        return grant

    async def revoke(self, setting: Setting, connection: Connection) -> None:
        del setting
        if connection.external_id is None:
            return
        path = f"/connected_accounts/{quote(connection.external_id)}"
        await self._ask("POST", f"{path}/revoke", {}, missing=True)
        await self._ask("DELETE", path, missing=True)

    async def execute(
        self, setting: Setting, connection: Connection, tool: ToolFacts, params: Mapping[str, Any], key: str
    ) -> Outcome:
        del setting, key
        if connection.external_id is None:
            raise ConnectionLost("There is no account at Composio.")
        body = {
            "connected_account_id": connection.external_id,
            "user_id": connection.user,
            "arguments": dict(params),
            # Without a version, Composio takes the oldest one.
            "version": tool.version or "latest",
        }
        path = f"/tools/execute/{quote(tool.name)}"
        answer = await self._ask("POST", path, body, seconds=_EXECUTE_SECONDS, is_call=tool.effect != "read")
        if answer.get("successful") is not True:
            raise ToolFailed(str(answer.get("error") or "The tool has failed.")[:_LONGEST_WORDS])
        return Outcome(answer.get("data"))

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> HookEvent | None:
        """Returns what a webhook says; None for one that says nothing of an account. Raises HookRefused."""
        if not self._secret or not is_signed(_read_secret(self._secret), headers, body, now):
            raise HookRefused
        try:
            content = from_json(body)
        except ValueError:
            return None
        data = content.get("data") if isinstance(content, dict) else None
        if not isinstance(data, dict) or not str(content.get("type")).startswith("composio.connected_account."):
            return None
        if not isinstance(data.get("id"), str):
            return None
        return HookEvent(data["id"], str(data.get("status")), str(data.get("status_reason") or "")[:_LONGEST_WORDS])

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        missing: bool = False,
        seconds: float = _SECONDS,
        is_call: bool = False,
    ) -> Any:
        """Returns the JSON of an answer. missing: None where there is no such thing, in place of an error.

        is_call: whether the request may have had its effect although no answer came.
        """
        options: dict[str, Any] = {"headers": self._headers, "timeout": seconds}
        if body is not None:
            options |= {"headers": {**self._headers, "content-type": "application/json"}, "body": to_json(body)}
        try:
            answer: EgressResponse = await self._http_client.request(method, f"{self._base_url}{path}", **options)
        except EgressError as exc:
            raise ProviderBusy(exc.message, was_sent=is_call) from exc
        if 200 <= answer.status < 300:
            try:
                return from_json(answer.body) if answer.body else {}
            except ValueError as exc:
                raise ProviderBusy("Composio's answer is no JSON.", was_sent=is_call) from exc
        if answer.status == 404 and missing:
            return None
        raise _translate(answer, is_call=is_call)


def _translate(answer: EgressResponse, *, is_call: bool) -> Exception:
    try:
        error = from_json(answer.body).get("error")
    except (ValueError, AttributeError):
        error = None
    values = error if isinstance(error, dict) else {"message": error}
    words = " ".join(str(values[name]) for name in ("message", "suggested_fix") if values.get(name))[:_LONGEST_WORDS]
    text = answer.headers.get("Retry-After", "")
    pause = float(text) if text.isascii() and text.isdigit() else None
    if answer.status == 429:
        return ProviderBusy(f"Composio takes no more calls now. {words}".strip(), pause or 60.0, is_limit=True)
    if answer.status in (401, 403):
        return ProviderBusy("Composio does not accept this server's key.")
    if answer.status >= 500 or answer.status in (408, 425):
        return ProviderBusy(f"Composio answered {answer.status}. {words}".strip(), pause, was_sent=is_call)
    if not is_call and answer.status != 400:
        return ProviderBusy(f"Composio answered {answer.status}. {words}".strip())
    return ToolFailed(words or f"Composio answered {answer.status}.") if is_call else ProviderBusy(words)


def _to_theirs(slug: str) -> str:
    return slug.replace("-", "") if slug in CURATED else slug


def _list_items(answer: Any) -> list[dict[str, Any]]:
    items = answer.get("items") if isinstance(answer, dict) else None
    return [each for each in items or [] if isinstance(each, dict)]


def _read_toolkit(item: Mapping[str, Any]) -> Toolkit:
    slug, schemes = str(item.get("slug")), item.get("auth_schemes") or []
    ours = _OURS.get(slug, slug)
    facts, meta = load_facts().get(ours), item.get("meta") or {}
    schemes = schemes or [each.get("mode") for each in item.get("auth_config_details") or [] if each.get("mode")]
    managed_schemes = item.get("composio_managed_auth_schemes") or []
    return Toolkit(
        ours,
        CURATED.get(ours) or str(item.get("name") or slug),
        str(meta.get("description") or ""),
        tuple(str(each) for each in schemes) or ("NO_AUTH",),
        needs_credentials=not managed_schemes and not item.get("no_auth"),
        scopes=() if facts is None else facts.toolkit.scopes,
    )


def _read_tool(item: Mapping[str, Any], toolkit: str) -> ToolFacts:
    tags = item.get("tags") or []
    effect: Effect = "read" if "readOnlyHint" in tags else "external"
    parameters = item.get("input_parameters") or {"type": "object"}
    scopes = tuple(str(each) for each in item.get("scopes") or ())
    version = item.get("version")
    return ToolFacts(
        str(item.get("slug")),
        toolkit,
        str(item.get("description") or ""),
        parameters if isinstance(parameters, dict) else {"type": "object"},
        effect,
        scopes,
        version=version if isinstance(version, str) else None,
    )


def _find_name(account: Mapping[str, Any]) -> str | None:
    """Returns what the service calls an account, where Composio tells it."""
    data = account.get("data")
    state = account.get("state")
    inner = state.get("val") if isinstance(state, dict) else None
    for values in (data, inner):
        if isinstance(values, dict):
            for name in ("email", "user_email", "login", "username", "team_name", "workspace_name"):
                if isinstance(values.get(name), str) and values[name]:
                    return str(values[name])
    return None


def _read_secret(text: str) -> str:
    """Returns a signing secret in the standard form: it comes so, or as plain text."""
    if text.startswith("whsec_"):
        try:
            base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except ValueError:
            pass
        else:
            return text
    return f"whsec_{base64.b64encode(text.encode()).decode()}"
