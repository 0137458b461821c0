"""/auth/{app_id}/login-page: where an app's users sign in, with forms that set no cookie. Only passkeys need a script.

It calls the tools that the app's own front end would call, and holds no rule. What a link in a mail is for happens only
after a click on this page, because mail programs open links by themselves.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from baobab.http.answer import reply_to
from baobab.http.console.rendering import build_environment, render_page
from baobab.http.forms import name_source, read_form, require_own_page
from baobab.http.login_page.second_steps import SHOWN, STEPS, VIEWS, ask_for_code, go_on, resume, take_step
from baobab.http.login_page.user_sessions import FLOW, TO_APPROVALS, UserSessions
from baobab.http.request import Request as RestRequest
from baobab.http.request import Scope
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry
from baobab.tools.users.redirects import build_token_address

_FOLDER = Path(__file__).parent
_LARGEST_FORM = 65_536
ACCENT = "#1d4ed8"
_TITLES = {
    "password": "Sign in",
    "sign-up": "Create an account",
    "mail": "Sign in by mail",
    "code": "Sign in by mail",
    "verify": "Confirm your address",
    "verify_email": "Confirm your address",
    "confirmed": "Your address is confirmed",
    "incomplete": "This link is incomplete",
    "forgot": "New password",
    "reset": "New password",
    "magic_link": "Sign in",
    "app_invitation": "You are invited",
    "joined": "You have joined",
    "second-factor": "One more step",
    "enrol": "Set up a second factor",
    "recovery": "Your recovery codes",
    "add-passkey": "Add a passkey",
    "register": "Add a passkey",
    "problem": "This does not work",
}
_LINKS = {
    "password": "Sign in with a password",
    "mail": "E-mail me a code",
    "sign-up": "Create an account",
    "forgot": "I forgot my password",
    "add-passkey": "Add a passkey to my account",
}
_UNKNOWN = {
    "app_name": "Baobab",
    "logo_url": None,
    "colour": None,
    "providers": (),
    "invite_only": True,
    "app_url": None,
}
"""The settings that the page shows for an app before it has read them."""
HEADERS = {
    "Cache-Control": "no-store",
    # With `no-referrer` a browser would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class LoginPage:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._environment = build_environment(_FOLDER / "templates")
        self._base_url = registry.services.options.base_url

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        rest_request, request = RestRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        client = (rest_request.id, rest_request.ip, rest_request.user_agent)
        context = RequestContext("login_page", *client, self._base_url, rest_request.path)
        # On an app's own host, the path leaves the app out; by now it has been added again.
        app_id = rest_request.path.split("/")[2]
        visit = Visit(self, self._registry, app_id, context)
        try:
            answer = await visit.answer(request)
        except ClientDisconnect:
            answer = Response(status_code=400)
        except STORE_OUTAGES as exc:
            answer = visit.render("problem", error=translate_outage(exc, rest_request.id))
        except BaobabError as error:
            answer = visit.render("problem", error=error)
        await answer(scope, receive, respond)

    def render(self, values: Mapping[str, Any], status: int, redirect_to: str | None) -> Response:
        page, nonce = values["page"], secrets.token_urlsafe(16)
        accent, script = page["colour"] or ACCENT, f"script-src 'nonce-{nonce}'; connect-src 'self'; "
        looks = {"nonce": nonce, "accent": accent, "on_accent": contrast(accent)}
        html = render_page(self._environment, "login.html", {**values, **looks})
        images = " ".join(["data:", *([name_source(page["logo_url"])] if page["logo_url"] else [])])
        # Chromium holds the redirect that answers a form to this policy, too.
        forms = " ".join(["'self'", *([name_source(redirect_to)] if redirect_to else [])])
        policy = f"default-src 'none'; style-src 'nonce-{nonce}'; img-src {images}; form-action {forms}; "
        # Only a passkey needs a script; without one, everything else works.
        policy += script if values["passkeys"] else ""
        policy += "frame-ancestors 'none'; base-uri 'none'"
        headers = {**HEADERS, "Content-Security-Policy": policy, "Content-Type": "text/html; charset=utf-8"}
        return Response(html, status, headers)


def render_preview(registry: Registry, app_id: str, page: Mapping[str, Any]) -> str:
    """Returns the page's HTML as it would look, without its script. page: as the tool `auth_page` answers it."""
    context = RequestContext("console", "")
    visit = Visit(LoginPage(registry), registry, app_id, context, redirect_to="https://example.com", page=page)
    return bytes(visit.render("password", passkeys=False).body).decode()


