"""The pages for people who are not signed in yet: an invitation, a new account, a forgotten password, a new address."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from baobab.http.console.roles import ROLE_NAMES
from baobab.http.forms import read_form, require_own_page
from baobab.tools.console.errors import ConsoleSignedOut
from baobab.tools.console.sessions import LiveSession
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError, RateLimited
from baobab.tools.core.registry import Registry

_LARGEST_FORM = 8192
_PATHS = ("/join", "/sign-up", "/forgot-password", "/new-password", "/confirm-email")

Render = Callable[..., Response]
Begin = Callable[[Mapping[str, Any], RequestContext, str], Awaitable[Response]]
Find = Callable[[Request], Awaitable[LiveSession]]


class Entrance:
    def __init__(
        self, registry: Registry, prefix: str, render: Render, begin_session: Begin, find_session: Find
    ) -> None:
        """prefix: of the console's addresses. begin_session: signs in with credentials, and leads to a path of the
        console.
        """
        self._registry = registry
        self._prefix = prefix
        self._render = render
        self._begin_session = begin_session
        self._find_session = find_session

    def takes(self, path: str) -> bool:
        return path in _PATHS

    async def answer(self, request: Request, path: str, context: RequestContext) -> Response:
        fields: dict[str, str] = {}
        if request.method == "POST":
            require_own_page(request.headers)
            fields = await read_form(request, _LARGEST_FORM)
        visitor = _Visitor(self._registry, context, request, fields)
        match path:
            case "/join":
                return await self._join(visitor)
            case "/sign-up":
                return await self._sign_up(visitor)
            case "/forgot-password":
                return await self._forgot_password(visitor)
            case "/new-password":
                return await self._set_password(visitor)
            case _:
                return await self._confirm_email(visitor)

    async def _join(self, visitor: "_Visitor") -> Response:
        """Shows an invitation; a form makes an account for its address. Whoever has one accepts when signed in."""
        token = visitor.read("token")
        try:
            offer = await visitor.call("organisations_read_invitation", token=token)
        except BaobabError:
            return self._render("join.html", {"title": "Invitation", "offer": None, "feed": ""}, status=404)
        problem = ""
        if visitor.is_form and offer["status"] == "open" and not offer["has_account"]:
            fields = {"email": offer["email"], "password": visitor.read("password"), "name": visitor.read("name")}
            try:
                new_account = await visitor.call("platform_signup", invitation=token, **fields)
                caller = Account(new_account["user"]["id"], new_account["organization"]["id"])
                await visitor.call("organisations_accept_invitation", caller, token=token)
                credentials = {"email": fields["email"], "password": fields["password"]}
                return await self._begin_session(credentials, visitor.context, "?joined=1")
            except BaobabError as error:
                problem = _say(error)
        signed_in = await self._find_email(visitor.request)
        if offer["status"] == "open" and signed_in == offer["email"]:
            return RedirectResponse(
                f"{self._prefix}/invitation?token={quote(token)}", 303, {"Cache-Control": "no-store"}
            )
        values = {
            "title": f"Join {offer['organization_name']}",
            "offer": offer,
            "token": token,
            "back": quote(f"/invitation?token={token}", safe=""),
            "role_name": ROLE_NAMES[offer["role"]],
            "problem": problem,
            "given_name": visitor.read("name"),
            "signed_in": signed_in,
            "feed": "",
        }
        return self._render("join.html", values, status=400 if problem else 200)

    async def _find_email(self, request: Request) -> str | None:
        try:
            return (await self._find_session(request)).email
        except ConsoleSignedOut:
            return None

    async def _sign_up(self, visitor: "_Visitor") -> Response:
        is_open = self._registry.services.options.signup_open
        problem, names = "", ("email", "name", "password")
        fields = {name: visitor.read(name) for name in names}
        if visitor.is_form:
            try:
                await visitor.call("platform_signup", **fields)
                credentials = {"email": fields["email"], "password": fields["password"]}
                return await self._begin_session(credentials, visitor.context, "")
            except BaobabError as error:
                problem = _say(error)
        values = {"title": "Create an account", "is_open": is_open, "problem": problem, "feed": "", **fields}
        return self._render("sign_up.html", values, status=400 if problem else 200)

    async def _forgot_password(self, visitor: "_Visitor") -> Response:
        problem, is_done, sends_mail = "", False, self._registry.services.mailer.delivers
        if visitor.is_form:
            try:
                await visitor.call("platform_forgot_password", email=visitor.read("email"))
                is_done = True
            except BaobabError as error:
                problem = _say(error)
        values = {"title": "Forgot your password?", "is_done": is_done, "sends_mail": sends_mail, "problem": problem}
        values |= {"email": visitor.read("email"), "feed": ""}
        return self._render("forgot_password.html", values, status=400 if problem else 200)

    async def _set_password(self, visitor: "_Visitor") -> Response:
        problem, token, email = "", visitor.read("token"), None
        if visitor.is_form:
            try:
                reset = await visitor.call("platform_reset_password", token=token, password=visitor.read("password"))
                email = reset["email"]
            except BaobabError as error:
                problem = _say(error)
        values = {"title": "Set a new password", "token": token, "problem": problem, "email": email, "feed": ""}
        return self._render("new_password.html", values, status=400 if problem else 200)

    async def _confirm_email(self, visitor: "_Visitor") -> Response:
        """Shows a button first: programs that look through mails open every link."""
        problem, token, email = "", visitor.read("token"), None
        if visitor.is_form:
            try:
                email = (await visitor.call("platform_confirm_email", token=token))["email"]
            except BaobabError as error:
                problem = _say(error)
        values = {"title": "Confirm your address", "token": token, "problem": problem, "email": email, "feed": ""}
        return self._render("confirm_email.html", values, status=400 if problem else 200)


class _Visitor:
    """A request of somebody who need not be signed in."""

    def __init__(
        self, registry: Registry, context: RequestContext, request: Request, fields: Mapping[str, str]
    ) -> None:
        self._registry = registry
        self.context = context
        self.request = request
        self._fields = fields

    @property
    def is_form(self) -> bool:
        return self.request.method == "POST"

    def read(self, name: str) -> str:
        """Returns a field of the form, else of the address."""
        return (self._fields.get(name) or self.request.query_params.get(name, "")).strip()

    async def call(self, tool: str, caller: Caller = ANONYMOUS, /, **arguments: Any) -> Any:
        return await self._registry.call(tool, arguments, caller, self.context)


def _say(error: BaobabError) -> str:
    """Returns what a person reads who filled a form in; our names of operations mean nothing to them."""
    if isinstance(error, RateLimited):
        return "This was tried too often. Try again in a few minutes."
    return error.message
