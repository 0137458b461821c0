"""The page on which an app's user signs in and gives an MCP client access. It has forms, but no scripts and no cookies.

The page's own form holds, sealed, who has signed in, for this request only. Nobody stays signed in: the session ends
with the decision. Other sites can neither frame these forms nor submit them.

Who has signed in stands sealed in the page's own form, for this request only. Nobody stays signed in here: the session
of the page ends with the decision, and a page of another site can neither frame these forms nor send one.
"""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baobab.http.forms import name_source, require_own_page
from baobab.http.html_page import render_page
from baobab.mcp_server.oauth.provider import Provider
from baobab.mcp_server.oauth.user_provider import UserProvider
from baobab.storage.secrets import SecretUnreadable, digest_token
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden, RateLimited, Unauthenticated

_ROOT = "../../../"
_CONTEXT = "mcp consent:"
_UNCACHED = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


async def consent(provider: Provider, request: Request) -> Response:
    """Shows the page, or handles one of its forms."""
    assert isinstance(provider, UserProvider)
    form: Mapping[str, Any] = await request.form() if request.method == "POST" else {}
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    sealed_request = fields.get("request") or request.query_params.get("request", "")
    try:
        authorization = await provider.call("auth_mcp_request", request=sealed_request)
    except BaobabError as error:
        return _render_end(error)
    page = _ConsentPage(provider, sealed_request, authorization)
    try:
        if request.method == "POST":
            require_own_page(request.headers)
            return await page.act(fields)
    except BaobabError as error:
        return page.render_sign_in(fields, error)
    return page.render_sign_in({})