@dataclass
class Visit:
    """One request to the page of an app."""

    owner: LoginPage
    registry: Registry
    app_id: str
    context: RequestContext
    redirect_to: str | None = None
    link: str | None = None
    email: str = ""
    name: str = ""
    page: Mapping[str, Any] | None = None
    origin: str | None = None
    """The origin of the page, as the browser sends it with a form."""
    wish: str = ""
    """What the user wants beside signing in: `passkey`, to add one; `approvals`, to stay on our pages."""
    host: str = ""
    """The host at which the browser has opened the page."""

    async def answer(self, request: Request) -> Response:
        self.host = request.headers.get("host", "")
        if request.method == "POST":
            require_own_page(request.headers)
            self.origin = request.headers.get("origin")
            fields: Mapping[str, str] = await read_form(request, _LARGEST_FORM)
        else:
            fields = dict(request.query_params)
        self.link, self.email, self.wish = fields.get("link"), fields.get("email", ""), fields.get("wish", "")
        self.name = fields.get("display_name", "")[:200]
        if self.link is not None:
            self.page = await self.call("auth_page")
            mailed_link = await self.call("auth_link_request", link=self.link)
            self.email, redirect_to = mailed_link["email"], mailed_link["redirect_to"]
            # Where a link leads is what was asked for with the mail, whatever the address of the page says.
            self.redirect_to = redirect_to
            view = mailed_link["purpose"]
        else:
            redirect_to = fields.get("redirect_to")
            self.page = await self.call("auth_page", redirect_to=redirect_to)
            if redirect_to is None and fields.get("step") not in STEPS and self.wish != TO_APPROVALS:
                return self.render("incomplete", status=400)
            self.redirect_to = redirect_to
            view = fields.get("view", "password")
        if request.method != "POST":
            if "challenge" in fields:
                # A provider has shown the first factor.
                return await resume(self, fields["challenge"])
            return self.render(view if view in _LINKS or self.link else "password")
        step = fields.get("step", "")
        if step in STEPS:
            return await take_step(self, step, fields)
        try:
            return await self._act(step, fields)
        except BaobabError as error:
            return self.render(step if step in _TITLES else view, error)

    async def _act(self, step: str, fields: Mapping[str, str]) -> Response:
        email, code = self.email, fields.get("code", "").strip()
        if step == "mail":
            await self.call("auth_magic_link", email=email, redirect_to=self.redirect_to)
            return self.render("code")
        if step == "forgot":
            await self.call("auth_forgot_password", email=email)
            return self.render("reset")
        password, name = fields.get("password", ""), fields.get("display_name", "")
        match step:
            case "code":
                signed_in = await self.call("auth_magic_link_verify", email=email, code=code)
            case "magic_link":
                signed_in = await self.call("auth_magic_link_confirm", link=self.link)
            case "verify_email":
                await self.call("auth_verify_email", link=self.link)
                return self.render("confirmed")
            case "app_invitation":
                arguments = {"link": self.link, "password": password, "display_name": name}
                signed_in = await self.call("auth_accept_invitation", **arguments)
            case "password" | "sign-up" | "reset" | "add-passkey":
                if step == "sign-up":
                    await self.call("auth_signup", email=email, password=password, display_name=name)
                if step == "reset":
                    await self.call("auth_reset_password", email=email, code=code, new_password=password)
                signed_in = await self.call("auth_login", email=email, password=password)
                if step == "sign-up" and "challenge" not in signed_in and not self.wish:
                    return ask_for_code(self, signed_in)
            case _:
                raise BadRequest("This form is not known.")
        return await go_on(self, signed_in)

    def leave(self, signed_in: Mapping[str, Any]) -> Response:
        if self.wish == TO_APPROVALS:
            answer = RedirectResponse("approvals", 303, HEADERS)
            UserSessions(self.registry, self.app_id).keep(answer, signed_in)
            return answer
        if self.redirect_to is None:
            return self.render("joined")
        # 303, so that the browser does not send the form on; no referrer, because the address of a link is a secret.
        headers = {**HEADERS, "Referrer-Policy": "no-referrer"}
        return RedirectResponse(build_token_address(self.redirect_to, signed_in), 303, headers)

    def render(self, view: str, error: BaobabError | None = None, *, status: int = 200, **view_values: Any) -> Response:
        page = self.page or _UNKNOWN
        hidden_views = {view, "sign-up" if page["invite_only"] else view}
        leads = self.redirect_to is not None or self.wish == TO_APPROVALS
        is_choice = leads and self.link is None and view not in ("problem", "confirmed", *VIEWS)
        values = {
            "page": page,
            "title": f"Sign in to {page['app_name']}" if view == "password" else _TITLES[view],
            "view": view,
            "views": [(name, words) for name, words in _LINKS.items() if is_choice and name not in hidden_views],
            "problem": "" if error is None else _describe(error),
            "redirect_to": self.redirect_to or "",
            "after_provider": self.redirect_to or "",
            # It is used up when the first factor was shown.
            "link": None if view in VIEWS else self.link,
            "email": self.email,
            "display_name": self.name,
            "wish": "passkey" if view == "add-passkey" else self.wish,
            "passkeys": view in ("password", "register", "enrol") or "passkey" in view_values.get("methods", ()),
            "providers_root": f"{self.registry.services.options.base_url}/auth/{self.app_id}/oauth",
        }
        flow = None
        if self.wish == TO_APPROVALS and view == "password" and page["providers"]:
            flow = secrets.token_urlsafe(32)
            values["after_provider"] = f"{self._find_approvals()}?{urlencode({FLOW: flow})}"
        values |= dict.fromkeys(SHOWN) | view_values
        answer = self.owner.render(values, status if error is None else error.status, self.redirect_to)
        if flow is not None:
            UserSessions(self.registry, self.app_id).begin_flow(answer, flow)
        return answer

    def _find_approvals(self) -> str:
        """Returns the address of the page of approvals at the host where this one was opened: its cookies are there."""
        base_url = self.registry.services.options.base_url
        base = urlsplit(base_url)
        if self.host.lower() == base.netloc.lower():
            return f"{base_url}/auth/{self.app_id}/{TO_APPROVALS}"
        return f"{base.scheme}://{self.host}/auth/{self.app_id}/{TO_APPROVALS}"

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.call_as(ANONYMOUS, tool, **arguments)

    async def call_as(self, caller: Caller, tool: str, **arguments: Any) -> Any:
        return await self.registry.call(tool, {"app_id": self.app_id, **arguments}, caller, self.context)


def _describe(error: BaobabError) -> str:
    """Returns a sentence for the reader that says what went wrong."""
    if "rules" in error.details:
        return f"This password is too weak. It needs {', '.join(error.details['rules'])}."
    return error.message.replace("`", "")


def contrast(colour: str) -> str:
    """Returns black or white, whichever is easier to read on a colour (WCAG 2, relative luminance)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"
