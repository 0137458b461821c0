"""/auth/{app_id}/approvals: where an app's users with a role decide about calls that wait for them.

It calls the tools of approvals as the signed-in user, who sees no more here than over REST.
"""

import hmac
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from baobab.http.answer import reply_to
from baobab.http.console.call_form import CallForm, build_answer_form, build_call_form
from baobab.http.console.rendering import build_environment, render_page, say_duration
from baobab.http.forms import ForeignForm, name_source, read_form, require_own_page
from baobab.http.login_page.page import ACCENT, HEADERS, contrast
from baobab.http.login_page.user_sessions import FLOW, TO_APPROVALS, UserSessions
from baobab.http.request import Request as RestRequest
from baobab.http.request import Scope
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError, Unauthenticated
from baobab.tools.core.guard.approvals import AlreadyDecided
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry

_LARGEST_FORM = 5 * 2**20
_MOST = 50
_QUESTION, _BOUND = "interrupt", "app_id"
_DONE = {"approved": "Approved. It is executed now.", "rejected": "Denied. Nothing was changed."}
_LATE = {"rejected": "denied", "executed": "approved and executed", "failed": "approved, and it failed"}


class UserApprovals:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._environment = build_environment(Path(__file__).parent / "templates", now=registry.services.clock.now)

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        rest_request, request = RestRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        client = (rest_request.id, rest_request.ip, rest_request.user_agent)
        base_url = self._registry.services.options.base_url
        context = RequestContext("login_page", *client, base_url, rest_request.path)
        app_id = rest_request.path.split("/")[2]
        try:
            answer = await self._answer(request, app_id, context)
        except ClientDisconnect:
            answer = Response(status_code=400)
        except STORE_OUTAGES as exc:
            answer = self.render({}, problem=translate_outage(exc, rest_request.id))
        except BaobabError as error:
            answer = self.render({}, problem=error)
        await answer(scope, receive, respond)

    async def _answer(self, request: Request, app_id: str, context: RequestContext) -> Response:
        sessions = UserSessions(self._registry, app_id)
        page = await self._registry.call("auth_page", {"app_id": app_id}, ANONYMOUS, context)
        try:
            if FLOW in request.query_params:
                # A link that somebody else made signs nobody in, and nobody out.
                with suppress(Unauthenticated):
                    came_back = await sessions.end_flow(request)
                    came_back.headers.update({**HEADERS, "Referrer-Policy": "no-referrer"})
                    return came_back
            user, renewed_tokens = await sessions.open(request, context)
        except Unauthenticated:
            leaving = RedirectResponse(f"login-page?wish={TO_APPROVALS}", 303, HEADERS)
            sessions.clear(leaving)
            return leaving
        visit = _Visit(self, self._registry, app_id, context, user, page, sessions.sign_form(user))
        try:
            answer = await visit.act(request, sessions) if request.method == "POST" else await visit.show(request)
        except BaobabError as error:
            answer = self.render(visit.values, problem=error)
        if renewed_tokens is not None and "set-cookie" not in answer.headers:
            sessions.keep(answer, renewed_tokens)
        return answer

    def render(self, values: Mapping[str, Any], *, problem: BaobabError | None = None) -> Response:
        nonce, page = secrets.token_urlsafe(16), values.get("page")
        accent = (page and page["colour"]) or ACCENT
        defaults = {"page": None, "csrf": "", "calls": None, "call": None, "done": None, "app_name": "Baobab"}
        looks = {"nonce": nonce, "accent": accent, "on_accent": contrast(accent)}
        words = None if problem is None else problem.message
        html = render_page(self._environment, "approvals.html", {**defaults, **values, **looks, "problem": words})
        images = " ".join(["data:", *([name_source(page["logo_url"])] if page and page["logo_url"] else [])])
        policy = f"default-src 'none'; style-src 'nonce-{nonce}'; img-src {images}; form-action 'self'; "
        policy += "frame-ancestors 'none'; base-uri 'none'"
        headers = {**HEADERS, "Content-Security-Policy": policy, "Content-Type": "text/html; charset=utf-8"}
        return Response(html, 200 if problem is None else problem.status, headers)


