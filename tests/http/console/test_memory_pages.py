"""The console's pages of the substrate: memory, ledger, entities, rules, outbox, and what waits in the inbox."""

import re
from typing import Any

import pytest

from baobab.tools.accounts.first_account import first_account
from baobab.tools.console.sessions import create_link
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.context import RequestContext
from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, OWN, sign_in
from tests.http.console.test_runs import Runner


@pytest.fixture
async def visitor(baobab: Baobab) -> Runner:
    """Somebody who has signed in without a key: keys of apps do not open the substrate."""
    services = baobab.application.services
    secret = await create_link(services, (await first_account(services)).account_id)
    baobab.client.cookies.clear()
    answer = await baobab.client.post("/console/sign-in", data={"link": secret}, headers=OWN)
    baobab.client.cookies.clear()
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return Runner(baobab, "", {**OWN, "cookie": cookie})


async def call(visitor: Runner, tool: str, **arguments: Any) -> Any:
    application = visitor.baobab.application
    owner = await first_account(application.services)
    caller = Account(owner.account_id, owner.organisation_id)
    return await application.registry.call(f"substrate_{tool}", arguments, caller, RequestContext("rest", "1"))


async def propose(visitor: Runner, capability: str, **payload: Any) -> Any:
    return await call(visitor, "propose", capability=capability, payload=payload)


async def test_what_waits_in_the_substrate_stands_in_the_inbox_and_is_decided(visitor: Runner) -> None:
    waits = await propose(visitor, "place_call", to=HOSTILE, purpose="Ask")
    inbox = await visitor.open("/console")
    path = f"/console/substrate/actions/{waits['action_id']}"
    assert path in inbox.text
    # What it proposes is said in the list, without a step.
    assert "&#34;purpose&#34;: &#34;Ask&#34;" in inbox.text
    assert "<script>alert" not in inbox.text
    page = await visitor.open(path)
    assert "<script>alert" not in page.text
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    assert (await visitor.send(f"{path}/approve", page, of=of)).status_code == 303
    assert path not in (await visitor.open("/console")).text
    again = await visitor.send(f"{path}/reject", page, of=of, reason="late")
    assert again.status_code == 409


async def test_what_a_principle_forbids_is_allowed_once_and_then_approved(visitor: Runner) -> None:
    # No other test proposes this capability: the principle holds for all of them.
    waits = await propose(visitor, "send_email_draft", to="ada@example.com", subject="Hello", body=HOSTILE)
    rule = {"applies_to": {"capability": "send_email_draft"}, "constraint_spec": {"type": "forbid"}}
    principle = await propose(visitor, "record_principle", title="Call nobody", **rule)
    await call(visitor, "approve", action_id=principle["action_id"])
    path = f"/console/substrate/actions/{waits['action_id']}"
    page = await visitor.open(path)
    assert ("Call nobody" in page.text, f"{path}/approve" in page.text) == (True, False)
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    (conflict,) = re.findall(r'name="conflict" value="([^"]+)"', page.text)
    assert (await visitor.send(f"{path}/allow", page, of=of, conflict=conflict)).status_code == 303
    page = await visitor.open(path)
    assert (await visitor.send(f"{path}/approve", page, of=of)).status_code == 303
    action_list = await visitor.open("/console/substrate/actions?status=executed")
    assert ("Call nobody" in action_list.text, "by a person" in action_list.text) == (True, True)
    assert "<script>alert" not in action_list.text


async def test_an_action_shows_before_and_after_and_is_undone(visitor: Runner) -> None:
    entity = (await propose(visitor, "upsert_entity", type="person", display_name="Ada"))["result"]["entity_id"]
    proposal = await propose(visitor, "update_entity", id=entity, display_name="Ada Lovelace")
    path = f"/console/substrate/actions/{proposal['action_id']}"
    page = await visitor.open(path)
    before, after = page.text.split("<h3>After</h3>")
    assert "Ada&#34;" in before.split("<h3>Before</h3>")[1]
    assert "Ada Lovelace" in after
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    assert (await visitor.send(f"{path}/undo", page, of=of)).status_code == 303
    assert "another action" in (await visitor.open(path)).text
    assert "update entity" in (await visitor.open("/console/substrate/actions?status=reverted")).text


