"""The console as an ASGI application: finds the page or form of a path, and who is signed in."""

import hmac
import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from baobab.http.answer import ON_STOP, reply_to
from baobab.http.console import pages
from baobab.http.console.app_page import parse_object
from baobab.http.console.entrance import Entrance
from baobab.http.console.live import Changes, Watch
from baobab.http.console.page import APP_GROUPS, MENU_GROUPS, Feed, Form, Page
from baobab.http.console.pages.welcome import PATH as FIRST_STEPS
from baobab.http.console.rendering import build_environment, render_page, say_duration
from baobab.http.console.returned_form import PAGE_FIELD, list_typed, return_form
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import count_waiting
from baobab.http.forms import MULTIPART, ForeignForm, read_form, read_form_with_files, require_own_page
from baobab.http.open_streams import OpenStreams, StreamLimits, stream_while_allowed
from baobab.http.public_document import PublicDocument
from baobab.http.request import Request as RestRequest
from baobab.http.request import Scope
from baobab.http.streaming import send_stream
from baobab.tools.console.errors import ConsoleSignedOut
from baobab.tools.console.passkeys import begin_sign_in
from baobab.tools.console.sessions import LiveSession, find_session
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden, RateLimited, RouteNotFound, Unauthenticated
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry
from baobab.tools.core.stream import Stream
from baobab.tools.core.tenancy import set_tenant
from baobab.tools.system.access import Operator, OperatorOnly


class Cookies:
    """Sets and reads the cookie. Over https its name has the prefix `__Host-`, so that no other host can set it."""

    def __init__(self, base_url: str) -> None:
        address = urlsplit(base_url)
        self._secure = address.scheme == "https"
        self._name = "__Host-baobab_console" if self._secure else "baobab_console"
        self._path = "/" if self._secure else f"{address.path.rstrip('/')}/console"

    def read(self, request: Request) -> str:
        return request.cookies.get(self._name, "")

    def set(self, answer: Response, secret: str, expires_at: datetime, now: datetime) -> None:
        seconds = round((expires_at - now).total_seconds())
        answer.set_cookie(
            self._name, secret, max_age=seconds, path=self._path, secure=self._secure, httponly=True, samesite="lax"
        )

    def clear(self, answer: Response) -> None:
        answer.delete_cookie(self._name, path=self._path, secure=self._secure, httponly=True, samesite="lax")


def require_csrf(token: str, expected_token: str) -> None:
    if not hmac.compare_digest(token.encode(), expected_token.encode()):
        raise ForeignForm


