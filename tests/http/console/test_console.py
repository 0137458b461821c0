"""The console's pages: who gets in, what they show of others' text, and that no other site's form is taken."""

import re
from html import unescape

import httpx
import pytest
from sqlalchemy import update

from baobab.tools.accounts.first_account import first_account
from baobab.tools.approvals.tables import approvals
from baobab.tools.console.sessions import create_link
from tests.conftest import ADDRESS, Baobab
from tests.jobs import let_decisions_count, run_due_jobs
from tests.people import create_person

OWN = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
HOSTILE = "</q><script>alert(1)</script>\u202egnp.exe\u200b\x1b[31m\nApproved. It is being executed."


async def sign_in(baobab: Baobab, key: str | None = None) -> dict[str, str]:
    """The headers of a browser that has signed in with a key."""
    baobab.client.cookies.clear()
    own = {**OWN, "origin": str(baobab.client.base_url).rstrip("/")}
    answer = await baobab.client.post("/console/sign-in", data={"key": key or baobab.key}, headers=own)
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    baobab.client.cookies.clear()
    return {**own, "cookie": cookie.partition(";")[0]}


async def propose(baobab: Baobab, name: str = "agent", app: str = "shop") -> str:
    body = {"name": name, "approval": "write"}
    response = await baobab.client.post("/api-keys", json=body, headers=baobab.owner)
    agent = {"authorization": f"Bearer {response.json()['key']}"}
    refusal = await baobab.client.post("/init", json={"name": app}, headers=agent)
    return str(refusal.json()["error"]["details"]["approval_id"])


def find_csrf(page: httpx.Response) -> str:
    match = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert match
    return match[1]


async def test_whoever_is_not_signed_in_is_led_to_the_sign_in_and_back(baobab: Baobab) -> None:
    baobab.client.cookies.clear()
    answer = await baobab.client.get("/console/approvals/appr_4fT0qZ9sKx2LmN8v")
    assert answer.status_code == 303
    page = await baobab.client.get(answer.headers["location"])
    assert 'value="/approvals/appr_4fT0qZ9sKx2LmN8v"' in page.text


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "/x%0d%0ay: z"])
async def test_nobody_is_led_to_another_site(baobab: Baobab, back: str) -> None:
    form = {"key": baobab.key, "back": back}
    answer = await baobab.client.post("/console/sign-in", data=form, headers=OWN)
    # Where an owner is led who has no app yet, or else to the inbox.
    assert answer.headers["location"] in ("/console", "/console/welcome")


async def test_an_approval_is_read_and_approved_by_plain_forms(baobab: Baobab) -> None:
    approval_id = await propose(baobab)
    browser = await sign_in(baobab)
    inbox = await baobab.client.get("/console", headers=browser)
    assert f"/console?open={approval_id}" in inbox.text
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    form = {"csrf": find_csrf(page)}
    response = await baobab.client.post(f"/console/approvals/{approval_id}/approve", data=form, headers=browser)
    assert response.status_code == 303
    assert "to take it back" in (await baobab.client.get("/console", headers=browser)).text
    await let_decisions_count(baobab.application)
    again = await baobab.client.post(f"/console/approvals/{approval_id}/reject", data=form, headers=browser)
    assert again.headers["location"].endswith(f"/approvals/{approval_id}?late=1")
    page = await baobab.client.get(again.headers["location"], headers=browser)
    assert "Your decision came too late and changed nothing." in page.text
    assert re.search(r'Approved by <span class="name">Owner, through the key', page.text)


async def test_whoever_is_asked_can_have_the_key_always_ask_and_the_call_goes_on_waiting(baobab: Baobab) -> None:
    approval_id = await propose(baobab, "watched")
    browser = await sign_in(baobab)
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    path = f"/console/approvals/{approval_id}/ask-always"
    form_response = await baobab.client.post(path, data={"csrf": find_csrf(page)}, headers=browser)
    assert form_response.headers["location"] == f"/console/approvals/{approval_id}"
    keys = (await baobab.client.get("/api-keys", headers=baobab.owner)).json()["keys"]
    assert {key["name"]: key["asks"] for key in keys}["watched"] == {"apps_init": "always"}
    response = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=baobab.owner)
    assert response.json()["approval"]["status"] == "pending"


