"""The provider that needs nobody else: OAuth with the curated services themselves, and their own HTTP interfaces.

What each service does differently is in its file in `toolkits/`. An OAuth client is the app's own, else the operator's.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

from pydantic_core import from_json, to_json

from baobab.runtime.integrations.facts import Facts, complete_params, load_facts
from baobab.runtime.integrations.handlers import READERS, WRITERS
from baobab.runtime.integrations.provider import (
    Client,
    Connected,
    ConnectFailed,
    Connection,
    ConnectionLost,
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
from baobab.runtime.net.egress import EgressError, EgressResponse, EgressTimeout
from baobab.storage.clock import Clock
from baobab.tools.core.services import HttpClient

NAME = "oauth"
_SECONDS, _TOKEN_SECONDS = 30.0, 20.0
_LARGEST_ANSWER = 5 * 2**20
_PAUSE_SECONDS = 30.0
_TERMINAL = frozenset(
    {
        "invalid_grant",
        "invalid_client",
        "unauthorized_client",
        "access_denied",
        "app_session_terminated",
        "bad_refresh_token",
    }
)
"""What a service answers where a refresh token is good no more, whoever asks again."""
_LOST = frozenset({"invalid_auth", "token_revoked", "token_expired", "account_inactive", "not_authed"})
"""The same, as Slack says it of an access token, with a status of 200."""
_PLACE = re.compile(r"\{(\w+)\}")
_LONGEST_WORDS = 500


class OwnOAuth:
    """The curated services, each by its own OAuth and HTTP interface."""

    name = NAME
    is_simulated = False

    def __init__(self, http_client: HttpClient, clock: Clock, clients: Mapping[str, Client]) -> None:
        """clients: the operator's, by toolkit."""
        self._http_client = http_client
        self._clock = clock
        self._clients = clients

    async def list_toolkits(self, search: str) -> Sequence[Toolkit]:
        words = search.lower()
        toolkits = [self._describe(facts) for facts in load_facts().values()]
        return [each for each in toolkits if words in each.slug or words in each.name.lower()]

    async def find_toolkit(self, slug: str) -> Toolkit | None:
        facts = load_facts().get(slug)
        return None if facts is None else self._describe(facts)

    def _describe(self, facts: Facts) -> Toolkit:
        return replace(facts.toolkit, needs_credentials=facts.toolkit.slug not in self._clients)

    async def list_tools(self, toolkit: str) -> Sequence[ToolFacts]:
        return list(load_facts()[toolkit].tools.values())

    async def find_tool(self, toolkit: str, name: str) -> ToolFacts:
        facts = load_facts().get(toolkit)
        if facts is None or name not in facts.tools:
            raise ToolUnknown(f"The toolkit {toolkit} has no tool {name}.")
        return facts.tools[name]

    async def enable(self, setting: Setting) -> str | None:
        del setting
        return None

    async def disable(self, setting: Setting) -> None:
        del setting

    async def begin(self, order: LinkOrder) -> Link:
        oauth, client = load_facts()[order.setting.toolkit].oauth, self._find_client(order.setting)
        parameters = {
            "client_id": client.client_id,
            "redirect_uri": order.callback_url,
            "response_type": "code",
            "state": order.state,
            **oauth.get("further", {}),
        }
        if not oauth.get("without_scopes"):
            scopes = oauth.get("separator", " ").join(order.setting.scopes)
            parameters[oauth.get("scope_parameter", "scope")] = scopes
        if oauth.get("pkce"):
            digest = hashlib.sha256(order.verifier.encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            parameters |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        return Link(f"{oauth['authorize']}?{urlencode(parameters)}")

    async def finish(self, order: LinkOrder, query: Mapping[str, str], external_id: str | None) -> Connected:
        del external_id
        facts, client = load_facts()[order.setting.toolkit], self._find_client(order.setting)
        if not query.get("code"):
            raise ConnectFailed("The service has sent the browser back without a code.")
        form = {"grant_type": "authorization_code", "code": query["code"], "redirect_uri": order.callback_url}
        if facts.oauth.get("pkce"):
            form["code_verifier"] = order.verifier
        answer = await self._ask_tokens(facts, client, form)
        if "error" in answer or answer.get("ok") is False:
            raise ConnectFailed(f"The service has refused the code: {_name_error(answer)}")
        tokens = answer.get(facts.oauth["token_in"], {}) if "token_in" in facts.oauth else answer
        grant = self._read_grant(tokens, None)
        if grant is None:
            raise ConnectFailed("The service has given no token.")
        account_id, account_name = await self._identify(facts, grant, answer)
        return Connected(account_id, account_name, _read_scopes(tokens, order.setting), grant)

    async def _identify(self, facts: Facts, grant: Grant, answer: Mapping[str, Any]) -> tuple[str, str]:
        """Returns the service's id of the account, and what people call it."""
        content: Any = answer
        if "url" in facts.account:
            url = facts.account["url"].replace("{access_token}", quote(grant.access_token, safe=""))
            response = await self._send("GET", url, _build_headers(facts, grant), None, _TOKEN_SECONDS)
            content = _read_json(response) if response.status == 200 else None
        values = content if isinstance(content, dict) else {}
        account_id = _read_path(values, facts.account["id"])
        if account_id is None or values.get("ok") is False:
            raise ConnectFailed("The service does not say whose account it is.")
        name = facts.account["name"]
        if "{" in name:
            return account_id, _PLACE.sub(lambda match: _read_path(values, match[1]) or "", name)
        return account_id, _read_path(values, name) or account_id

    async def refresh(self, setting: Setting, grant: Grant) -> Grant:
        if grant.refresh_token is None:
            if grant.expires_at is not None and grant.expires_at <= self._clock.now():
                raise ConnectionLost("The grant has ended, and the service gives no new one without its user.")
            return grant
        facts, client = load_facts()[setting.toolkit], self._find_client(setting)
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
        answer = await self._ask_tokens(facts, client, form)
        if "error" in answer or answer.get("ok") is False:
            reason = _name_error(answer)
            if reason in _TERMINAL:
                raise ConnectionLost(f"The service does not renew the grant: {reason}.")
            raise ProviderBusy(f"The service did not renew the grant: {reason}.", _PAUSE_SECONDS)
        fresh = self._read_grant(answer, grant.refresh_token)
        if fresh is None:
            raise ProviderBusy("The service's answer has no token.", _PAUSE_SECONDS)
        return fresh

    async def revoke(self, setting: Setting, connection: Connection) -> None:
        facts, grant = load_facts()[setting.toolkit], connection.grant
        address = facts.oauth.get("revoke")
        if address is None or grant is None:
            return
        client = self._find_client(setting)
        places = {"client_id": client.client_id, "refresh_token": grant.refresh_token or ""}
        url = _PLACE.sub(lambda match: quote(places.get(match[1], ""), safe=""), address)
        way, headers = facts.oauth.get("revoke_with", "form"), {"accept": "application/json"}
        method, body = "POST", b""
        match way:
            case "bearer":
                headers["authorization"] = f"Bearer {grant.access_token}"
            case "delete":
                method = "DELETE"
            case _:
                token = grant.refresh_token or grant.access_token
                if way == "basic":
                    headers["authorization"] = _build_basic(client)
                if "{client_id}" in address:
                    method, body = "DELETE", to_json({"access_token": grant.access_token})
                elif facts.oauth.get("body") == "json":
                    body = to_json({"token": grant.access_token})
                else:
                    body = urlencode({"token": token}).encode()
                is_json = body.startswith(b"{")
                headers["content-type"] = "application/json" if is_json else "application/x-www-form-urlencoded"
        headers |= facts.oauth.get("headers", {})
        answer = await self._send(method, url, headers, body or None, _TOKEN_SECONDS)
        if answer.status >= 500:
            raise ProviderBusy(f"The service answered {answer.status}.", _PAUSE_SECONDS)

    async def execute(
        self, setting: Setting, connection: Connection, tool: ToolFacts, params: Mapping[str, Any], key: str
    ) -> Outcome:
        del key
        facts, grant = load_facts()[setting.toolkit], connection.grant
        if grant is None:
            raise ConnectionLost("There is no grant for this account.")
        values, request = complete_params(tool, params), load_facts()[setting.toolkit].requests[tool.name]
        in_path = {match[1] for match in _PLACE.finditer(request.url)}
        safe = "/" if setting.toolkit == "github" else ""
        url = _PLACE.sub(lambda match: quote(str(values.get(match[1], "")), safe=safe), request.url)
        query = {theirs: _write_query(values[ours]) for theirs, ours in request.query.items() if ours in values}
        if query:
            url += f"{'&' if '?' in url else '?'}{urlencode(query)}"
        body: Any = None
        if request.first is not None:
            body = WRITERS[request.first]({name: value for name, value in values.items() if name not in in_path})
        elif request.body is not None:
            body = {theirs: values[ours] for theirs, ours in request.body.items() if ours in values}
        headers = _build_headers(facts, grant)
        if body is not None:
            headers["content-type"] = "application/json"
        text = None if body is None else to_json(body)
        is_read = tool.effect == "read"
        data = _read_answer(await self._send(request.method, url, headers, text, _SECONDS, is_read=is_read))
        if request.then is None:
            return Outcome(data)

        async def read_on(address: str) -> Any:
            answer = await self._send("GET", address, headers, None, _SECONDS, is_read=True)
            return _read_answer(answer)

        return Outcome(await READERS[request.then](data, read_on))

    async def _ask_tokens(self, facts: Facts, client: Client, form: Mapping[str, str]) -> dict[str, Any]:
        headers = {"accept": "application/json", **facts.oauth.get("headers", {})}
        values = dict(form)
        if facts.oauth.get("client") == "basic":
            headers["authorization"] = _build_basic(client)
        else:
            values |= {"client_id": client.client_id, "client_secret": client.client_secret}
        is_json = facts.oauth.get("body") == "json"
        headers["content-type"] = "application/json" if is_json else "application/x-www-form-urlencoded"
        body = to_json(values) if is_json else urlencode(values).encode()
        answer = await self._send("POST", facts.oauth["token"], headers, body, _TOKEN_SECONDS)
        if answer.status >= 500 or answer.status == 429:
            raise ProviderBusy(f"The service answered {answer.status}.", _read_pause(answer) or _PAUSE_SECONDS)
        content = _read_json(answer)
        if not isinstance(content, dict):
            raise ProviderBusy("The service's answer is no object.", _PAUSE_SECONDS)
        if answer.status >= 400 and "error" not in content:
            content["error"] = str(content.get("status") or answer.status)
        return content

    def _read_grant(self, tokens: Mapping[str, Any], former: str | None) -> Grant | None:
        access_token, refresh_token = tokens.get("access_token"), tokens.get("refresh_token")
        if not isinstance(access_token, str) or not access_token:
            return None
        seconds = tokens.get("expires_in")
        ends_at = None
        if isinstance(seconds, (int, float)) and seconds > 0:
            ends_at = self._clock.now() + timedelta(seconds=float(seconds))
        return Grant(access_token, refresh_token if isinstance(refresh_token, str) else former, ends_at)

    def _find_client(self, setting: Setting) -> Client:
        client = setting.client or self._clients.get(setting.toolkit)
        if client is None:
            raise ProviderBusy("There is no OAuth client for this toolkit any more.")
        return client

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        seconds: float,
        *,
        is_read: bool = False,
    ) -> EgressResponse:
        options = {"headers": headers, "body": body, "timeout": seconds, "max_bytes": _LARGEST_ANSWER}
        try:
            answer: EgressResponse = await self._http_client.request(method, url, **options)
        except EgressTimeout as exc:
            raise ProviderBusy("The service did not answer in time.", was_sent=not is_read) from exc
        except EgressError as exc:
            raise ProviderBusy(exc.message, was_sent=not is_read) from exc
        return answer