@dataclass
class _Visit:
    """One request of a signed-in user."""

    owner: UserApprovals
    registry: Registry
    app_id: str
    context: RequestContext
    user: EndUser
    page: Mapping[str, Any]
    csrf: str

    @property
    def values(self) -> dict[str, Any]:
        return {"page": self.page, "csrf": self.csrf, "app_name": self.page["app_name"]}

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.registry.call(tool, arguments, self.user, self.context)

    async def show(self, request: Request) -> Response:
        approval_id = request.query_params.get("call")
        if approval_id is not None:
            return self.owner.render({**self.values, "call": await self._describe(approval_id)})
        page_of_calls = await self.call("approvals_list", status="pending", app_id=self.app_id, limit=_MOST)
        now = self.registry.services.clock.now()
        calls = [
            {**each, "left": say_duration((each["expires_at"] - now).total_seconds())}
            for each in page_of_calls["approvals"]
            if each["may_decide"]
        ]
        outcome = _DONE.get(request.query_params.get("done", ""))
        return self.owner.render(
            {**self.values, "calls": calls, "done": outcome, "more": page_of_calls["next_cursor"] is not None}
        )

    async def act(self, request: Request, sessions: UserSessions) -> Response:
        require_own_page(request.headers)
        form = await read_form(request, _LARGEST_FORM)
        if not hmac.compare_digest(form.get("csrf", "").encode(), self.csrf.encode()):
            raise ForeignForm
        step, approval_id = form.get("step", ""), form.get("call", "")
        if step == "sign-out":
            if self.user.session_id is not None:
                await self.call("auth_session_end", app_id=self.app_id, session_id=self.user.session_id)
            answer = RedirectResponse(f"login-page?wish={TO_APPROVALS}", 303, HEADERS)
            sessions.clear(answer)
            return answer
        try:
            await self._decide(step, approval_id, form)
        except AlreadyDecided:
            return self.owner.render({**self.values, "call": await self._describe(approval_id)})
        except BadRequest as error:
            # What was typed stays.
            call_view = await self._describe(approval_id)
            if call_view["form"] is not None:
                call_view["form"].read(form)
            return self.owner.render({**self.values, "call": call_view}, problem=error)
        outcome = "rejected" if step == "deny" else "approved"
        return RedirectResponse(f"approvals?done={outcome}", 303, HEADERS)

    async def _decide(self, step: str, approval_id: str, form: Mapping[str, str]) -> None:
        if step == "deny":
            reason = form.get("reason", "").strip() or None
            await self.call("approvals_reject", approval_id=approval_id, reason=reason)
            return
        call_view = await self._describe(approval_id)
        fields: CallForm | None = call_view["form"]
        values = {"answer": form.get("answer", "").replace("\r\n", "\n")} if fields is None else fields.read(form)
        if fields is not None and not fields.is_valid:
            raise BadRequest("Correct the fields that are marked. Nothing has been decided yet.")
        changes: dict[str, Any] = {}
        if call_view["is_question"]:
            changes["data"] = values
        elif fields is not None and values != fields.values:
            changes["arguments"] = values
        await self.call("approvals_approve", approval_id=approval_id, **changes)

    async def _describe(self, approval_id: str) -> dict[str, Any]:
        details = await self.call("approvals_get", approval_id=approval_id)
        approval, arguments = details["approval"], details["arguments"] or {}
        if approval["app_id"] != self.app_id:
            raise BadRequest("This call is not one of this app.")
        is_question = approval["tool"] == _QUESTION
        is_open = approval["status"] == "pending" and details["may_decide"]
        # A key's own call is decided as it is.
        may_edit = is_open and approval["run_id"] is not None and not is_question
        arguments.pop(_BOUND, None)
        if is_question:
            form = build_answer_form(arguments.get("answer_schema"), arguments.get("data"))
        else:
            # What its tool takes is for those who run the app: the values say which fields there are.
            form = build_call_form({}, arguments)
            if not may_edit or approval["edit"] is not None:
                form.lock((approval["edit"] or ()) if may_edit else ())
        return {
            **approval,
            "is_question": is_question,
            "is_open": is_open,
            "late": None if approval["status"] == "pending" else _LATE.get(approval["status"], approval["status"]),
            "reason_asked": str(arguments.get("reason") or "") if is_question else None,
            "form": form,
            "preview": details["preview"],
        }
