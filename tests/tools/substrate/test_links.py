"""Apps are linked to substrates, and their users become entities there; what a day's snapshot leaves is previewed."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import update

from baobab.tools.core.auth.tables import apps
from baobab.tools.core.errors import BaobabError
from tests.jobs import run_due_jobs, run_job
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

USER = {"id": "11111111-1111-4111-8111-111111111111", "email": "ada@example.com", "display_name": "Ada"}
Tell = Callable[..., Awaitable[None]]


@pytest.fixture
async def app_id(substrate: Substrate) -> str:
    result = await substrate.harness.call("apps_init", substrate.owner, name="shop")
    return str(result["app_id"])


@pytest.fixture
def tell(substrate: Substrate, app_id: str) -> Tell:
    """Emits an event of a user of the app, and lets the jobs run that it asks for."""

    async def emit(event: str, **data: Any) -> None:
        services = substrate.harness.services
        unit = services.database.build_unit(write=True)
        await services.jobs.emit(unit, event, app_id=app_id, data={"user": USER, **data}, tenant=None)
        await unit.commit()
        await run_due_jobs(substrate.harness)

    return emit


async def list_people(substrate: Substrate) -> list[Any]:
    return list((await substrate.call("entities", type="person"))["entities"])


async def test_users_of_a_linked_app_become_entities_that_are_marked(
    substrate: Substrate, app_id: str, tell: Tell
) -> None:
    call, owner = substrate.harness.call, substrate.owner
    with pytest.raises(BaobabError) as refusal:
        await call("apps_set_substrate_autopropagate", owner, app_id=app_id, users=True)
    assert refusal.value.code == "not_linked"
    result = await call("apps_link_substrate", owner, app_id=app_id)
    assert result == {"app_id": app_id, "organization_id": owner.organisation_id, "users": False}
    await tell("user.authenticated", isNewUser=True)
    assert await list_people(substrate) == []
    await call("apps_set_substrate_autopropagate", owner, app_id=app_id, users=True)
    for _ in range(2):
        await tell("user.authenticated", isNewUser=True)
    (person,) = await list_people(substrate)
    assert (person["display_name"], person["primary_email"], person["from_strangers"]) == ("Ada", None, True)
    assert (person["linked_app_id"], person["linked_app_user_id"]) == (app_id, USER["id"])
    await tell("user.email_verified")
    assert (await list_people(substrate))[0]["primary_email"] == USER["email"]
    await tell("user.deleted")
    assert "deleted_at" in (await list_people(substrate))[0]["attrs"]
    actions = (await substrate.call("actions", source_app_id=app_id))["actions"]
    assert {action["proposed_by_kind"] for action in actions} == {"agent"}
    await call("apps_unlink_substrate", owner, app_id=app_id)
    before = len(actions)
    await tell("user.authenticated", isNewUser=True)
    assert len((await substrate.call("actions", source_app_id=app_id))["actions"]) == before


async def test_whoever_signs_up_under_an_address_that_is_known_changes_no_entity(
    substrate: Substrate, app_id: str, tell: Tell
) -> None:
    arguments = {"type": "person", "display_name": "The chairwoman", "primary_email": USER["email"]}
    await substrate.do("upsert_entity", **arguments)
    await substrate.harness.call("apps_link_substrate", substrate.owner, app_id=app_id)
    await substrate.harness.call("apps_set_substrate_autopropagate", substrate.owner, app_id=app_id, users=True)
    await tell("user.authenticated", isNewUser=True)
    await tell("user.email_verified")
    people = {person["display_name"]: person["primary_email"] for person in await list_people(substrate)}
    assert people == {"The chairwoman": USER["email"], "Ada": None}


async def test_an_app_is_linked_only_to_an_organisation_of_ones_own(substrate: Substrate, app_id: str) -> None:
    stranger = await substrate.harness.sign_up("eve@example.com")
    for caller, organisation in ((substrate.owner, stranger.organisation_id), (stranger, None)):
        arguments: Any = {} if organisation is None else {"organization_id": organisation}
        with pytest.raises(BaobabError) as refusal:
            await substrate.harness.call("apps_link_substrate", caller, app_id=app_id, **arguments)
        assert refusal.value.status in (403, 404)


async def test_either_side_ends_a_link(substrate: Substrate, app_id: str) -> None:
    call, services = substrate.harness.call, substrate.harness.services
    eve = await substrate.harness.sign_up("eve@example.com")
    with pytest.raises(BaobabError) as refusal:
        await call("apps_unlink_substrate", eve, app_id=app_id)
    assert refusal.value.status == 403
    async with services.database.writing_unit(lock=app_id) as unit:
        # As if she had been a member of both organisations when the link was made.
        statement = update(apps).where(apps.c.id == app_id)
        await unit.execute(statement.values(substrate_organization_id=eve.organisation_id))
    assert (await call("substrate_apps", eve))["apps"] == [{"app_id": app_id, "name": "shop", "users": False}]
    assert (await call("substrate_apps", substrate.owner))["apps"] == []
    assert (await call("apps_unlink_substrate", eve, app_id=app_id))["organization_id"] is None
    with pytest.raises(BaobabError) as refusal:
        await call("apps_unlink_substrate", eve, app_id=app_id)
    assert refusal.value.status == 403
    assert (await call("substrate_apps", eve))["apps"] == []


async def test_going_back_to_a_snapshot_is_previewed_and_proposed(substrate: Substrate) -> None:
    clock = substrate.harness.clock
    entity_id = (await substrate.do("upsert_entity", type="person", display_name="Ada"))["entity_id"]
    clock.advance(1)
    await run_job(substrate.harness, "substrate_take_snapshots")
    day = clock.now().date().isoformat()
    clock.advance(60)
    await substrate.do("update_entity", id=entity_id, display_name="Eve")
    await substrate.do("record_learning", title="Ask", description="x")
    await substrate.do("place_call", to="Ada", purpose="Ask")
    preview = await substrate.call("restore_preview", day=day)
    assert preview["would_undo"] == {"update_entity": 1, "record_learning": 1}
    assert preview["would_stay"] == {"place_call": 1}
    (payload,) = preview["payloads"]
    assert (await substrate.do("bulk_revert_actions", **payload))["failed"] == []
    assert (await substrate.call("entity", entity_id=entity_id))["display_name"] == "Ada"
    assert (await substrate.call("restore_preview", day=day))["payloads"] == []
    database = substrate.harness.services.database
    assert await find_faults(database, substrate.owner.organisation_id) == []
    with pytest.raises(BaobabError):
        await substrate.call("restore_preview", day="1999-01-01")


async def test_a_long_way_back_is_previewed_in_parts(substrate: Substrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.tools.substrate.tools.changes._MOST_UNDONE", 3)
    await substrate.do("record_learning", title="Before", description="x")
    substrate.harness.clock.advance(1)
    await run_job(substrate.harness, "substrate_take_snapshots")
    day = substrate.harness.clock.now().date().isoformat()
    substrate.harness.clock.advance(1)
    for number in range(3):
        await substrate.do("record_learning", title=str(number), description="x")
        await substrate.do("record_decision", title=str(number), kind="vision")
    await substrate.do("place_call", to="Ada", purpose="Ask")
    previews = []
    while (preview := await substrate.call("restore_preview", day=day))["payloads"]:
        previews.append((preview["would_undo"], preview["has_more"]))
        for payload in preview["payloads"]:
            await substrate.do("bulk_revert_actions", **payload)
    parts = [{"record_decision": 2, "record_learning": 1}, {"record_learning": 2, "record_decision": 1}]
    assert previews == [(parts[0], True), (parts[1], False)]
    assert preview["would_stay"] == {"place_call": 1}
    assert [row["title"] for row in (await substrate.call("memory_list", kinds="learnings"))["results"]] == ["Before"]


async def test_an_action_shows_what_it_changed(substrate: Substrate) -> None:
    entity = (await substrate.do("upsert_entity", type="person", display_name="A"))["entity_id"]
    second = await substrate.propose("update_entity", id=entity, display_name="B")
    await substrate.do("update_entity", id=entity, display_name="C")
    (change,) = (await substrate.call("action_changes", action_id=second["action_id"]))["changes"]
    names = (change["before"]["display_name"], change["after"]["display_name"])
    assert (change["table"], change["op"], names) == ("entities", "update", ("A", "B"))