@pytest.mark.parametrize("form", ["approve", "reject", "answer", "approve-alike", "approve-always", "ask-always"])
async def test_nobody_decides_about_calls_of_another_organisation_by_their_id(baobab: Baobab, form: str) -> None:
    approval_id = await propose(baobab, f"of-others-{form}")
    stranger = await create_person(baobab, f"stranger-{form}")
    response = await baobab.client.post("/api-keys", json={"name": "theirs"}, headers=stranger.headers)
    browser = await sign_in(baobab, response.json()["key"])
    data = {"csrf": find_csrf(await baobab.client.get("/console", headers=browser)), "ids": approval_id, "answer": "x"}
    path = f"/console/approvals/{approval_id}"
    assert (await baobab.client.get(path, headers=browser)).status_code == 404
    assert (await baobab.client.post(f"{path}/{form}", data=data, headers=browser)).status_code == 404
    await baobab.client.post("/console/approvals/deny-all", data=data, headers=browser)
    found_response = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=baobab.owner)
    assert found_response.json()["approval"]["status"] == "pending"


async def test_a_page_that_is_not_there_keeps_the_menu_of_whoever_is_signed_in(baobab: Baobab) -> None:
    page = await baobab.client.get("/console/nowhere", headers=await sign_in(baobab))
    assert page.status_code == 404
    assert "There is no such page." in page.text
    assert 'href="/console/apps"' in page.text


async def test_whoever_approves_can_let_the_key_make_such_calls_without_asking(baobab: Baobab) -> None:
    approval_id = await propose(baobab, "gardener")
    browser = await sign_in(baobab)
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    assert "never ask again before this key calls <code>apps_init</code>" in page.text
    path = f"/console/approvals/{approval_id}/approve-always"
    response = await baobab.client.post(path, data={"csrf": find_csrf(page)}, headers=browser)
    assert response.headers["location"] == f"/console/approvals/{approval_id}?decided=1"
    keys = (await baobab.client.get("/api-keys", headers=baobab.owner)).json()["keys"]
    assert {key["name"]: key["asks"] for key in keys}["gardener"] == {"apps_init": "never"}