_FOLDER = Path(__file__).parent
_STYLES = ("tokens", "shell", "components", "inbox", "approval", "apps", "data", "agents", "people")
"""The files of `styles/` in their order: they are served as one. Each area has a file of its own."""
_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "push.js": "text/javascript; charset=utf-8",
    "console.webmanifest": "application/manifest+json",
    **{f"icon-{size}.png": "image/png" for size in (180, 192, 512)},
}
_GREEN, _GROUND = "#1a6b45", "#faf9f6"
_LARGEST_FORM = 5 * 2**20
_LARGEST_SIGN_IN = 8192
"""The largest form that a stranger may send, in bytes."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
    "frame-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types baobab",
    "Cross-Origin-Opener-Policy": "same-origin",
    # With `no-referrer` a browser would send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_FRAME_HEADERS = {
    **_HEADERS,
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; "
    "form-action 'none'; frame-ancestors 'self'; base-uri 'none'",
}


def find_origin(url: str) -> str:
    """Returns the origin of an address as a part of a policy, with a space before it; nothing if it is none that may
    stand there.
    """
    origin = re.match(r"https?://[A-Za-z0-9.-]+(:\d+)?(?=[/?#]|$)", url)
    return f" {origin[0]}" if origin else ""


class Console:
    def __init__(self, registry: Registry) -> None:
        services = registry.services
        self._registry = registry
        self._operator_id: str | None = None
        self._services = services
        self._prefix = urlsplit(services.options.base_url).path.rstrip("/") + "/console"
        self._entrance = Entrance(registry, self._prefix, self._render, self._begin_session, self._find_session)
        self._cookies = Cookies(services.options.base_url)
        self._environment = build_environment(now=services.clock.now)
        self._page_headers = {**_HEADERS, "Content-Type": "text/html; charset=utf-8"}
        if files_domain := services.options.files_domain:
            # Thumbnails are sent on to the hosts of files.
            hosts = services.options.build_address(f"*.{files_domain}")
            policy = _HEADERS["Content-Security-Policy"].replace("img-src 'self'", f"img-src 'self' {hosts}")
            self._page_headers["Content-Security-Policy"] = policy
        self._changes = Changes(services.notices)
        self._streams = OpenStreams(self._services.notices, StreamLimits(in_all=1000, of_subject=64, of_caller=16))
        styles = b"".join((_FOLDER / "styles" / f"{name}.css").read_bytes() for name in _STYLES)
        scripts = {path.name: path.read_bytes() for path in (_FOLDER / "assets").iterdir() if path.name in _TYPES}
        manifest = json.dumps(_describe_application(self._prefix)).encode()
        contents = {"console.css": styles, "console.webmanifest": manifest, **scripts}
        self._assets = {
            name: PublicDocument(content, _TYPES[name], {**_HEADERS, "Cache-Control": "no-cache"})
            for name, content in contents.items()
        }
        self._stamps = {name: sha256(content).hexdigest()[:12] for name, content in contents.items()}
        modules = [import_module(f"{pages.__name__}.{module.name}") for module in pkgutil.iter_modules(pages.__path__)]
        self._pages: list[Page] = [page for module in modules for page in getattr(module, "PAGES", ())]
        self._forms: list[Form] = [form for module in modules for form in getattr(module, "FORMS", ())]
        self._feeds: list[Feed] = [feed for module in modules for feed in getattr(module, "FEEDS", ())]
        self._feeds += [Feed("/events", self._open_changes), Feed("/session", self._open_session)]
        ranked_pages = sorted(self._pages, key=lambda page: page.rank)
        in_menu, in_app = ([page for page in ranked_pages if page.menu], [page for page in ranked_pages if page.tab])
        self._menus = {group: [page for page in in_menu if page.group == group] for group in MENU_GROUPS}
        self._tabs = {group: [page for page in in_app if page.group == group] for group in APP_GROUPS}

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        rest_request, request = RestRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        path = scope["path"].partition("/console")[2].rstrip("/")
        context = RequestContext(
            "console",
            rest_request.id,
            rest_request.ip,
            rest_request.user_agent,
            self._services.options.base_url,
            rest_request.path,
        )
        if not rest_request.path.startswith("/console"):
            # An app's own host has no console.
            answer = self._render_error(RouteNotFound())
        elif request.method == "GET" and (feed := self._find_feed(path)) is not None:
            await self._send_feed(feed, path, request, receive, respond, context)
            return
        else:
            answer = await self._answer(request, path, context)
        await answer(scope, receive, respond)

    async def _answer(self, request: Request, path: str, context: RequestContext) -> Response:
        try:
            return await self._route(request, path, context)
        except ConsoleSignedOut:
            return self._ask_to_sign_in(request, path)
        except ClientDisconnect:
            return Response(status_code=400)
        except STORE_OUTAGES as exc:
            return self._render_error(translate_outage(exc, context.request_id))
        except BaobabError as error:
            return self._render_error(error)

    async def _route(self, request: Request, path: str, context: RequestContext) -> Response:
        if path.startswith("/assets/") and request.method in ("GET", "HEAD"):
            return await self._send_asset(path.removeprefix("/assets/"), request)
        if path == "/sign-in":
            return await self._sign_in(request, context)
        if self._entrance.takes(path):
            return await self._entrance.answer(request, path, context)
        session = await self._find_session(request)
        self._operator_id = await self._services.of(Operator).find_account_id()
        answer = self._act if request.method == "POST" else self._show
        try:
            return await answer(request, path, session, context)
        except ConsoleSignedOut:
            raise
        except BaobabError as error:
            return self._render_error(error, session, admins=await self._find_admins(error, path, session, context))

    async def _show(self, request: Request, path: str, session: LiveSession, context: RequestContext) -> Response:
        page, parts = self._find_page(path)
        # Before the page reads: what changes after that is told to it.
        feed = f"/events?seen={self._changes.stamp}" if page.follows_inbox else "/session"
        visit = self._build_visit(session, context, parts, dict(request.query_params))
        try:
            values = {"page": page, "title": page.title, "feed": feed, **await page.show(visit)}
            if "waiting_count" not in values:
                values["waiting_count"] = await count_waiting(visit)
        except BadRequest as error:
            # What was asked for by a form of the page itself, such as a filter.
            return await self._return_form(path, path, session, context, visit.query, error)
        answer = self._render(page.template, values, session)
        if page.frame:
            answer.headers.update(_FRAME_HEADERS)
        if media_url := values.get("media_url"):
            policy = f"{self._page_headers['Content-Security-Policy']}; media-src 'self'{find_origin(media_url)}"
            answer.headers["Content-Security-Policy"] = policy
        return answer

    def _find_page(self, path: str) -> tuple[Page, dict[str, str]]:
        for page in self._pages:
            parts = page.match(path)
            if parts is not None:
                return page, parts
        raise RouteNotFound("There is no such page.", remediation="Begin at the inbox; the menu leads to all others.")

    async def _act(self, request: Request, path: str, session: LiveSession, context: RequestContext) -> Response:
        require_own_page(request.headers)
        largest_files = next((form.largest_files for form in self._forms if form.match(path) is not None), 0)
        if largest_files and request.headers.get("content-type", "").startswith(MULTIPART):
            async with read_form_with_files(request, largest_files) as (fields, files):
                return await self._act_on(request, path, session, context, fields, files)
        fields = await read_form(request, _LARGEST_FORM)
        return await self._act_on(request, path, session, context, fields)

    async def _act_on(
        self,
        request: Request,
        path: str,
        session: LiveSession,
        context: RequestContext,
        fields: Mapping[str, str],
        files: Sequence[UploadFile] = (),
    ) -> Response:
        require_csrf(fields.get("csrf", ""), session.csrf)
        if path == "/sign-out":
            await self._registry.call("console_sign_out", {"session_id": session.id}, session.caller, context)
            answer: Response = RedirectResponse(f"{self._prefix}/sign-in", 303, _HEADERS)
            self._cookies.clear(answer)
            return answer
        for form in self._forms:
            parts = form.match(path)
            if parts is not None:
                visit = self._build_visit(session, context, parts, dict(request.query_params), fields)
                page_path = fields.get(PAGE_FIELD) or request.headers.get("referer", "").partition(self._prefix)[2]
                visit = replace(visit, came_from=page_path, files=files)
                try:
                    outcome = await form.act(visit)
                except ConsoleSignedOut:
                    raise
                except BaobabError as error:
                    return await self._return_form(page_path, path, session, context, fields, error)
                if isinstance(outcome, str):
                    return RedirectResponse(self._prefix + outcome, 303, _HEADERS)
                # It does not follow changes: asked for again, its address would show something else.
                return self._render(form.template, {"feed": "", **outcome}, session)
        raise RouteNotFound

    async def _return_form(
        self,
        page_path: str,
        path: str,
        session: LiveSession,
        context: RequestContext,
        fields: Mapping[str, str],
        error: BaobabError,
    ) -> Response:
        """Answers a form that was refused with its page, filled as it was sent. Where that page cannot be shown, the
        page of the error has what was typed. page_path: with the query of the page. path: of the form.
        """
        error.naming = self._registry.name_by_tool
        address = urlsplit(page_path)
        page_address = _own_path(f"{address.path}?{address.query}")
        with suppress(BaobabError):
            page, parts = self._find_page(address.path.rstrip("/") if page_address else "")
            visit = self._build_visit(session, context, parts, dict(parse_qsl(address.query)))
            values = {"page": page, "title": page.title, "feed": "", **await page.show(visit)}
            if "waiting_count" not in values:
                values["waiting_count"] = await count_waiting(visit)
            html = self._render_html(page.template, values, session)
            if returned_html := return_form(html, self._prefix + path, fields, error, page_address):
                return Response(returned_html, error.status, self._page_headers)
        admins = await self._find_admins(error, path, session, context)
        return self._render_error(error, session, list_typed(fields), admins)

    async def _sign_in(self, request: Request, context: RequestContext) -> Response:
        return_path = _own_path(request.query_params.get("back", ""))
        link = request.query_params.get("link", "")
        if request.method != "POST":
            passkey = await begin_sign_in(self._services)
            values: dict[str, Any] = {
                "title": "Sign in",
                "back": return_path,
                "link": link,
                "problem": "",
                "passkey": passkey,
            }
            values |= {"done": request.query_params.get("done", ""), "can_sign_up": self._services.options.signup_open}
            return self._render("sign_in.html", values)
        require_own_page(request.headers)
        fields = await read_form(request, _LARGEST_SIGN_IN)
        names = ("email", "password", "key", "link", "state")
        credentials: dict[str, Any] = {name: fields[name] for name in names if fields.get(name)}
        return_path = _own_path(fields.get("back", ""))
        try:
            if fields.get("credential"):
                credentials["credential"] = parse_object(fields["credential"], "passkey")
            return await self._begin_session(credentials, context, return_path)
        except BaobabError as error:
            problem = _say_problem(error)
            passkey = await begin_sign_in(self._services)
            values = {"title": "Sign in", "back": return_path, "link": "", "problem": problem, "passkey": passkey}
            values |= {"done": "", "can_sign_up": self._services.options.signup_open}
            return self._render("sign_in.html", values, status=error.status)

    async def _begin_session(self, credentials: Mapping[str, Any], context: RequestContext, path: str) -> Response:
        """Signs in, and leads to a path of the console. Raises what the sign-in is refused with."""
        session = await self._registry.call("console_sign_in", credentials, ANONYMOUS, context)
        if not path and (await find_session(self._services, session["session"])).is_new_owner:
            path = FIRST_STEPS
        answer = RedirectResponse(self._prefix + path, 303, _HEADERS)
        self._cookies.set(answer, session["session"], session["expires_at"], self._services.clock.now())
        return answer

    async def _find_session(self, request: Request) -> LiveSession:
        return await find_session(self._services, self._cookies.read(request))

    def _ask_to_sign_in(self, request: Request, path: str) -> Response:
        """Redirects to the sign-in, and from there back to this page. A form that was sent without a session has no
        effect.
        """
        if request.method == "POST":
            # The page of the form; what is done for several calls is done from the inbox.
            path = path.rpartition("/")[0] if path.count("/") > 2 and path.startswith("/approvals/") else ""
        elif request.url.query:
            path = f"{path}?{request.url.query}"
        answer = RedirectResponse(f"{self._prefix}/sign-in?back={quote(path, safe='')}", 303, _HEADERS)
        self._cookies.clear(answer)
        return answer

    def _find_feed(self, path: str) -> Feed | None:
        return next((feed for feed in self._feeds if feed.match(path) is not None), None)

    async def _send_feed(
        self, feed: Feed, path: str, request: Request, receive: Any, respond: Any, context: RequestContext
    ) -> None:
        secret = self._cookies.read(request)

        async def check() -> None:
            await find_session(self._services, secret)

        try:
            session = await find_session(self._services, secret)
            query = dict(request.query_params)
            if last := request.headers.get("last-event-id"):
                query["last_event_id"] = last
            streaming = replace(context, streams=True)
            visit = self._build_visit(session, streaming, feed.match(path) or {}, query)
            set_tenant(session.caller.organisation_id)
            with self._streams.hold_place(session.caller, context.ip, session.id):
                stream = await feed.open(visit)
                if stream.on_stop is not None:
                    request.scope[ON_STOP] = stream.on_stop
                headers: list[tuple[bytes, bytes]] = [(b"x-content-type-options", b"nosniff")]
                if feed.file_name is not None:
                    headers.append((b"content-disposition", b'attachment; filename="%s"' % feed.file_name.encode()))
                stream_while_open = replace(stream, pieces=stream_while_allowed(stream.pieces, check))
                await send_stream(stream_while_open, 200, headers, receive, respond)
        except BaobabError as error:
            await Response(status_code=error.status, headers=_HEADERS)(request.scope, receive, respond)
        except STORE_OUTAGES as exc:
            status = translate_outage(exc, context.request_id).status
            await Response(status_code=status, headers=_HEADERS)(request.scope, receive, respond)

    async def _open_changes(self, visit: Visit) -> Stream:
        organisations = frozenset(row["id"] for row in await visit.list_organisations())
        watch = Watch(organisations, visit.session.caller.account_id)
        return Stream(self._changes.follow(watch, visit.query.get("seen", "")), on_stop=watch.end)

    async def _open_session(self, visit: Visit) -> Stream:
        watch = Watch(frozenset(), visit.session.caller.account_id)
        return Stream(self._changes.follow(watch), on_stop=watch.end)

    def _build_visit(
        self,
        session: LiveSession,
        context: RequestContext,
        parts: Mapping[str, str],
        query: Mapping[str, str],
        form: Mapping[str, str] | None = None,
    ) -> Visit:
        def render(template: str, values: Mapping[str, Any]) -> str:
            return self._render_html(template, values, session)

        return Visit(self._registry, session, context, render, parts, query, form or {})

    def _render(
        self, template: str, values: Mapping[str, Any], session: LiveSession | None = None, status: int = 200
    ) -> Response:
        html = self._render_html(template, values, session)
        return Response(html, status, self._page_headers)

    def _render_html(self, template: str, values: Mapping[str, Any], session: LiveSession | None) -> str:
        page_values = {
            "root": self._prefix,
            "session": session,
            "menus": self._menus,
            "tabs": self._tabs,
            # Whether this person only approves: the menu then has nothing else.
            "decides_only": session is not None and session.find_role(None) == APPROVER,
            "organisation_name": session.organisations[0]["name"] if session and session.organisations else None,
            "may": partial(self._may, session, self._find_organisation(values)),
            "waiting_count": None,
            "in_app": False,
            "feed": "/session",
            "base_url": self._services.options.base_url,
            "stamps": self._stamps,
            "page": None,
            "now": self._services.clock.now(),
            "is_copy": self._services.liveness.is_copy,
        }
        return render_page(self._environment, template, page_values | dict(values))

    def _find_organisation(self, values: Mapping[str, Any]) -> str | None:
        """Returns the organisation of the app that a page is about; None for a page of no app."""
        app = values.get("app")
        row = None if app is None else self._services.directory.cached_app(app["id"])
        return None if row is None else row.organisation_id

    def _may(
        self, session: LiveSession | None, of_app: str | None, tool: str | None, organisation_id: str | None = None
    ) -> bool:
        """Returns whether a page offers what calls a tool: as the registry says, in the organisation that is named,
        else in that of the page's app, else in any of the person's.
        """
        if session is None or tool is None:
            return session is not None
        if isinstance(self._registry.find(tool).access, OperatorOnly):
            return session.caller.account_id == self._operator_id and session.caller.limits is None
        return self._registry.may_call(tool, session.caller, session.find_role(organisation_id or of_app))

    async def _find_admins(
        self, error: BaobabError, path: str, session: LiveSession, context: RequestContext
    ) -> list[str] | None:
        """Returns the names of those whom a person asks who has a role too low for a page; None for another error."""
        if not isinstance(error, Forbidden) or "needed_role" not in error.details:
            return None
        app = self._services.directory.cached_app(path.split("/")[2]) if path.startswith("/apps/app_") else None
        for row in session.organisations:
            if app is None or row["id"] == app.organisation_id:
                arguments = {"organization_id": row["id"]}
                admins = (await self._registry.call("organisations_get", arguments, session.caller, context))["admins"]
                return [name for name in admins if name != session.name][:3]
        return []

    def _render_error(
        self,
        error: BaobabError,
        session: LiveSession | None = None,
        typed: Mapping[str, str] | None = None,
        admins: list[str] | None = None,
    ) -> Response:
        """Renders what went wrong. admins: whom to ask, where the person's role is too low."""
        error.naming = self._registry.name_by_tool
        title = error.message.replace("`", "") if admins is None else _WHO_SEES[error.details["needed_role"]]
        values = {"title": title, "error": error, "typed": typed or {}, "admins": admins, "feed": ""}
        return self._render("problem.html", values, session, error.status)

    async def _send_asset(self, name: str, request: Request) -> Response:
        if name not in self._assets:
            raise RouteNotFound
        answer = await self._assets[name].answer(request)
        if request.query_params.get("v") == self._stamps[name]:
            answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer


