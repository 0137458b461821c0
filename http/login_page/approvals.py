"""/auth/{app_id}/approvals: where an app's users with a role decide about calls that wait for them.

It calls the tools of approvals as the signed-in user, who sees no more here than over REST.
"""

import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from baobab.http.answer import reply_to
from baobab.http.console.answer_form import build_fields, read_answer
from baobab.http.console.rendering import build_environment, render_page, say_duration
from baobab.http.forms import ForeignForm, name_source, read_form, require_own_page
from baobab.http.login_page.page import ACCENT, HEADERS, contrast
from baobab.http.login_page.user_sessions import TO_APPROVALS, UserSessions
from baobab.http.request import Request as RestRequest
from baobab.http.request import Scope
from baobab.tools.core.approvals import AlreadyDecided
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError, Unauthenticated
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry
from baobab.tools.core.types import parse_json

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
            _fill(call_view, form)
            return self.owner.render({**self.values, "call": call_view}, problem=error)
        outcome = "rejected" if step == "deny" else "approved"
        return RedirectResponse(f"approvals?done={outcome}", 303, HEADERS)

    async def _decide(self, step: str, approval_id: str, form: Mapping[str, str]) -> None:
        if step == "deny":
            reason = form.get("reason", "").strip() or None
            await self.call("approvals_reject", approval_id=approval_id, reason=reason)
            return
        call_view = await self._describe(approval_id)
        changes: dict[str, Any] = {}
        if call_view["is_question"]:
            changes["data"] = _read_answer(call_view["answer_fields"], form)
        elif (arguments := _read_arguments(call_view, form)) is not None:
            changes["arguments"] = arguments
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
        leaves = [] if is_question else list(_list_leaves(arguments))
        answer_fields = build_fields(arguments.get("answer_schema"), arguments.get("data")) if is_question else None
        editable_paths = set(approval["edit"]) if approval["edit"] is not None else None
        fields = [
            {
                "id": f"field-{number}",
                "path": path,
                "name": path.rpartition(".")[2].replace("_", " "),
                "value": value,
                "text": _show(value),
                "editable": may_edit and (editable_paths is None or path in editable_paths),
            }
            for number, (path, value) in enumerate(leaves)
        ]
        return {
            **approval,
            "is_question": is_question,
            "is_open": is_open,
            "late": None if approval["status"] == "pending" else _LATE.get(approval["status"], approval["status"]),
            "reason_asked": str(arguments.get("reason") or "") if is_question else None,
            "arguments": arguments,
            "fields": fields,
            "answer_fields": answer_fields,
            "preview": details["preview"],
        }


def _fill(call_view: dict[str, Any], form: Mapping[str, str]) -> None:
    """Puts what was typed into the fields of a form that is shown again."""
    for field in call_view["fields"]:
        if field["editable"] and field["id"] in form:
            field["text"] = form[field["id"]]
    for field in call_view["answer_fields"] or ():
        if field["id"] in form and field["kind"] in ("text", "choice"):
            field["value"] = form[field["id"]]


def _list_leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields the values of a call with their paths, such as `changes.amount`. Lists are one value."""
    if isinstance(value, dict) and depth < 8:
        for name, part in value.items():
            if path or name != _BOUND:
                yield from _list_leaves(part, f"{path}.{name}" if path else str(name), depth + 1)
    elif value is not None:
        yield path, value


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_arguments(call_view: Mapping[str, Any], form: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns the arguments with what was typed in place of theirs; None where nothing was changed."""
    arguments, has_changed = deepcopy(call_view["arguments"]), False
    for field in call_view["fields"]:
        typed_text = form.get(field["id"], "").replace("\r\n", "\n")
        if not field["editable"] or field["id"] not in form or typed_text == field["text"].replace("\r\n", "\n"):
            continue
        *names, last = field["path"].split(".")
        place = reduce(getitem, names, arguments)
        place[last] = _parse(field, typed_text)
        has_changed = True
    arguments.pop(_BOUND, None)
    return arguments if has_changed else None


def _parse(field: Mapping[str, Any], typed_text: str) -> Any:
    if isinstance(field["value"], str):
        return typed_text
    try:
        return parse_json(typed_text.encode())
    except ValueError as exc:
        raise BadRequest(f"{field['name']}: this is no number or value of that kind.") from exc


def _read_answer(fields: list[dict[str, Any]] | None, form: Mapping[str, str]) -> dict[str, Any]:
    if fields is not None:
        return read_answer(fields, form)
    return {"answer": form.get("answer", "").replace("\r\n", "\n")}
