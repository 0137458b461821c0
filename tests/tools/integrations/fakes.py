"""Services on loopback, as their public documents describe them: OAuth servers with their habits, and Composio.

A request to `https://HOST/PATH` arrives at `/HOST/PATH`, by way of `Detour`. `fake.refusals` are answers to the next
requests of a path's end: a status, a body and headers; with the status 0 the connection ends without an answer.
"""

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from baobab.runtime.net.egress import Egress

API_KEY = "composio-key"
HANG_UP = 0


@dataclass
class Account:
    """An account at Composio."""

    id: str
    user_id: str
    toolkit: str
    status: str = "INITIATED"
    callback_url: str = ""


@dataclass
class Fake:
    """requests: what was asked, oldest first. refresh_token: the only one that is good, of a service that rotates."""

    url: str = ""
    refusals: dict[str, list[tuple[int, Any, dict[str, str]]]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    number: int = 0
    lifetime: int | None = 3600
    refresh_token: str = ""
    refreshes: int = 0
    accounts: dict[str, Account] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=lambda: {"data": {"id": "m1"}, "successful": True, "error": None})

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        text = await request.text()
        is_json = "json" in request.headers.get("Content-Type", "")
        body = json.loads(text) if text and is_json else dict(parse_qsl(text))
        self.requests.append(
            {"method": request.method, "path": request.path, "query": dict(request.query), "body": body,
             "headers": dict(request.headers)}
        )  # fmt: skip
        for end, answers in self.refusals.items():
            if answers and request.path.endswith(end):
                status, refusal, headers = answers.pop(0)
                if status == HANG_UP:
                    assert request.transport is not None
                    request.transport.abort()
                    return web.Response()
                return web.json_response(refusal, status=status, headers=headers)
        if request.path.startswith("/api/v3.1/"):
            return self._answer_composio(request, body)
        return self._answer_service(request, body)

    def list_requests(self, end: str) -> list[dict[str, Any]]:
        return [each for each in self.requests if each["path"].endswith(end)]

    def _answer_service(self, request: web.BaseRequest, body: dict[str, Any]) -> web.Response:  # noqa: PLR0911 - by path
        path, token = request.path, request.headers.get("Authorization", "").removeprefix("Bearer ")
        if path in ("/oauth2.googleapis.com/token", "/slack.com/api/oauth.v2.access"):
            return self._give_tokens(path, body)
        if path in ("/api.notion.com/v1/oauth/token", "/github.com/login/oauth/access_token"):
            return self._give_tokens(path, body, request.headers.get("Authorization", ""))
        if path.endswith("/users/me/profile"):
            return web.json_response({"emailAddress": "ada@shop.example", "messagesTotal": 2})
        if path.endswith("/api/auth.test"):
            return web.json_response({"ok": True, "user_id": "U1", "user": "ada", "team": "Shop"})
        if path == "/api.github.com/user":
            return web.json_response({"id": 42, "login": "ada"})
        if path.endswith("/users/me/messages"):
            return web.json_response({"messages": [{"id": "m1"}, {"id": "m2"}], "resultSizeEstimate": 2})
        if "/users/me/messages/m" in path:
            return web.json_response(_describe_message(path.rpartition("/")[2]))
        if path.endswith(("/messages/send", "/drafts", "/comments", "/chat.postMessage")):
            return web.json_response({"ok": True, "id": "new", "token": token[:6]})
        return web.json_response({"results": [], "ok": True})

    def _give_tokens(self, path: str, body: dict[str, Any], authorization: str = "") -> web.Response:  # noqa: PLR0911
        self.number += 1
        access_token = f"access-{self.number}"
        if body.get("grant_type") == "refresh_token":
            self.refreshes += 1
            if body.get("refresh_token") != self.refresh_token:
                return web.json_response({"error": "invalid_grant"}, status=400)
            # As services that rotate do: the token before is good no more.
            self.refresh_token = f"refresh-{self.number}"
        match urlsplit(path).path.split("/")[1]:
            case "slack.com":
                user = {"id": "U1", "access_token": access_token, "scope": "chat:write,channels:read"}
                return web.json_response({"ok": True, "authed_user": user, "team": {"name": "Shop"}})
            case "api.notion.com":
                pair = base64.b64encode(b"client:secret").decode()
                if authorization != f"Basic {pair}" or "client_id" in body:
                    return web.json_response({"error": "invalid_client"}, status=401)
                return web.json_response({"access_token": access_token, "bot_id": "b1", "workspace_name": "Shop notes"})
            case "github.com":
                if body.get("code") == "bad":
                    # GitHub answers a wrong code with a status of success.
                    return web.json_response({"error": "bad_verification_code"})
                return web.json_response({"access_token": access_token, "scope": "repo", "token_type": "bearer"})
        self.refresh_token = self.refresh_token or "refresh-0"
        tokens: dict[str, Any] = {"access_token": access_token, "refresh_token": self.refresh_token}
        tokens |= {} if self.lifetime is None else {"expires_in": self.lifetime}
        return web.json_response({**tokens, "scope": "https://www.googleapis.com/auth/gmail.readonly"})

    def _answer_composio(self, request: web.BaseRequest, body: dict[str, Any]) -> web.Response:  # noqa: PLR0911, PLR0912
        if request.headers.get("x-api-key") != API_KEY:
            return _refuse(401, "Invalid API key")
        path, query = request.path.removeprefix("/api/v3.1"), request.query
        match request.method, path.split("/")[1:]:
            case "GET", ["toolkits"]:
                return web.json_response({"items": [_describe_toolkit("gmail"), _describe_toolkit("trello")]})
            case "GET", ["toolkits", slug]:
                slugs = ("gmail", "googlecalendar", "trello", "zoom")
                return web.json_response(_describe_toolkit(slug)) if slug in slugs else _refuse(404, "Not found")
            case "GET", ["tools"]:
                page = int(query.get("cursor", "0"))
                names = [["GMAIL_FETCH_EMAILS", "GMAIL_SEND_EMAIL"], ["GMAIL_LIST_LABELS"]][page]
                following = {"next_cursor": "1"} if page == 0 else {"next_cursor": None}
                return web.json_response({"items": [_describe_tool(name) for name in names], **following})
            case "GET", ["tools", name]:
                return web.json_response(_describe_tool(name)) if name.startswith("GMAIL") else _refuse(404, "No tool")
            case "POST", ["auth_configs"]:
                slug = body["toolkit"]["slug"]
                return web.json_response({"toolkit": {"slug": slug}, "auth_config": {"id": f"ac_{slug}"}}, status=201)
            case "PATCH", ["auth_configs", *_]:
                return web.json_response({"success": True})
            case "POST", ["connected_accounts", "link"]:
                self.number += 1
                account = Account(f"ca_{self.number}", body["user_id"], "gmail", callback_url=body["callback_url"])
                self.accounts[account.id] = account
                address = f"https://connect.composio.example/link/{account.id}"
                return web.json_response(
                    {"connected_account_id": account.id, "redirect_url": address, "link_token": "lt", "expires_at": ""}
                )
            case "GET", ["connected_accounts", account_id]:
                if account_id not in self.accounts:
                    return _refuse(404, "Not found")
                account = self.accounts[account_id]
                return web.json_response(
                    {"id": account.id, "user_id": account.user_id, "status": account.status,
                     "toolkit": {"slug": account.toolkit}, "data": {"email": "ada@shop.example"}}
                )  # fmt: skip
            case "POST", ["connected_accounts", _, "revoke"]:
                return web.json_response({"revoked_tokens": ["access_token"]})
            case "DELETE", ["connected_accounts", account_id]:
                del self.accounts[account_id]
                return web.json_response({"success": True})
            case "POST", ["tools", "execute", _]:
                return web.json_response({**self.outcome, "log_id": "log_1"})
        return _refuse(404, "No such path")