async def test_entities_are_found_merged_and_separated(visitor: Runner) -> None:
    names = ("Grace Hopper", "G. Hopper")
    proposals = [await propose(visitor, "upsert_entity", type="person", display_name=name) for name in names]
    ids = [each["result"]["entity_id"] for each in proposals]
    assert ids[0] in (await visitor.open("/console/substrate/entities?q=hopper")).text
    path = f"/console/substrate/entities/{ids[0]}"
    page = await visitor.open(path)
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    response = await visitor.send(f"{path}/merge", page, of=of, other=ids[1], reason="the same")
    action = response.headers["location"].partition("?")[0]
    assert (await visitor.send(f"{action}/approve", page, of=of)).status_code == 303
    page_text = (await visitor.open(path)).text
    assert ids[1] in page_text
    assert names[1] in page_text
    response = await visitor.send(f"{path}/unmerge", page, of=of, alias=ids[1])
    assert "unmerge entities" in (await visitor.open(response.headers["location"])).text


async def test_memory_is_searched_and_says_who_wrote_it(visitor: Runner) -> None:
    proposal = await propose(visitor, "record_learning", title="Blue doors", description=HOSTILE)
    for way in ("words", "meaning", "both"):
        assert (await visitor.open(f"/console/substrate?q=blue+doors&by={way}")).status_code == 200
    page = await visitor.open("/console/substrate?q=blue+doors&by=words")
    assert f"/console/substrate/actions/{proposal['action_id']}" in page.text
    assert "<script>alert" not in page.text
    assert "Nothing in memory matches" in (await visitor.open("/console/substrate?q=nowhere&by=words")).text


async def test_rules_show_what_they_would_do_and_are_switched_off(visitor: Runner) -> None:
    rule = {"name": "Look", "trigger_cron": "0 8 * * *", "condition_mode": "row_query"}
    rule |= {"condition": {"table": "entities", "limit": 1}, "action_capability": "record_learning"}  # type: ignore[dict-item]
    rule |= {"action_payload_template": {"title": "Seen {{row.type}}", "description": "x"}}  # type: ignore[dict-item]
    rule_id = (await call(visitor, "rule_create", **rule))["id"]
    assert "Look" in (await visitor.open("/console/substrate/rules")).text
    page = await visitor.open(f"/console/substrate/rules/{rule_id}")
    assert "Seen " in page.text
    assert "It has not run yet" in page.text
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    assert (await visitor.send(f"/console/substrate/rules/{rule_id}/disable", page, of=of)).status_code == 303
    assert "Switch on" in (await visitor.open(f"/console/substrate/rules/{rule_id}")).text


async def test_deliveries_show_their_tries_and_are_cancelled(visitor: Runner) -> None:
    target = {"webhook_url": "https://told.invalid/", "signing_secret": "a secret of eight"}
    await call(visitor, "outbox_target_put", capability="record_decision", **target)
    await propose(visitor, "record_decision", title="Ship", kind="vision")
    page = await visitor.open("/console/substrate/outbox")
    assert "0 tries" in page.text or "1 try" in page.text
    (of,) = set(re.findall(r'name="of" value="([^"]+)"', page.text))
    (path,) = re.findall(r'action="(/console/substrate/outbox/[^"]+/cancel)"', page.text)
    assert (await visitor.send(path, page, of=of)).status_code == 303
    assert "cancelled" in (await visitor.open("/console/substrate/outbox?state=cancelled")).text


async def test_who_signed_in_with_a_key_is_told_how_to_get_there(baobab: Baobab) -> None:
    browser = await sign_in(baobab)
    page = await baobab.client.get("/console/substrate", headers=browser)
    assert page.status_code == 403
    assert (await baobab.client.get("/console", headers=browser)).status_code == 200
