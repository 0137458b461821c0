"""Whom a run acts as: one of the app's users has that user's rights, whoever had it started and with which key."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import Caller
from tests.tools.agents.conftest import Agency, build_graph

ADA = "aaaaaaaa-0000-4000-8000-000000000001"
READ: dict[str, Any] = build_graph(
    {
        "read": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "kv_get"},
            "args_template": {"key": "secret"},
            "output_key": "found",
        },
        "done": {"type": "end", "output_template": "{{ state.found.value }}"},
    },
    ("read", "done"),
    tools={"builtin": ["kv_get", "kv_put"]},
)
WRITE: dict[str, Any] = build_graph(
    {
        "write": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "kv_put"},
            "args_template": {"key": "{{ input.key }}", "value": "written"},
        },
        "done": {"type": "end"},
    },
    ("write", "done"),
    tools={"builtin": ["kv_put"]},
)


@pytest.fixture(params=["session", "account key", "app key"])
async def credential(request: pytest.FixtureRequest, agency: Agency) -> Caller:
    if request.param == "session":
        return agency.owner
    scope_fields = {"key_scope": "app", "target_app_id": agency.app_id} if request.param == "app key" else {}
    result = await agency.harness.call("api_keys_create", agency.owner, name="k", **scope_fields)
    return await agency.harness.authenticate(result["key"])


async def test_a_run_as_a_user_reads_what_that_user_may_whoever_starts_it(agency: Agency, credential: Caller) -> None:
    await agency.put_key("secret", "SECRET")
    await agency.create_agent("reader", READ, visibility="authenticated")
    run = await agency.run_agent("reader", credential, caller_user_id=ADA)
    assert (run["caller_kind"], run["status"]) == ("end_user", "failed"), run
    assert "SECRET" not in repr(run)
    # The rule opens it, and nothing else does.
    await agency.harness.call(
        "kv_expose", agency.owner, app_id=agency.app_id, pattern="secret", read="authed", write="deny"
    )
    assert (await agency.run_agent("reader", credential, caller_user_id=ADA))["output"] == "SECRET"


async def test_a_fork_of_a_user_s_run_reads_what_that_user_may_whoever_forks_it(
    agency: Agency, credential: Caller
) -> None:
    await agency.put_key("secret", "SECRET")
    await agency.create_agent("reader", READ, visibility="authenticated")
    agent = await agency.run_agent("reader", agency.end_user(ADA))
    result = await agency.harness.call(
        "agents_runs_fork", credential, app_id=agency.app_id, name="reader", id=agent["id"], step=0
    )
    run = await agency.wait_for_run("reader", result["run_id"])
    assert (run["caller_kind"], run["caller_user_id"], run["status"]) == ("end_user", ADA, "failed"), run
    assert "SECRET" not in repr(await agency.list_events("reader", run["id"]))


async def test_a_call_that_a_user_s_run_proposed_is_made_with_that_user_s_rights(
    agency: Agency, credential: Caller
) -> None:
    await agency.create_agent("writer", WRITE, visibility="authenticated")
    rule = {"pattern": "user:{user.id}:*", "read": "owner", "write": "owner"}
    await agency.harness.call("kv_expose", agency.owner, app_id=agency.app_id, **rule)
    own, foreign = f"user:{ADA}:note", "settings"
    run = await agency.run_agent("writer", credential, caller_user_id=ADA, input={"key": own})
    assert (await agency.decide("writer", run["id"]))["status"] == "completed"
    assert await agency.get_key(own) == '"written"'

    # While it waits, the rule that let the user write goes.
    run = await agency.run_agent("writer", credential, caller_user_id=ADA, input={"key": own + "2"})
    await agency.harness.call("kv_unexpose", agency.owner, app_id=agency.app_id, pattern=rule["pattern"])
    assert (await agency.decide("writer", run["id"], even_if_failing=True))["status"] == "failed"
    assert await agency.get_key(own + "2") is None
    run = await agency.run_agent("writer", credential, caller_user_id=ADA, input={"key": foreign})
    if run["status"] == "paused":
        run = await agency.decide("writer", run["id"], even_if_failing=True)
    assert run["status"] == "failed"
    assert await agency.get_key(foreign) is None


async def test_a_run_as_a_user_ends_with_the_membership_of_the_account_that_had_it_started(agency: Agency) -> None:
    team = await agency.harness.create_organisation(agency.owner)
    app_id = await agency.harness.create_app_row(team, "app_000000000002")
    there = Agency(agency.harness, agency.owner, app_id)
    grace = await agency.harness.join(team, agency.owner, "grace@example.com", "member")
    rule = {"pattern": "user:{user.id}:*", "read": "owner", "write": "owner"}
    await there.harness.call("kv_expose", there.owner, app_id=app_id, **rule)
    await there.create_agent("writer", WRITE, visibility="authenticated", approvers="admin")
    own = f"user:{ADA}:note"
    run = await there.run_agent("writer", grace, caller_user_id=ADA, input={"key": own})
    await there.harness.call(
        "organisations_remove_member", there.owner, organization_id=team, account_id=grace.account_id
    )
    run = await there.decide("writer", run["id"], even_if_failing=True)
    assert (run["status"], run["error"]["type"]) == ("failed", "not_allowed"), run
    assert await there.get_key(own) is None


async def test_what_an_agent_was_refused_is_kept_with_the_refusals_of_its_app(agency: Agency) -> None:
    await agency.create_agent("reader", READ)
    assert (await agency.run_agent("reader"))["status"] == "failed"
    (entry,) = (await agency.harness.call("kv_audit_recent", agency.owner, app_id=agency.app_id))["entries"]
    fields = (entry["method"], entry["path"], entry["status_code"], entry["error_code"], entry["key"])
    assert fields == ("AGENT", "kv_get", 404, "not_found", "secret")