def _describe_application(root: str) -> dict[str, Any]:
    """Returns the manifest of what a phone installs: the inbox, under our icon. No page is kept on the phone."""
    icon = {"type": "image/png", "purpose": "any maskable"}
    return {
        "name": "Baobab",
        "short_name": "Baobab",
        "id": root,
        "start_url": root,
        "scope": root,
        "display": "standalone",
        "background_color": _GROUND,
        "theme_color": _GREEN,
        "icons": [{"src": f"{root}/assets/icon-{size}.png", "sizes": f"{size}x{size}", **icon} for size in (192, 512)],
    }


_WHO_SEES = {
    "member": "Only people who work with the apps see this.",
    "admin": "Only admins see this.",
    "owner": "Only owners see this.",
}


def _say_problem(error: BaobabError) -> str:
    """Returns the sentence that tells a person why their sign-in failed."""
    if isinstance(error, RateLimited):
        wait = say_duration(max(60, error.details["retry_after"]))
        return f"Too many sign-ins have failed at your address. Try again in {wait}."
    return f"{error.message} {error.remedy}" if isinstance(error, Unauthenticated) else error.message


def _own_path(text: str) -> str:
    """Returns the path if it belongs to the console, otherwise an empty text, so that nobody is led to another site."""
    path = unquote(text)
    is_own = path.startswith(("/", "?")) and "//" not in path and "\\" not in path and path.isprintable()
    return path if is_own and len(path) <= 1000 and path.isascii() else ""
