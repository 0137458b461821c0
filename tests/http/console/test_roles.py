"""Every page of the console, walked by each role: no link and no form of it answers that the role is too low."""

import re
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest

from baobab.tools.console.sessions import create_link
from tests.conftest import Baobab
from tests.http.console.test_runs import build_graph
from tests.http.console.test_team import Browser
from tests.jobs import run_due_jobs
from tests.people import create_person, get_first_organisation

_MOST_PAGES = 150
_FORM = re.compile(r'<form[^>]*method="post"[^>]*action="([^"]+)"[^>]*>(.*?)</form>', re.DOTALL)
_INPUT = re.compile(r'<input[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?')
# Pressed last, or not at all: they end the walk.
_ENDS_WALK = ("/sign-out", "/revoke", "/account/delete", "/remove", "/account/password")


async def sign_in_as(baobab: Baobab, role: str, app_ids: list[str] | None = None) -> Browser:
    person = await create_person(baobab, f"the-{role}", role=role, app_ids=app_ids)
    browser = Browser(baobab)
    link = await create_link(baobab.application.services, person.id)
    answer = await browser.send("/console/sign-in", link=link)
    assert answer.status_code == 303, answer.text
    return browser


async def fill_app(baobab: Baobab) -> str:
    """An app with something on every page."""
    app_id, owner, client = await baobab.create_app(), baobab.owner, baobab.client
    graph = build_graph(asks=True)
    graph["nodes"]["first"]["approvers"] = "member"
    requests: list[tuple[str, str, object]] = [
        ("PUT", f"/v1/{app_id}/kv/a", {"value": 1}),
        ("POST", f"/v1/{app_id}/kv/_expose", {"pattern": "a", "read": "public"}),
        ("POST", f"/v1/{app_id}/schema/apply", baobab.application.registry.find("schema_apply").examples),
        ("POST", f"/v1/{app_id}/agents", {"name": "asker", "graph_spec": graph, "dedupe_window_seconds": 0}),
        ("POST", f"/v1/{app_id}/agents/asker/runs", {"input": {"key": "a", "value": 2}}),
        ("POST", f"/auth/{app_id}/signup", {"email": "carla@example.com", "password": "correct Horse 7!"}),
    ]
    for method, path, body in requests:
        answer = await client.request(method, path, json=body, headers=owner)
        assert answer.status_code < 500, answer.text
    await run_due_jobs(baobab.application)
    return app_id


async def walk(baobab: Baobab, browser: Browser, *starts: str) -> tuple[set[str], list[str]]:
    """Follows each link below /console and sends each form once. Returns the pages, and what was refused as 403."""
    waiting, pages, pressed_forms, refusals = ["/console", *starts], set[str](), set[str](), list[str]()
    while waiting and len(pages) < _MOST_PAGES:
        path = waiting.pop(0)
        kind = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|appr_\w+", "ID", path)
        if kind in pages:
            continue
        pages.add(kind)
        limits: Any = baobab.application.services.limits
        limits._windows.clear()
        page = await browser.open(path)
        if page.status_code == 403:
            refusals.append(f"GET {path}")
        if page.status_code != 200 or "text/html" not in page.headers["content-type"]:
            continue
        text = re.sub(r"<pre.*?</pre>", "", page.text, flags=re.DOTALL)
        for address in re.findall(r'href="(/console[^"#]*)"', text):
            link = unescape(address)
            if "/assets/" not in link and "/export" not in link:
                waiting.append(link)
        for action, inner in _FORM.findall(text):
            target = urlsplit(unescape(action)).path
            form_kind = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|appr_\w+", "ID", target)
            if form_kind in pressed_forms or target.endswith(_ENDS_WALK):
                continue
            pressed_forms.add(form_kind)
            fields = {name: unescape(value) for name, value in _INPUT.findall(inner) if name != "csrf"}
            answer = await browser.send(target, **fields)
            if answer.status_code == 403:
                refusals.append(f"POST {target}: {re.findall('<h1>(.*?)</h1>', answer.text)}")
            browser.page = page
    return pages, refusals


@pytest.mark.own_installation
@pytest.mark.parametrize("role", ["member", "admin"])
async def test_whoever_works_with_the_apps_is_shown_no_page_and_no_button_that_is_refused(
    baobab: Baobab, role: str
) -> None:
    app_id = await fill_app(baobab)
    browser = await sign_in_as(baobab, role)
    # The first steps are those of whoever may name the organisation.
    first_steps = ["/console/welcome"] if role == "admin" else []
    starts = ["/console/apps", f"/console/apps/{app_id}", "/console/connect", *first_steps]
    pages, refused_requests = await walk(baobab, browser, *starts)
    assert refused_requests == []
    assert f"/console/apps/{app_id}/users" in pages
    assert (f"/console/apps/{app_id}/audit-log" in pages) is (role == "admin")


@pytest.mark.own_installation
async def test_an_approver_is_shown_the_inbox_and_their_account_and_nothing_that_is_refused(baobab: Baobab) -> None:
    app_id = await fill_app(baobab)
    browser = await sign_in_as(baobab, "approver")
    page = await browser.open("/console")
    [approval] = set(re.findall(r"appr_\w+", page.text))
    pages, refused_requests = await walk(baobab, browser)
    assert refused_requests == []
    assert not [path for path in pages if path.startswith(("/console/apps", "/console/keys", "/console/team"))]
    assert "/console/account" in pages
    assert "/console/notices" in pages
    assert approval
    refusal = await browser.open(f"/console/apps/{app_id}/runs")
    assert refusal.status_code == 403
    assert "Ask Owner" in refusal.text
    assert await get_first_organisation(baobab)
