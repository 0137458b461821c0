"""/auth/{app_id}/connect: where a user of an app agrees to connect an account, and what the simulator shows in place of
a service's consent page.

The first page says for whom the account would be connected, because a link may have been sent by somebody else. It
calls the tools of integrations and holds no rule.
"""

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from baobab.http.answer import reply_to
from baobab.http.forms import name_source, read_form, require_own_page
from baobab.http.html_page import render_page
from baobab.http.request import Request as RestRequest
from baobab.http.request import Scope
from baobab.runtime.integrations.facts import load_facts
from baobab.runtime.integrations.simulator import PERSONS, name_account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError, NotFound
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry

_LARGEST_FORM = 16_384
_MESSAGES = {
    "missing_state": "The service has sent you back without saying from where.",
    "invalid_state": "This link is not good any more, or was opened in another browser.",
    "app_mismatch": "This link belongs to another app.",
    "connection_failed": "The service has not connected the account.",
}


class ConnectPages:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._base_url = registry.services.options.base_url

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        rest_request, request = RestRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        client = (rest_request.id, rest_request.ip, rest_request.user_agent)
        context = RequestContext("connect_page", *client, self._base_url, rest_request.path)
        _, _, app_id, _, *rest = rest_request.path.split("/")
        try:
            answer = await self._answer(request, app_id, "/".join(rest), context)
        except ClientDisconnect:
            answer = Response(status_code=400)
        except STORE_OUTAGES as exc:
            answer = _show_problem(translate_outage(exc, rest_request.id), len(rest))
        except BaobabError as error:
            answer = _show_problem(error, len(rest))
        await answer(scope, receive, respond)

    async def _answer(self, request: Request, app_id: str, page: str, context: RequestContext) -> Response:
        if page == "done":
            return _show_end(request.query_params)
        if page == "simulator":
            if not self._registry.services.options.simulators:
                raise NotFound("Simulators are off.")
            return _show_consent(self._base_url, app_id, request.query_params)
        if request.method != "POST":
            arguments = {"app_id": app_id, "ticket": request.query_params.get("ticket", "")}
            link = await self._registry.call("integrations_link", arguments, ANONYMOUS, context)
            return _show_link(link, arguments["ticket"])
        require_own_page(request.headers)
        arguments = {"app_id": app_id, "ticket": (await read_form(request, _LARGEST_FORM)).get("ticket", "")}
        opening = await self._registry.call("integrations_link_open", arguments, ANONYMOUS, context)
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer", "set-cookie": opening["browser"]}
        return RedirectResponse(opening["location"], 303, headers)


def _show_link(link: Mapping[str, Any], ticket: str) -> Response:
    service, app, user = (escape(link[name]) for name in ("display_name", "app_name", "user_name"))
    alias = "" if link["alias"] is None else f" as <b>{escape(link['alias'])}</b>"
    scopes = "".join(f"<li>{escape(scope['words'])}</li>" for scope in link["scopes"])
    simulator_note = "<p>This is a simulator: no real account is connected.</p>" if link.get("simulated") else ""
    body = (
        f"<h1>Connect {service}</h1><p>The app <b>{app}</b> would use your account of {service}{alias} for its user"
        f" <b>{user}</b>.</p><p>Go on only if that is you. If somebody else has sent you this link, close the page:"
        f" whoever that is would use your account.</p><p>{service} will ask you to let the app do this:</p>"
        f"<ul>{scopes}</ul>{simulator_note}"
        f'<form method="post"><input type="hidden" name="ticket" value="{escape(ticket)}">'
        f"<button>Go on to {service}</button></form>"
    )
    # Chromium holds the redirect that answers a form to this policy, too: services have many hosts.
    return render_page(f"Connect {link['display_name']}", body, root="../../", forms="'self' https: http:")


def _show_consent(base_url: str, app_id: str, query: Mapping[str, str]) -> Response:
    facts = load_facts().get(query.get("toolkit", ""))
    if facts is None:
        raise NotFound("The simulator has no such service.")
    service, state = facts.toolkit, query.get("state", "")
    callback = f"{base_url}/v1/{app_id}/integrations/callback"
    choices = [(f"Allow as {name_account(service.slug, code)}", {"code": code, "state": state}) for code in PERSONS]
    choices.append(("Refuse", {"error": "access_denied", "state": state}))
    links = "".join(
        f'<li><a href="{escape(f"{callback}?{urlencode(parameters)}")}">{escape(words)}</a></li>'
        for words, parameters in choices
    )
    body = (
        f"<h1>{escape(service.name)} (simulated)</h1><p>This page stands for the consent page of"
        f" {escape(service.name)}. Accounts and contents are invented.</p><ul>{links}</ul>"
    )
    return render_page(f"{service.name} (simulated)", body, root="../../../", forms=name_source(callback))


def _show_end(query: Mapping[str, str]) -> Response:
    if query.get("status") == "connected":
        facts = load_facts().get(query.get("toolkit", ""))
        name = "Your account" if facts is None else f"Your account of {escape(facts.toolkit.name)}"
        return render_page("Connected", f"<h1>Connected</h1><p>{name} is connected. You can close this page.</p>",
                           root="../../../")  # fmt: skip
    words = _MESSAGES.get(query.get("message", ""), "The account was not connected.")
    body = f"<h1>Not connected</h1><p>{words} Go back to the app and begin again.</p>"
    return render_page("Not connected", body, root="../../../", status=400)


def _show_problem(error: BaobabError, depth: int) -> Response:
    body = f"<h1>This does not work</h1><p>{escape(error.message)}</p><p>{escape(error.remedy)}</p>"
    return render_page("This does not work", body, root="../" * (2 + depth), status=error.status)