class _ConsentPage:
    def __init__(self, provider: UserProvider, sealed_request: str, authorization: Mapping[str, Any]) -> None:
        self._provider = provider
        self._sealed_request = sealed_request
        self._authorization = authorization
        self._vault = provider.vault
        # A ticket is good for the request and the app for which somebody has signed in.
        self._context = f"{_CONTEXT}{provider.app_id}:{digest_token(sealed_request)}"

    async def act(self, fields: Mapping[str, str]) -> Response:
        match fields.get("step"):
            case "password":
                credentials = {name: fields.get(name, "") for name in ("email", "password")}
                return self._go_on(await self._provider.call("auth_login", **credentials))
            case "mail":
                await self._provider.call("auth_magic_link", email=fields.get("email", ""))
                return self._render_code(fields)
            case "code":
                return await self._take_code(fields)
            case "second-factor":
                return await self._finish(fields)
            case "approve" | "deny" as decision:
                return await self._decide(decision, fields.get("ticket", ""))
        return self.render_sign_in({})

    async def _take_code(self, fields: Mapping[str, str]) -> Response:
        answer = {"email": fields.get("email", ""), "code": fields.get("code", "").strip()}
        try:
            signed_in = await self._provider.call("auth_magic_link_verify", **answer)
        except BaobabError as error:
            return self._render_code(fields, error)
        return self._go_on(signed_in)

    async def _finish(self, fields: Mapping[str, str]) -> Response:
        challenge, code = fields.get("challenge", ""), fields.get("code", "").strip()
        try:
            signed_in = await self._provider.call("auth_second_factor", challenge=challenge, code=code)
        except (BadRequest, RateLimited) as error:
            return self._render_challenge(challenge, error)
        return self._go_on(signed_in)

    def _go_on(self, answer: Mapping[str, Any]) -> Response:
        """Shows the next step after a sign-in: the consent question, or the second factor."""
        if "challenge" not in answer:
            return self._render_consent(answer)
        if answer["enrol"]:
            raise Forbidden(
                "This app asks everybody for a second factor, and you have none yet.",
                remediation="Sign in to the app itself first: there you set one up.",
            )
        return self._render_challenge(answer["challenge"])

    async def _decide(self, decision: str, ticket: str) -> Response:
        try:
            access_token = json.loads(self._vault.open(ticket, self._context))
        except (SecretUnreadable, ValueError) as exc:
            raise Unauthenticated("Sign in first.") from exc
        answer = await self._provider.call(
            "auth_mcp_decide", access_token, request=self._sealed_request, decision=decision, sign_out=True
        )
        # 303, so that the browser does not send the form on to the client.
        return RedirectResponse(answer["redirect_to"], 303, _UNCACHED)

    def render_sign_in(self, fields: Mapping[str, str], error: BaobabError | None = None) -> Response:
        email = escape(fields.get("email", ""))
        body = f"""{self._render_head()}{_render_error(error)}
<form method="post" action="consent">{self._render_request()}
<p><label>E-mail <input type="email" name="email" value="{email}" autocomplete="username" required></label></p>
<p><label>Password <input type="password" name="password" autocomplete="current-password"></label></p>
<p><button name="step" value="password">Sign in</button>
<button name="step" value="mail">Mail me a code</button></p></form>"""
        return self._render(body, 200 if error is None else error.status)

    def _render_code(self, fields: Mapping[str, str], error: BaobabError | None = None) -> Response:
        email = escape(fields.get("email", ""))
        body = f"""{self._render_head()}{_render_error(error)}
<p>If {email} can receive mail, a code is on its way.</p>
<form method="post" action="consent">{self._render_request()}<input type="hidden" name="email" value="{email}">
<p><label>Code <input name="code" inputmode="numeric" autocomplete="one-time-code" required></label></p>
<p><button name="step" value="code">Sign in</button></p></form>"""
        return self._render(body, 200 if error is None else error.status)

    def _render_challenge(self, challenge: str, error: BaobabError | None = None) -> Response:
        body = f"""{self._render_head()}{_render_error(error)}
<p>Enter the code that your authenticator app shows, or one of your recovery codes.</p>
<form method="post" action="consent">{self._render_request()}
<input type="hidden" name="challenge" value="{escape(challenge)}">
<p><label>Code <input name="code" autocomplete="one-time-code" required></label></p>
<p><button name="step" value="second-factor">Sign in</button></p></form>"""
        return self._render(body, 200 if error is None else error.status)

    def _render_consent(self, signed_in: Mapping[str, Any]) -> Response:
        ticket = self._vault.seal(json.dumps(signed_in["access_token"]).encode(), self._context)
        tools = "".join(
            f"<li>{escape(tool['title'])} <small>({escape(tool['name'])})</small></li>"
            for tool in self._authorization["tools"]
        )
        client = escape(self._authorization["client_name"])
        body = f"""{self._render_head()}
<p>You are signed in as <strong>{escape(signed_in["user"]["email"])}</strong>. {client} could then, as you:</p>
<ul>{tools}</ul>
<p>Access goes to <strong>{escape(self._authorization["redirect_host"])}</strong>. Any program can call itself {client}:
agree only if you have just started this yourself. You end it by signing out of the app everywhere.</p>
<form method="post" action="consent">{self._render_request()}<input type="hidden" name="ticket" value="{ticket}">
<p><button name="step" value="approve">Allow</button> <button name="step" value="deny">Deny</button></p></form>"""
        return self._render(body, 200)

    def _render_head(self) -> str:
        client, app = escape(self._authorization["client_name"]), escape(self._authorization["app_name"])
        return f"<h1>{client} wants to use {app} as you</h1>"

    def _render_request(self) -> str:
        return f'<input type="hidden" name="request" value="{escape(self._sealed_request)}">'

    def _render(self, body: str, status: int) -> Response:
        title = f"Sign in to {self._authorization['app_name']}"
        # Browsers hold the redirect that answers a form to this policy, too.
        forms = f"'self' {name_source(self._authorization['redirect_uri'])}"
        return render_page(title, body, root=_ROOT, status=status, forms=forms)


def _render_error(error: BaobabError | None) -> str:
    return (
        "" if error is None else f'<p role="alert"><strong>{escape(error.message)}</strong> {escape(error.remedy)}</p>'
    )


def _render_end(error: BaobabError) -> Response:
    body = f"""<h1>This program cannot be connected</h1><p><strong>{escape(error.message)}</strong></p>
<p>Close this page and start again in the program.</p>"""
    return render_page("Not connected", body, root=_ROOT, status=error.status)
