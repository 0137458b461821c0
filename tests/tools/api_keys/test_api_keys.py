import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from baobab.storage.sql.notices import Notices
from baobab.tools.api_keys.errors import KeyNotFound
from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, EndUser, ScopedKey
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.errors import (
    AppNotFound,
    BadRequest,
    Forbidden,
    InvalidApiKey,
    NotFound,
    Unauthenticated,
)
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.organisations.errors import InvitationNotFound
from baobab.tools.users.session_check import SessionCheck
from tests.tools.conftest import ToolHarness

APP = "app_000000000001"
MOST = PLANS["playground"].api_keys or 0
SOMEBODY = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"


async def prefixes(harness: ToolHarness, by: Account, **arguments: Any) -> set[str]:
    return {key["prefix"] for key in (await harness.call("api_keys_list", by, **arguments))["keys"]}


async def test_an_account_key_is_shown_once_and_acts_for_the_account_in_its_organisation(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    result = await harness.call("api_keys_create", ada, name="agent")
    assert result["scopes"] == ["*"]
    assert len(result["key"]) == len("bb_sk_") + 40
    assert result["prefix"] == result["key"][:12]
    caller = await harness.authenticate(result["key"])
    assert caller == Account(ada.account_id, ada.organisation_id, result["key_id"])

    [listed_key] = (await harness.call("api_keys_list", caller))["keys"]
    assert (listed_key["id"], listed_key["prefix"], listed_key["account_id"]) == (
        result["key_id"],
        result["prefix"],
        ada.account_id,
    )
    assert result["key"] not in repr(listed_key)
    database = harness.read_database()
    assert result["prefix"].encode() in database
    assert result["key"].encode() not in database


async def test_an_app_key_opens_its_app_and_nothing_else(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    await harness.create_app_row(ada.organisation_id)
    result = await harness.call("api_keys_create", ada, name="backend", key_scope="app", target_app_id=APP)
    assert result["scopes"] == [f"app:{APP}", "ai:gateway"]
    caller = await harness.authenticate(result["key"])
    assert caller == AppKey(APP, result["key_id"], ada.account_id, gateway=True)
    with pytest.raises(Forbidden):
        await harness.call("api_keys_create", caller, name="more")


@pytest.mark.parametrize(
    ("fields", "scopes", "kind"),
    [
        ({"scopes": ["*"]}, ["*"], "bb_sk_"),
        ({"scopes": ["ai:gateway", "ai:gateway"]}, ["ai:gateway"], "bb_sk_"),
        ({"scopes": ["substrate"]}, ["substrate"], "bb_sub_"),
        ({"scope": "substrate"}, ["substrate"], "bb_sub_"),
        ({"scope": "substrate", "key_scope": "account"}, ["substrate"], "bb_sub_"),
        ({"scope": "app", "key_scope": "account"}, ["*"], "bb_sk_"),
        ({"additional_scopes": ["ai:gateway"]}, ["*", "ai:gateway"], "bb_sk_"),
    ],
)
async def test_a_key_gets_the_scopes_that_were_asked_for(
    harness: ToolHarness, fields: dict[str, Any], scopes: list[str], kind: str
) -> None:
    ada = await harness.sign_up("ada@example.com")
    result = await harness.call("api_keys_create", ada, name="key", **fields)
    assert result["scopes"] == scopes
    assert result["key"].startswith(kind)
    assert len(result["key"]) == len(kind) + 40
    caller = await harness.authenticate(result["key"])
    assert isinstance(caller, Account if "*" in scopes else ScopedKey)


@pytest.mark.parametrize(
    "fields",
    [
        {"key_scope": "app"},
        {"target_app_id": APP},
        {"key_scope": "account", "target_app_id": APP},
        {"key_scope": "everything"},
        {"scopes": ["root"]},
        {"scopes": []},
        {"scopes": [f"app:{APP}"]},
        {"scopes": ["*", "substrate"]},
        {"scopes": ["*"], "key_scope": "account"},
        {"additional_scopes": ["*"]},
        {"additional_scopes": ["substrate"]},
        {"scope": "both"},
        {"key_scope": "app", "target_app_id": APP, "scope": "substrate"},
        {"key_scope": "app", "target_app_id": APP, "organization_id": SOMEBODY},
        {"surprise": True},
    ],
)
async def test_a_request_that_does_not_say_which_key_it_wants_makes_none(
    harness: ToolHarness, fields: dict[str, Any]
) -> None:
    ada = await harness.sign_up("ada@example.com")
    await harness.create_app_row(ada.organisation_id)
    with pytest.raises(BadRequest) as refusal:
        await harness.call("api_keys_create", ada, name="key", **fields)
    assert refusal.value.status == 400
    assert (await harness.call("api_keys_list", ada))["keys"] == []


async def test_only_those_who_run_an_app_make_keys_for_it(harness: ToolHarness) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    await harness.create_app_row(organisation)
    admin = await harness.join(organisation, ada, "admin@example.com", "admin")
    member = await harness.join(organisation, ada, "member@example.com", "member")
    arguments = {"name": "backend", "key_scope": "app", "target_app_id": APP}

    home_caller = await harness.authenticate((await harness.call("api_keys_create", ada, name="home"))["key"])
    for stranger in (eve, member, home_caller):
        with pytest.raises(Forbidden):
            await harness.call("api_keys_create", stranger, **arguments)
    with pytest.raises(AppNotFound):
        await harness.call("api_keys_create", ada, **arguments | {"target_app_id": "app_000000000404"})
    # The app's organisation decides, whichever one the caller works in at the moment.
    result = await harness.call("api_keys_create", admin, **arguments)
    assert await harness.authenticate(result["key"]) == AppKey(APP, result["key_id"], admin.account_id, gateway=True)


@pytest.mark.parametrize(
    ("caller", "refusal"),
    [
        (Anonymous(), Unauthenticated),
        (AppKey(APP, SOMEBODY), Forbidden),
        (EndUser(APP, SOMEBODY), Forbidden),
        (ScopedKey(SOMEBODY, SOMEBODY, SOMEBODY, frozenset({"ai:gateway"})), Forbidden),
        (Account(SOMEBODY, SOMEBODY), Forbidden),
    ],
)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("api_keys_create", {"name": "key"}), ("api_keys_list", {}), ("api_keys_revoke", {"key_id": SOMEBODY})],
)
async def test_keys_are_for_accounts_only(
    harness: ToolHarness, caller: Any, refusal: type[Exception], tool: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(refusal):
        await harness.call(tool, caller, **arguments)


async def test_members_see_and_revoke_their_own_keys_and_admins_everybodys(harness: ToolHarness) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    admin = await harness.join(organisation, ada, "admin@example.com", "admin")
    member = await harness.join(organisation, ada, "member@example.com", "member")
    here = {"organization_id": organisation}
    keys_by_maker = {
        who: await harness.call("api_keys_create", who, name="key", **here) for who in (ada, admin, member)
    }
    everybodys = {key["prefix"] for key in keys_by_maker.values()}

    assert await prefixes(harness, member, **here) == {keys_by_maker[member]["prefix"]}
    assert await prefixes(harness, admin, **here) == everybodys
    for unseen in (keys_by_maker[ada], keys_by_maker[admin]):
        with pytest.raises(KeyNotFound):
            await harness.call("api_keys_revoke", member, key_id=unseen["key_id"])
    with pytest.raises(KeyNotFound):
        await harness.call("api_keys_revoke", eve, key_id=keys_by_maker[member]["key_id"])
    with pytest.raises(NotFound):
        await harness.call("api_keys_list", eve, **here)
    with pytest.raises(NotFound):
        await harness.call("api_keys_create", eve, name="key", **here)

    assert (await harness.call("api_keys_revoke", member, key_id=keys_by_maker[member]["key_id"]))["keys_revoked"] == 1
    assert (await harness.call("api_keys_revoke", admin, key_id=keys_by_maker[ada]["key_id"]))["keys_revoked"] == 1
    assert await prefixes(harness, ada, **here) == {keys_by_maker[admin]["prefix"]}


async def test_a_key_reaches_no_other_organisation_of_its_account(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    elsewhere = await harness.create_organisation(ada)
    there = await harness.call("api_keys_create", ada, name="there", organization_id=elsewhere)
    key = await harness.authenticate((await harness.call("api_keys_create", ada, name="here"))["key"])
    with pytest.raises(NotFound):
        await harness.call("api_keys_create", key, name="climber", organization_id=elsewhere)
    with pytest.raises(KeyNotFound):
        await harness.call("api_keys_revoke", key, key_id=there["key_id"])
    with pytest.raises(NotFound):
        await harness.call("api_keys_list", key, organization_id=elsewhere)


async def test_a_list_can_be_narrowed_to_a_scope(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    await harness.create_app_row(ada.organisation_id)
    make: dict[str, dict[str, Any]] = {
        "account": {},
        "app": {"key_scope": "app", "target_app_id": APP},
        "gateway": {"scopes": ["ai:gateway"]},
        "substrate": {"scopes": ["substrate"]},
    }
    prefix_by_name = {
        name: (await harness.call("api_keys_create", ada, name=name, **fields))["prefix"]
        for name, fields in make.items()
    }
    prefixes_by_scope = {
        scope: await prefixes(harness, ada, scope=scope)
        for scope in ("account", "*", "app", f"app:{APP}", "ai:gateway", "substrate", "none")
    }
    assert prefixes_by_scope["account"] == prefixes_by_scope["*"] == {prefix_by_name["account"]}
    assert prefixes_by_scope["app"] == prefixes_by_scope[f"app:{APP}"] == {prefix_by_name["app"]}
    assert prefixes_by_scope["ai:gateway"] == {prefix_by_name["app"], prefix_by_name["gateway"]}
    assert prefixes_by_scope["substrate"] == {prefix_by_name["substrate"]}
    assert prefixes_by_scope["none"] == set()


async def test_a_revoked_key_is_refused_at_once_here_and_after_one_poll_elsewhere(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    result = await harness.call("api_keys_create", ada, name="agent")
    services = harness.services
    far = Notices(services.database, services.clock, services.ids)
    directory = Directory(services.database, services.clock, far, services.credits)
    sessions = SessionCheck(directory, services.regions, services.clock)
    elsewhere = Credentials(directory, services.signers, sessions, services.clock, far)
    await far.poll()
    header = b"Bearer " + result["key"].encode()
    assert await elsewhere.caller(header) == await harness.authenticate(result["key"])

    await harness.call("api_keys_revoke", ada, key_id=result["key_id"])
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(result["key"])
    await far.poll()
    with pytest.raises(InvalidApiKey):
        await elsewhere.caller(header)

    with pytest.raises(KeyNotFound):
        await harness.call("api_keys_revoke", ada, key_id=result["key_id"])
    async with services.database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(api_keys)) == 1
        events = (
            await connection.execute(
                select(audit_logs.c.event_type, audit_logs.c.category).where(audit_logs.c.resource_type == "api_key")
            )
        ).all()
    event_types = ("api_key.create", "api_key.revoke", "api_key.revoke_failed")
    assert sorted(tuple(event) for event in events) == [(event, "admin") for event in event_types]


async def test_an_organisation_has_at_most_the_live_keys_of_its_plan_however_many_ask_at_once(
    harness: ToolHarness,
) -> None:
    ada = await harness.sign_up("ada@example.com")
    numbers = itertools.count()
    mine: dict[str, Any] = {"organisation_id": ada.organisation_id, "account_id": ada.account_id}
    rows = [keys.key_row(harness.services, f"key {next(numbers)}", "key", ["*"], **mine) for _ in range(MOST - 2)]
    async with harness.services.database.writing() as connection:
        await connection.execute(insert(api_keys), rows)
    attempts = [harness.call("api_keys_create", ada, name="one more") for _ in range(8)]
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(answer, PlanLimitReached) for answer in answers) == 6

    await harness.call("api_keys_revoke", ada, key_id=rows[0]["id"])
    await harness.call("api_keys_create", ada, name="in its place")


async def test_revoking_a_key_revokes_what_it_made_unless_the_caller_says_otherwise(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    result = await harness.call("api_keys_create", ada, name="leaked", organization_id=organisation)
    thief = await harness.authenticate(result["key"])
    child = await harness.call("api_keys_create", thief, name="child")
    grandchild = await harness.call("api_keys_create", await harness.authenticate(child["key"]), name="grandchild")
    other = await harness.call("api_keys_create", ada, name="other", organization_id=organisation)
    invited_result = await harness.call(
        "organisations_invite", thief, organization_id=organisation, email="eve@example.com"
    )

    listed_keys = (await harness.call("api_keys_list", ada, organization_id=organisation))["keys"]
    assert {key["name"]: key["made_by"] for key in listed_keys} == {
        "leaked": None,
        "child": result["key_id"],
        "grandchild": child["key_id"],
        "other": None,
    }

    # Kept once, they are still found by way of the key that made them.
    kept_result = await harness.call("api_keys_revoke", ada, key_id=child["key_id"], keep_made=True)
    assert kept_result == {"revoked": True, "keys_revoked": 1}
    assert await harness.authenticate(grandchild["key"])
    revoked_result = await harness.call("api_keys_revoke", ada, key_id=result["key_id"])
    assert revoked_result == {"revoked": True, "keys_revoked": 2}
    for revoked_key in (result, child, grandchild):
        with pytest.raises(InvalidApiKey):
            await harness.authenticate(revoked_key["key"])
        with pytest.raises(KeyNotFound):
            await harness.call("api_keys_revoke", ada, key_id=revoked_key["key_id"])
    assert await harness.authenticate(other["key"])
    eve = await harness.sign_up("eve@example.com")
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_accept_invitation", eve, token=invited_result["token"])


@pytest.mark.parametrize("leaves", ["removed", "made a member", "their key is revoked"])
async def test_a_function_key_is_void_when_whoever_was_shown_it_may_not_see_it_any_more(
    harness: ToolHarness, leaves: str
) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    app = (await harness.call("apps_init", ada, name="shop", organization_id=organisation))["app_id"]
    grace = await harness.join(organisation, ada, "grace@example.com", "admin")
    here = {"organization_id": organisation, "account_id": grace.account_id}
    key = await harness.call("api_keys_create", grace, name="agent", organization_id=organisation)
    function_key = (await harness.call("kv_rotate_key", await harness.authenticate(key["key"]), app_id=app))[
        "function_key"
    ]
    functions = await harness.authenticate(function_key)
    await harness.call("kv_put", functions, app_id=app, key="a", value=1)
    arguments: dict[str, Any]
    for beyond, arguments in (("config_get", {}), ("agents_list", {}), ("kv_rotate_key", {}), ("ai_models", {})):
        with pytest.raises(Forbidden):
            await harness.call(beyond, functions, app_id=app, **arguments)

    match leaves:
        case "removed":
            await harness.call("organisations_remove_member", ada, **here)
        case "made a member":
            await harness.call("organisations_set_role", ada, **here, role="member")
        case _:
            await harness.call("api_keys_revoke", ada, key_id=key["key_id"])
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(function_key)


@pytest.mark.parametrize("leaves", ["removed", "made a member"])
async def test_invitations_of_those_who_may_not_invite_any_more_are_withdrawn(
    harness: ToolHarness, leaves: str
) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    grace = await harness.join(organisation, ada, "grace@example.com", "admin")
    invite = {"organization_id": organisation, "email": "eve@example.com", "role": "admin"}
    token = (await harness.call("organisations_invite", grace, **invite))["token"]
    here = {"organization_id": organisation, "account_id": grace.account_id}
    if leaves == "removed":
        await harness.call("organisations_remove_member", ada, **here)
    else:
        await harness.call("organisations_set_role", ada, **here, role="member")
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_accept_invitation", eve, token=token)


async def test_a_key_ends_when_it_was_to_end_and_so_do_those_that_it_made(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    with pytest.raises(BadRequest, match="in the past"):
        await harness.call("api_keys_create", ada, name="late", ends_at=harness.clock.now().isoformat())
    end = harness.clock.now() + timedelta(days=1)
    result = await harness.call("api_keys_create", ada, name="for a day", ends_at=end.isoformat())
    assert result["ends_at"] == end
    later = (end + timedelta(days=9)).isoformat()
    caller = await harness.authenticate(result["key"])
    by_key = await harness.call("api_keys_create", caller, name="for longer", ends_at=later)
    assert by_key["ends_at"] == end
    harness.clock.advance(86_400)
    for key in (result, by_key):
        with pytest.raises(InvalidApiKey):
            await harness.authenticate(key["key"])


async def test_a_key_is_made_with_a_budget_or_not_at_all(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    daily_budget = {"period": "day", "most_usd": "2.50"}
    result = await harness.call("api_keys_create", ada, name="spender", budget=daily_budget)
    (budget,) = (await harness.call("billing_budgets", ada))["budgets"]
    assert (budget["subject_id"], budget["period"], budget["limit_usd"]) == (result["key_id"], "day", 2.5)
    limits = (await harness.authenticate(result["key"])).limits
    assert limits is not None
    assert limits.has_budget
    # Only admins and owners set budgets; whoever may not gets no key without one.
    organisation = await harness.create_organisation(ada)
    member = await harness.join(organisation, ada, "member@example.com", "member")
    with pytest.raises(Forbidden):
        await harness.call("api_keys_create", member, name="more", organization_id=organisation, budget=daily_budget)
    assert await prefixes(harness, member, organization_id=organisation) == set()