def _build_headers(facts: Facts, grant: Grant) -> dict[str, str]:
    headers = {"accept": "application/json", "authorization": f"Bearer {grant.access_token}"}
    further: Mapping[str, str] = facts.oauth.get("headers", {})
    return {**headers, **further}


def _build_basic(client: Client) -> str:
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _read_answer(answer: EgressResponse) -> Any:
    """Returns what a service has answered. Raises ToolFailed, ConnectionLost or ProviderBusy."""
    if 200 <= answer.status < 300:
        if not answer.body:
            return None
        if "json" not in answer.headers.get("Content-Type", ""):
            return {"text": answer.body.decode(errors="replace")}
        content = _read_json(answer)
        if isinstance(content, dict) and content.get("ok") is False:
            # Slack says in the body that it has refused.
            reason = str(content.get("error"))
            if reason in _LOST:
                raise ConnectionLost(f"The service does not accept the grant: {reason}.")
            raise ToolFailed(reason)
        return content
    words = _read_words(answer)
    is_limit = answer.status == 429 or (answer.status == 403 and answer.headers.get("X-RateLimit-Remaining") == "0")
    if is_limit:
        raise ProviderBusy(f"The service takes no more calls now. {words}", _read_pause(answer) or 60.0, is_limit=True)
    if answer.status == 401:
        raise ConnectionLost(f"The service does not accept the grant. {words}".strip())
    if answer.status >= 500 or answer.status in (408, 425):
        # What failed in there may have been done all the same.
        raise ProviderBusy(f"The service answered {answer.status}. {words}", _read_pause(answer), was_sent=True)
    raise ToolFailed(f"{answer.status}: {words or 'the service has refused the call'}")


def _read_words(answer: EgressResponse) -> str:
    try:
        content = from_json(answer.body)
    except ValueError:
        return ""
    values = content if isinstance(content, dict) else {}
    error = values.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    words = inner or values.get("message")
    return str(words)[:_LONGEST_WORDS] if words else ""


def _read_json(answer: EgressResponse) -> Any:
    try:
        return from_json(answer.body)
    except ValueError as exc:
        raise ProviderBusy("The service's answer is no JSON.", _PAUSE_SECONDS, was_sent=True) from exc


def _read_pause(answer: EgressResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _read_path(values: Mapping[str, Any], path: str) -> str | None:
    value: Any = values
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else str(value)


def _read_scopes(tokens: Mapping[str, Any], setting: Setting) -> tuple[str, ...]:
    """Returns what was given, which may be less than what was asked for. Services divide it by blanks or commas."""
    text = tokens.get("scope")
    return tuple(re.split(r"[ ,]+", text.strip())) if isinstance(text, str) and text.strip() else setting.scopes


def _name_error(answer: Mapping[str, Any]) -> str:
    return str(answer.get("error"))[:100]


def _write_query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