@pytest.mark.parametrize(
    ("headers", "csrf"),
    [
        ({"origin": "https://evil.example"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({}, False),
        ({"origin": ""}, False),
    ],
)
async def test_a_form_of_another_site_or_without_its_token_does_nothing(
    baobab: Baobab, headers: dict[str, str], csrf: bool
) -> None:
    approval_id = await propose(baobab)
    browser = await sign_in(baobab)
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    form = {"csrf": find_csrf(page) if csrf else "0" * 64}
    all_headers = {**browser, **headers}
    answer = await baobab.client.post(f"/console/approvals/{approval_id}/approve", data=form, headers=all_headers)
    assert answer.status_code == 403
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    assert "/approve" in page.text


async def test_what_others_wrote_is_inert_and_quoted(baobab: Baobab) -> None:
    approval_id = await propose(baobab, name="agent", app="shop")
    services = baobab.application.services
    browser = await sign_in(baobab)
    app_id = await baobab.create_app()
    response = await baobab.client.post("/api-keys", json={"name": "a2", "approval": "write"}, headers=baobab.owner)
    agent = {"authorization": f"Bearer {response.json()['key']}"}
    value = {"value": HOSTILE + "x" * 100_000}
    refusal = await baobab.client.put(f"/v1/{app_id}/kv/note", json=value, headers=agent)
    assert refusal.status_code == 428
    listed_response = await baobab.client.get("/v1/approvals?status=pending", headers=baobab.owner)
    newest = listed_response.json()["approvals"][0]["id"]
    assert newest != approval_id
    page = await baobab.client.get(f"/console/approvals/{newest}", headers=browser)
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert not set(page.text) & {"\u202e", "\u200b", "\x1b"}
    assert "\\u202e" in unescape(page.text)
    assert "x" * 100_000 in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert services


async def test_a_revoked_key_ends_its_session_and_a_key_with_limits_decides_nothing(baobab: Baobab) -> None:
    approval_id = await propose(baobab)
    body = {"name": "mine", "approval": "destructive"}
    created_body = (await baobab.client.post("/api-keys", json=body, headers=baobab.owner)).json()
    browser = await sign_in(baobab, created_body["key"])
    page = await baobab.client.get("/console", headers=browser)
    assert approval_id not in page.text
    form = {"csrf": find_csrf(page)}
    refusal = await baobab.client.post(f"/console/approvals/{approval_id}/approve", data=form, headers=browser)
    assert refusal.status_code in (403, 404)
    await baobab.client.delete(f"/api-keys/{created_body['key_id']}", headers=baobab.owner)
    response = await baobab.client.get("/console", headers=browser)
    assert response.headers["location"].startswith("/console/sign-in")


async def test_signing_out_ends_the_session_for_whoever_has_the_cookie(baobab: Baobab) -> None:
    browser = await sign_in(baobab)
    page = await baobab.client.get("/console", headers=browser)
    response = await baobab.client.post("/console/sign-out", data={"csrf": find_csrf(page)}, headers=browser)
    assert response.headers["location"] == "/console/sign-in"
    assert (await baobab.client.get("/console", headers=browser)).status_code == 303


async def test_a_link_signs_in_once(baobab: Baobab) -> None:
    services = baobab.application.services
    secret = await create_link(services, (await first_account(services)).account_id)
    baobab.client.cookies.clear()
    page = await baobab.client.get(f"/console/sign-in?link={secret}")
    assert "set-cookie" not in page.headers
    first = await baobab.client.post("/console/sign-in", data={"link": secret}, headers=OWN)
    second = await baobab.client.post("/console/sign-in", data={"link": secret}, headers=OWN)
    assert (first.status_code, second.status_code) == (303, 401)
    assert "set-cookie" not in second.headers


@pytest.mark.own_installation
async def test_wrong_sign_ins_lock_an_address_and_right_ones_do_not(baobab: Baobab) -> None:
    for _ in range(21):
        await sign_in(baobab)
    own = {**OWN, "origin": str(baobab.client.base_url).rstrip("/")}
    wrong = {"key": "bb_sk_" + "x" * 40}
    codes = [(await baobab.client.post("/console/sign-in", data=wrong, headers=own)).status_code for _ in range(20)]
    assert set(codes) == {401}
    response = await baobab.client.post("/console/sign-in", data={"key": baobab.key}, headers=own)
    assert response.status_code == 429
    assert re.search(r"Too many sign-ins have failed at your address. Try again in 1[45] minutes", response.text)


async def test_a_new_password_ends_the_sessions_of_the_old_one(baobab: Baobab) -> None:
    body = {"email": "ada@example.com", "password": "correct Horse 7!", "name": "Ada"}
    await baobab.client.post("/platform/signup", json=body)
    sent_body = {"email": body["email"], "password": body["password"]}
    wrong = await baobab.client.post("/console/sign-in", data={**sent_body, "password": "wrong"}, headers=OWN)
    assert wrong.status_code == 401
    answer = await baobab.client.post("/console/sign-in", data=sent_body, headers=OWN)
    baobab.client.cookies.clear()
    browser = {**OWN, "cookie": answer.headers["set-cookie"].partition(";")[0]}
    response = await baobab.client.get("/console/sessions", headers=browser)
    assert "This session" in response.text
    token = (await baobab.client.post("/platform/login", json=sent_body)).json()["token"]
    change = {"password": "another Horse 8!", "current_password": body["password"]}
    changed_response = await baobab.client.patch(
        "/platform/me", json=change, headers={"authorization": f"Bearer {token}"}
    )
    assert changed_response.status_code == 200, changed_response.text
    assert (await baobab.client.get("/console", headers=browser)).status_code == 303


@pytest.mark.own_installation
async def test_signing_out_of_the_api_ends_the_sessions_of_the_account_but_not_those_of_its_keys(
    baobab: Baobab,
) -> None:
    body = {"email": "ada@example.com", "password": "correct Horse 7!"}
    await baobab.client.post("/platform/signup", json={**body, "name": "Ada"})
    by_key = await sign_in(baobab)
    answer = await baobab.client.post("/console/sign-in", data=body, headers=OWN)
    baobab.client.cookies.clear()
    browser = {**OWN, "cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert (await baobab.client.get("/console", headers=browser)).status_code == 200
    token = (await baobab.client.post("/platform/login", json=body)).json()["token"]
    await baobab.client.post("/platform/logout", headers={"authorization": f"Bearer {token}"})
    assert (await baobab.client.get("/console", headers=browser)).status_code == 303
    assert (await baobab.client.get("/console", headers=by_key)).status_code == 200
    again = await baobab.client.post("/console/sign-in", data=body, headers=OWN)
    assert again.status_code == 303


async def test_a_denial_tells_its_reason_and_nothing_is_done(baobab: Baobab) -> None:
    approval_id = await propose(baobab, app="denied")
    browser = await sign_in(baobab)
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    form = {"csrf": find_csrf(page), "reason": "Not on a Friday."}
    response = await baobab.client.post(f"/console/approvals/{approval_id}/reject", data=form, headers=browser)
    assert response.status_code == 303
    await let_decisions_count(baobab.application)
    shown_response = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    assert "Nothing was changed." in shown_response.text
    assert "Not on a Friday." in shown_response.text
    apps = (await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"]
    assert "denied" not in [app["name"] for app in apps]


async def test_a_call_that_nobody_decided_in_time_says_so_and_is_not_made(baobab: Baobab) -> None:
    approval_id = await propose(baobab, app="late")
    browser = await sign_in(baobab)
    form = {"csrf": find_csrf(await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser))}
    services = baobab.application.services
    async with services.database.writing(lock=None) as connection:
        statement = update(approvals).where(approvals.c.id == approval_id).values(expires_at=services.clock.now())
        await connection.execute(statement)
    late = await baobab.client.post(f"/console/approvals/{approval_id}/approve", data=form, headers=browser)
    assert late.headers["location"].endswith(f"/approvals/{approval_id}?late=1")
    page = await baobab.client.get(f"/console/approvals/{approval_id}", headers=browser)
    assert "Nobody decided in time. It will not be executed." in page.text
    assert "/approve" not in page.text
    assert "late" not in [
        app["name"] for app in (await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"]
    ]


async def test_a_stranger_sends_no_large_form(baobab: Baobab) -> None:
    answer = await baobab.client.post("/console/sign-in", data={"key": "x" * 10_000}, headers=OWN)
    assert answer.status_code == 400
    assert "set-cookie" not in answer.headers


async def test_all_that_one_asker_waits_for_is_denied_at_once(baobab: Baobab) -> None:
    body = {"name": "flooder", "approval": "write"}
    response = await baobab.client.post("/api-keys", json=body, headers=baobab.owner)
    agent = {"authorization": f"Bearer {response.json()['key']}"}
    for number in range(3):
        await baobab.client.post("/init", json={"name": f"flood-{number}"}, headers=agent)
    other = await propose(baobab, "bystander")
    browser = await sign_in(baobab)
    inbox = await baobab.client.get("/console", headers=browser)
    (form,) = re.findall(r'name="ids" value="([^"]+)"><p class="soft">3 calls of', inbox.text)
    data = {"csrf": find_csrf(inbox), "ids": form}
    form_response = await baobab.client.post("/console/approvals/deny-all", data=data, headers=browser)
    assert (form_response.status_code, form_response.headers["location"]) == (303, "/console")
    await let_decisions_count(baobab.application)
    for approval_id, status in [*((one, "rejected") for one in form.split()), (other, "pending")]:
        found_response = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=baobab.owner)
        assert found_response.json()["approval"]["status"] == status


async def test_the_page_of_clients_says_how_to_connect_one(baobab: Baobab) -> None:
    page = await baobab.client.get("/console/connect", headers=await sign_in(baobab))
    assert page.status_code == 200
    assert "claude mcp add --transport http" in page.text
    assert "YOUR_KEY" in page.text


async def test_a_person_sees_connected_programs_and_disconnects_one(baobab: Baobab) -> None:
    by_key = await baobab.client.get("/console/programs", headers=await sign_in(baobab))
    assert "A key sees no programs" in by_key.text


async def test_calls_alike_are_shown_with_what_they_say_and_only_those_are_approved(baobab: Baobab) -> None:
    app = await baobab.create_app()
    ref = {"source": "builtin", "name": "kv_put", "mode_override": "read_write"}
    each = {"type": "map", "over": "{{ input.keys }}", "tool_ref": ref, "output_key": "stored"}
    each["on_denied"] = "tell"
    each["args_template"] = {"key": "{{ item }}", "value": "of {{ item }}"}
    graph = {"spec_version": 1, "entry": "each", "nodes": {"each": each, "done": {"type": "end"}}}
    graph |= {"edges": [{"from": "each", "to": "done"}], "tools": {"builtin": ["kv_put"]}}
    agents = f"/v1/{app}/agents"
    await baobab.client.post(
        agents, json={"name": "storer", "graph_spec": graph, "dedupe_window_seconds": 0}, headers=baobab.owner
    )
    for keys in (["one", "two", "three"], ["of another run"]):
        body = {"input": {"keys": keys}}
        response = await baobab.client.post(f"{agents}/storer/runs", json=body, headers=baobab.owner)
        assert response.status_code == 201, response.text
    await run_due_jobs(baobab.application)
    listed_response = await baobab.client.get(f"/v1/approvals?status=pending&app_id={app}", headers=baobab.owner)
    by_key = {next(key for key in ("one", "two", "three", "of another run") if f'"{key}"' in row["title"]): row["id"]
              for row in listed_response.json()["approvals"]}  # fmt: skip
    browser = await sign_in(baobab)
    page = await baobab.client.get(f"/console/approvals/{by_key['one']}/alike", headers=browser)
    # The same step of the same agent, in whichever run.
    for key in ("one", "two", "three", "another run"):
        assert f"&#34;of {key}&#34;" in page.text
    boxes = dict(re.findall(r'name="(call\.\w+)" value="(\w+)" checked', page.text))
    assert boxes.keys() == {f"call.{approval_id}" for approval_id in by_key.values()}
    # Somebody is faster with one of them, one would now replace what it was to add, and one is unticked.
    await baobab.client.post(f"/v1/approvals/{by_key['two']}/reject", json={}, headers=baobab.owner)
    await baobab.client.put(f"/v1/{app}/kv/three", json={"value": "kept"}, headers=baobab.owner)
    del boxes[f"call.{by_key['of another run']}"]
    path = f"/console/approvals/{by_key['one']}/approve-alike"
    results = await baobab.client.post(path, data={"csrf": find_csrf(page), **boxes}, headers=browser)
    assert "1 of 3 approved" in results.text
    assert results.text.count("It has changed since it was shown, or was decided: not approved.") == 2
    await let_decisions_count(baobab.application)
    statuses = {}
    for key, approval_id in by_key.items():
        answer = await baobab.client.get(f"/v1/approvals/{approval_id}", headers=baobab.owner)
        statuses[key] = answer.json()["approval"]["status"]
    assert statuses == {"one": "executed", "two": "rejected", "three": "pending", "of another run": "pending"}


async def test_a_key_sees_the_sessions_that_it_began_and_ends_one(baobab: Baobab) -> None:
    response = await baobab.client.post("/api-keys", json={"name": "phone"}, headers=baobab.owner)
    key = response.json()["key"]
    browser, other = await sign_in(baobab, key), await sign_in(baobab, key)
    page = await baobab.client.get("/console/sessions", headers=browser)
    (path,) = re.findall(r'Another session</strong>.*?action="([^"]+)"', page.text, re.DOTALL)
    form_response = await baobab.client.post(path, data={"csrf": find_csrf(page)}, headers=browser)
    assert form_response.status_code == 303
    assert (await baobab.client.get("/console", headers=other)).status_code == 303
    assert (await baobab.client.get("/console", headers=browser)).status_code == 200