def _refuse(status: int, message: str) -> web.Response:
    error = {"message": message, "status": status, "request_id": "r1", "suggested_fix": "Look at the documents."}
    return web.json_response({"error": error}, status=status)


def _describe_toolkit(slug: str) -> dict[str, Any]:
    schemes = ["OAUTH2"] if slug != "zoom" else []
    about = {"slug": slug, "name": slug.title(), "auth_schemes": ["OAUTH2"], "meta": {"description": f"About {slug}."}}
    return {**about, "composio_managed_auth_schemes": schemes, "no_auth": False}


def _describe_tool(name: str) -> dict[str, Any]:
    tags = ["readOnlyHint"] if "FETCH" in name or "LIST" in name else []
    about = {"slug": name, "name": name.title(), "description": f"Does {name}.", "tags": tags, "version": "20260101_00"}
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    return {**about, "toolkit": {"slug": "gmail"}, "input_parameters": parameters, "scopes": []}


def _describe_message(message_id: str) -> dict[str, Any]:
    headers = [{"name": "From", "value": "grace@kapok.example"}, {"name": "Subject", "value": f"Mail {message_id}"}]
    data = base64.urlsafe_b64encode(f"Text of {message_id}".encode()).decode().rstrip("=")
    payload = {"headers": headers, "mimeType": "multipart/alternative", "parts": [
        {"mimeType": "text/html", "body": {"data": ""}}, {"mimeType": "text/plain", "body": {"data": data}}
    ]}  # fmt: skip
    return {"id": message_id, "threadId": "t1", "snippet": "Text of", "payload": payload, "labelIds": ["INBOX"]}


class Detour:
    """Sends requests to a fake in place of the hosts that they name."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self._egress = Egress(allow=["127.0.0.1"])

    async def request(self, method: str, url: str, **options: Any) -> Any:
        parts = urlsplit(url)
        query = f"?{parts.query}" if parts.query else ""
        return await self._egress.request(method, f"{self._fake.url}/{parts.netloc}{parts.path}{query}", **options)

    async def close(self) -> None:
        await self._egress.close()


def challenge_of(verifier: str) -> str:
    """What PKCE sends ahead for a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@contextlib.asynccontextmanager
async def start_fake() -> AsyncIterator[Fake]:
    fake = Fake()
    runner = web.ServerRunner(web.Server(fake.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
