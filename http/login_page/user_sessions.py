"""The sessions of an app's users on our own pages: their tokens, sealed in a cookie that no script reads."""

import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError, Unauthenticated
from baobab.tools.core.registry import Registry

FLOW = "flow"
"""The part of the query by which a browser that comes back from a provider is recognised."""
TO_APPROVALS = "approvals"
"""The `wish` of the sign-in page for somebody who wants to approve calls, and stays on our pages."""
_DAYS = 7
_MINUTES_OF_FLOW = 15
_KEPT = ("access_token", "refresh_token")


class UserSessions:
    """The cookies of one app. They open no page but those of this package, and no app but this one."""

    def __init__(self, registry: Registry, app_id: str) -> None:
        self._registry = registry
        self._app_id = app_id
        self._is_secure = urlsplit(registry.services.options.base_url).scheme == "https"
        # With `__Host-`, no other host can set it. On a host of its own an app has the same path without its id.
        self._name = f"{'__Host-' if self._is_secure else ''}baobab_user_{app_id}"
        self._flow_name = f"{'__Host-' if self._is_secure else ''}baobab_flow_{app_id}"
        self._context = f"user session:{app_id}"

    def keep(self, answer: Response, tokens: Mapping[str, Any]) -> None:
        text = json.dumps({name: tokens[name] for name in _KEPT})
        sealed_tokens = self._registry.services.vault.seal(text.encode(), self._context)
        self._set(self._name, answer, sealed_tokens, _DAYS * 86400)

    def clear(self, answer: Response) -> None:
        self._set(self._name, answer, "", 0)

    def begin_flow(self, answer: Response, flow: str) -> None:
        """Notes in the browser that it leaves for a provider, to come back to our pages with tokens."""
        self._set(self._flow_name, answer, flow, _MINUTES_OF_FLOW * 60)

    async def end_flow(self, request: Request) -> Response:
        """Keeps the tokens with which a browser comes back. Raises Unauthenticated if this one has not left for them:
        nobody signs somebody else in as themselves with a link.
        """
        query, flow = request.query_params, request.cookies.get(self._flow_name, "")
        if not flow or not hmac.compare_digest(flow.encode(), query.get(FLOW, "").encode()):
            raise Unauthenticated
        tokens = {name: query.get(name, "") for name in _KEPT}
        await self._identify(tokens["access_token"])
        answer = RedirectResponse(TO_APPROVALS, 303)
        self.keep(answer, tokens)
        self._set(self._flow_name, answer, "", 0)
        return answer

    async def open(self, request: Request, context: RequestContext) -> tuple[EndUser, Mapping[str, Any] | None]:
        """Returns the user, and new tokens if the old ones had expired. Raises Unauthenticated."""
        try:
            sealed_tokens = self._registry.services.vault.open(request.cookies.get(self._name, ""), self._context)
        except SecretUnreadable as exc:
            raise Unauthenticated from exc
        tokens = json.loads(sealed_tokens)
        try:
            return await self._identify(tokens["access_token"]), None
        except Unauthenticated:
            pass
        try:
            arguments = {"app_id": self._app_id, "refresh_token": tokens["refresh_token"]}
            renewed_tokens = await self._registry.call("auth_refresh", arguments, ANONYMOUS, context)
        except BaobabError as exc:
            raise Unauthenticated from exc
        return await self._identify(renewed_tokens["access_token"]), renewed_tokens

    def sign_form(self, user: EndUser) -> str:
        """Returns the token that a form of this session carries, because other sites send cookies along."""
        key = self._registry.services.vault.derive("user form")
        return hmac.new(key, f"{self._app_id}\0{user.user_id}\0{user.session_id}".encode(), "sha256").hexdigest()

    async def _identify(self, access_token: str) -> EndUser:
        caller = await self._registry.services.credentials.caller(f"Bearer {access_token}".encode())
        if not isinstance(caller, EndUser) or caller.app_id != self._app_id:
            raise Unauthenticated
        return caller

    def _set(self, name: str, answer: Response, value: str, seconds: int) -> None:
        answer.set_cookie(name, value, max_age=seconds, path="/", secure=self._is_secure, httponly=True, samesite="lax")
