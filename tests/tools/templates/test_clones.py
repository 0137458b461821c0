"""A clone has what docs/templates.md says, acts on nothing, and comes to be once or not at all."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from sqlalchemy import select, update

from baobab.storage.sql.tables import metadata
from baobab.tools.templates.tables import clone_jobs
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import call_tool
from tests.people import create_key, create_person
from tests.tools.templates.conftest import EU, ID, NOTES, Gallery

GRAPH: dict[str, Any] = {
    "spec_version": 1,
    "entry": "done",
    "nodes": {"done": {"type": "end", "output_template": {"hi": "there"}}},
    "edges": [],
}


async def test_a_clone_has_the_schema_the_policies_the_seed_rows_and_the_repository(gallery: Gallery) -> None:
    app = await gallery.offer("desk")
    tickets = {
        "columns": {
            "id": {"type": "serial", "primaryKey": True},
            "kind_id": {"type": "integer", "references": "kinds.id"},
        },
        "indexes": {"tickets_kind": {"columns": ["kind_id"]}},
    }
    await gallery.apply(
        app, kinds={**NOTES, "_seed": True}, tickets=tickets, words={"columns": {"word": "text"}, "_seed": True}
    )
    for start in (0, 600):
        rows = [{"id": number, "text": f"kind {number}"} for number in range(start, start + 600)]
        await gallery.do("POST", f"/v1/{app}/kinds", rows)
    await gallery.do("POST", f"/v1/{app}/words", [{"word": "a"}, {"word": "a"}])
    await gallery.do("POST", f"/v1/{app}/tickets", {"kind_id": 1})
    policy = {"table_name": "tickets", "policy_name": "one", "command": "SELECT", "using_expression": "kind_id = 1"}
    await gallery.do("POST", f"/v1/{app}/rls/policies", policy)
    copy = await gallery.clone(app, name="my-desk")
    ada = gallery.ada.headers
    source, of_copy = [
        (await gallery.do("GET", f"/v1/{each}/schema", headers=headers))["schema"]
        for each, headers in ((app, None), (copy, ada))
    ]
    assert of_copy == source
    assert await gallery.do("GET", f"/v1/{copy}/kinds?select=count()", headers=ada) == [{"count": 1200}]
    assert await gallery.do("GET", f"/v1/{copy}/words", headers=ada) == [{"word": "a"}, {"word": "a"}]
    assert await gallery.do("GET", f"/v1/{copy}/tickets", headers=ada) == []
    policies = [
        (await gallery.do("GET", f"/v1/{each}/rls", headers=headers))["policies"]
        for each, headers in ((app, None), (copy, ada))
    ]
    assert [{**each, "schemaname": copy} for each in policies[0]] == policies[1] != []
    latest = [
        await gallery.do("GET", f"/v1/{each}/repo/snapshots/latest", headers=headers)
        for each, headers in ((app, None), (copy, ada))
    ]
    assert latest[0] == latest[1]
    [file] = latest[1]["manifest"]["files"]
    blob = await gallery.ask("GET", f"/v1/{copy}/repo/blobs/{file['sha256']}", headers=ada)
    body = await gallery.baobab.client.get(blob.headers.get("location") or blob.json()["downloadUrl"])
    assert body.content == b"# Hi"
    config = await gallery.do("GET", f"/v1/{copy}/config", headers=ada)
    assert (config["template_source_app_id"], config["visibility"], config["name"]) == (app, "private", "my-desk")
    assert config["repo_latest_snapshot"] == latest[0]["snapshot_id"]
    assert (await gallery.do("GET", f"/v1/{app}/config"))["fork_count"] == 1


async def test_nothing_of_a_clone_is_there_before_it_is_complete(gallery: Gallery) -> None:
    app = await gallery.offer(region=EU)
    with gallery.close_region(EU):
        job = await gallery.start(app, region="local")
        await run_due_jobs(gallery.baobab.application)
        state = await gallery.read_job(job)
        assert (state["status"], state["dest_app_id"], state["completed_at"]) == ("processing", None, None)
        async with gallery.baobab.application.services.database.reading() as connection:
            hidden_id = await connection.scalar(select(clone_jobs.c.dest_app_id))
        assert (await gallery.ask("GET", f"/v1/{hidden_id}/config", headers=gallery.ada.headers)).status_code == 404
        assert (await gallery.do("GET", "/apps", headers=gallery.ada.headers))["apps"] == []
    assert (await gallery.finish(job))["dest_app_id"] == hidden_id


async def test_a_clone_acts_on_nothing_until_its_owner_switches_it_on(gallery: Gallery) -> None:
    app = await gallery.offer()
    await gallery.apply(app, notes=NOTES)
    agents = f"/v1/{app}/agents"
    await gallery.do(
        "POST", agents, {"name": "open", "graph_spec": GRAPH, "visibility": "public", "safety_acknowledged": True}
    )
    await gallery.do("POST", agents, {"name": "closed", "graph_spec": GRAPH})
    await gallery.do(
        "PUT", f"/v1/{app}/triggers/hook", {"event": "row.inserted", "table": "notes", "webhook": "https://h.example/x"}
    )
    await gallery.do(
        "PUT", f"/v1/{app}/triggers/daily", {"event": "schedule", "schedule": "0 7 * * *", "agent": "closed"}
    )
    await gallery.do("PATCH", f"/v1/{app}/config/cors", {"allowed_origins": ["https://shop.example"]})
    await gallery.do("PATCH", f"/v1/{app}/config/user-tools", {"tools": ["kv_get"]})
    provider = {
        "provider": "mine", "client_id": "c1", "client_secret": "topsecret", "redirect_uris": [], "scopes": ["email"],
        "authorization_url": "https://idp.example/a", "token_url": "https://idp.example/t", "userinfo_url": "https://idp.example/u",
    }  # fmt: skip
    await gallery.do("POST", f"/v1/{app}/auth/oauth-config", provider)
    copy, ada = await gallery.clone(app), gallery.ada.headers
    states = {
        each["name"]: (each["status"], each["safety_acknowledged"])
        for each in (await gallery.do("GET", f"/v1/{copy}/agents", headers=ada))["agents"]
    }
    assert states == {"open": ("disabled", False), "closed": ("active", False)}
    for trigger in (await gallery.do("GET", f"/v1/{copy}/triggers", headers=ada))["triggers"]:
        assert (trigger["status"], trigger["next_at"]) == ("paused", None)
        assert "template" in trigger["reason"]
    config = await gallery.do("GET", f"/v1/{copy}/config", headers=ada)
    assert (config["allowed_origins"], config["user_tools"], config["auth_hook_function"]) == ([], [], None)
    [of_copy] = (await gallery.do("GET", f"/v1/{copy}/auth/oauth-config", headers=ada))["configs"]
    assert (of_copy["enabled"], of_copy["client_id"], of_copy["token_url"]) == (False, "", "https://idp.example/t")
    review = await gallery.do("GET", f"/v1/{copy}/clone-review", headers=ada)
    assert (review["source_app_id"], review["source_name"]) == (app, "desk")
    off = {(each["kind"], each["name"]): each["tool"] for each in review["abilities"] if not each["is_on"]}
    assert off == {
        ("custom_oauth_provider", "mine"): "users_providers_update",
        ("origin", "https://shop.example"): "config_cors",
        ("public_agent", "open"): "agents_update",
        ("schedule", "daily"): "triggers_resume",
        ("trigger", "hook"): "triggers_resume",
        ("user_tool", "kv_get"): "config_user_tools",
    }
    assert set(off.values()) <= gallery.baobab.application.registry.tools.keys()
    assert {action["tool"] for action in review["_meta"]["next_actions"]} == set(off.values())
    assert review["hosts"] == ["h.example", "idp.example"]
    await gallery.do("PATCH", f"/v1/{copy}/config/cors", {"allowed_origins": ["https://shop.example"]}, ada)
    await gallery.do("POST", f"/v1/{copy}/triggers/daily/resume", {}, ada)
    review = await gallery.do("GET", f"/v1/{copy}/clone-review", headers=ada)
    on = {(each["kind"], each["name"]) for each in review["abilities"] if each["is_on"]}
    assert on == {("origin", "https://shop.example"), ("schedule", "daily")}


async def test_a_graph_that_names_a_tool_server_names_the_one_of_the_copy_which_is_asked_nothing(
    gallery: Gallery,
) -> None:
    app = await gallery.offer()
    services = gallery.baobab.application.services
    now, server = services.clock.now(), services.ids.uuid()
    tool_servers, agents = metadata.tables["agent_tool_servers"], metadata.tables["agents"]
    row: dict[str, Any] = {
        "app_id": app,
        "id": server,
        "name": "crm",
        "url": "https://crm.example/mcp",
        "transport": "streamable_http",
    }
    row |= {"auth": {"type": "bearer"}, "credential": "sealed", "tool_acl": {}, "accepted": {}, "status": "healthy"}
    graph = {**GRAPH, "tools": {"mcp_servers": [{"server_id": server}]}}
    await gallery.do("POST", f"/v1/{app}/agents", {"name": "asker", "graph_spec": GRAPH})
    async with services.database.writing() as connection:
        await connection.execute(tool_servers.insert(), {**row, "created_at": now, "updated_at": now})
        await connection.execute(update(agents).values(graph_spec=graph))
    copy = await gallery.clone(app)
    async with services.database.reading() as connection:
        of_copy = (await connection.execute(select(tool_servers).where(tool_servers.c.app_id == copy))).one()
        spec = await connection.scalar(select(agents.c.graph_spec).where(agents.c.app_id == copy))
    assert (of_copy.url, of_copy.auth, of_copy.credential, of_copy.accepted) == (
        "https://crm.example/mcp",
        None,
        None,
        {},
    )
    assert of_copy.id != server
    assert spec["tools"]["mcp_servers"] == [{"server_id": of_copy.id}]


async def test_collections_are_copied_with_the_documents_that_are_marked(gallery: Gallery) -> None:
    app, ada = await gallery.offer(), gallery.ada.headers
    await gallery.do("POST", f"/v1/{app}/rag/collections", {"name": "facts", "accessMode": "shared"})
    for text, metadata_of in (("Baobabs store water.", {"_seed": True}), ("Ada's own note about oaks.", {})):
        await gallery.do("POST", f"/v1/{app}/rag/collections/facts/ingest", {"text": text, "metadata": metadata_of})
    await run_due_jobs(gallery.baobab.application)
    copy = await gallery.clone(app)
    documents = await gallery.do("GET", f"/v1/{copy}/rag/collections/facts/documents", headers=ada)
    [document] = documents if isinstance(documents, list) else documents["documents"]
    assert document["status"] == "ready"
    for question in ("Where do baobabs keep water?", "baobabs"):
        found_texts = await gallery.do("POST", f"/v1/{copy}/rag/collections/facts/query", {"query": question}, ada)
        chunks = found_texts["chunks"] if "chunks" in found_texts else found_texts["results"]
        assert [chunk["text"] for chunk in chunks] == ["Baobabs store water."]


async def test_a_clone_may_live_in_another_region(gallery: Gallery) -> None:
    app = await gallery.offer()
    await gallery.apply(app, notes={**NOTES, "_seed": True})
    await gallery.do("POST", f"/v1/{app}/notes", {"id": 1, "text": "kept"})
    copy, ada = await gallery.clone(app, region=EU), gallery.ada.headers
    assert (await gallery.do("GET", f"/v1/{copy}/config", headers=ada))["region"] == EU
    assert await gallery.do("GET", f"/v1/{copy}/notes", headers=ada) == [{"id": 1, "text": "kept"}]
    refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {"region": "nowhere"}, ada)
    assert (refusal.status_code, refusal.json()["error"]["details"]["regions"]) == (400, ["local", EU])


async def test_the_key_of_a_serial_column_goes_on_after_the_seed_rows(gallery: Gallery) -> None:
    app, ada = await gallery.offer(), gallery.ada.headers
    await gallery.apply(
        app, notes={"columns": {"id": {"type": "serial", "primaryKey": True}, "text": "text"}, "_seed": True}
    )
    await gallery.do("POST", f"/v1/{app}/notes", [{"text": "one"}, {"text": "two"}])
    copy = await gallery.clone(app)
    assert (await gallery.do("POST", f"/v1/{copy}/notes", {"text": "three"}, ada))["id"] == 3


async def test_without_a_snapshot_there_is_no_clone(gallery: Gallery) -> None:
    app = await gallery.baobab.create_app()
    await gallery.publish(app)
    refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {}, gallery.ada.headers)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_a_name_that_is_given_must_be_free_and_one_that_is_not_given_is_made_free(gallery: Gallery) -> None:
    app, ada = await gallery.offer("desk", region=EU), gallery.ada.headers
    await gallery.do("POST", "/init", {"name": "desk"}, ada)
    refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {"name": "desk"}, ada)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "RESOURCE_ALREADY_EXISTS")
    with gallery.close_region(EU):
        job = await gallery.start(app, name="bench")
        await gallery.do("POST", "/init", {"name": "bench"}, ada)
    state = await gallery.finish(job)
    assert (state["status"], state["name"]) == ("completed", "bench-2")
    assert "bench-2" in state["warnings"][0]


async def test_three_clones_are_made_at_once_and_five_in_an_hour(gallery: Gallery) -> None:
    app = await gallery.offer(region=EU)
    ada = await create_key(gallery.baobab, gallery.ada.headers)
    with gallery.close_region(EU):
        jobs = [await gallery.start(app, ada) for _ in range(3)]
        refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {}, ada)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "CLONE_LIMIT_INFLIGHT")
    for job in jobs:
        assert (await gallery.finish(job, ada))["status"] == "completed"
    for _ in range(2):
        await gallery.clone(app, ada)
    refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {}, ada)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (429, "QUOTA_RATE_LIMIT")
    assert int(refusal.headers["retry-after"]) > 0
    await gallery.clone(app, (await create_person(gallery.baobab, "bob")).headers)
    gallery.clock.advance(3601)
    await gallery.clone(app, ada)
    names = [each["name"] for each in (await gallery.do("GET", "/apps", headers=ada))["apps"]]
    assert sorted(names) == ["desk", *(f"desk-{number}" for number in range(2, 7))]


async def test_the_plan_has_room_for_a_clone_or_it_is_refused(gallery: Gallery) -> None:
    app, ada = await gallery.offer(region=EU), gallery.ada.headers
    organisations, services = metadata.tables["organisations"], gallery.baobab.application.services
    first_app = await gallery.do("POST", "/init", {"name": "first"}, ada)
    of_ada = organisations.c.id == first_app["organization_id"]
    with gallery.close_region(EU):
        job = await gallery.start(app)
        async with services.database.writing() as connection:
            await connection.execute(update(organisations).where(of_ada).values(plan="playground"))
        refusal = await gallery.ask("POST", f"/v1/templates/{app}/clone", {}, ada)
        assert (refusal.status_code, refusal.json()["error"]) == (403, "project_limit_reached")
    state = await gallery.finish(job)
    assert (state["status"], state["dest_app_id"]) == ("failed", None)
    assert "room for 1 apps" in state["error_message"]


async def test_a_clone_of_what_is_no_longer_offered_fails_whole_and_can_be_tried_again(gallery: Gallery) -> None:
    app, ada = await gallery.offer(region=EU), gallery.ada.headers
    await gallery.apply(app, notes={**NOTES, "_seed": True})
    retry = "/v1/clone-jobs/{}/retry"
    with gallery.close_region(EU):
        job = await gallery.start(app)
        refusal = await gallery.ask("POST", retry.format(job), {}, ada)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_SCHEMA")
        await gallery.publish(app, "private")
    state = await gallery.finish(job)
    assert (state["status"], state["dest_app_id"]) == ("failed", None)
    assert state["error_message"] == "The template is no longer offered."
    assert state["_meta"]["next_actions"][0]["tool"] == "clone_jobs_retry"
    await gallery.publish(app)
    for headers in (gallery.baobab.owner, (await create_person(gallery.baobab, "bob")).headers):
        for method, path in (("GET", f"/v1/clone-jobs/{job}"), ("POST", retry.format(job))):
            assert (await gallery.ask(method, path, headers=headers)).status_code == 404
    again = await gallery.ask("POST", retry.format(job), {}, ada)
    assert (again.status_code, again.json()["job_id"], again.json()["status"]) == (202, job, "pending")
    state = await gallery.finish(job)
    assert (state["status"], state["retry_count"], state["error_message"]) == ("completed", 1, None)


async def test_seed_rows_that_refer_to_rows_which_are_not_copied_fail_the_clone_with_a_reason(gallery: Gallery) -> None:
    app = await gallery.offer()
    child = {"columns": {"id": ID, "note_id": {"type": "integer", "references": "notes.id"}}, "_seed": True}
    await gallery.apply(app, notes=NOTES, child=child)
    await gallery.do("POST", f"/v1/{app}/notes", {"id": 1})
    await gallery.do("POST", f"/v1/{app}/child", {"id": 1, "note_id": 1})
    state = await gallery.finish(await gallery.start(app))
    assert state["status"] == "failed"
    assert "`notes`, which is not marked `_seed`" in state["error_message"]
    assert (await gallery.do("GET", "/apps", headers=gallery.ada.headers))["apps"] == []


async def test_the_owner_of_a_template_is_told_of_each_clone(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    app = await gallery.offer()
    secret = "0123456789abcdef"
    path, body = f"/v1/{app}/config/clone-webhook", {"webhook_url": "https://told.example/x", "webhook_secret": secret}
    await gallery.do("PATCH", path, body)
    requests: list[Any] = []

    class Answer:
        status = 500

    async def answer(method: str, url: str, **options: Any) -> Any:
        requests.append((method, url, options))
        return Answer()

    monkeypatch.setattr(
        type(gallery.baobab.application.services.http_client), "request", lambda self, *a, **o: answer(*a, **o)
    )
    copy = await gallery.clone(app)
    for _ in range(6):
        gallery.clock.advance(300)
        await run_due_jobs(gallery.baobab.application)
    told_requests = [each for each in requests if each[1] == "https://told.example/x"]
    assert len(told_requests) == 3
    headers, sent_body = told_requests[0][2]["headers"], told_requests[0][2]["body"]
    event = json.loads(sent_body)
    assert (event["event"], event["source_app_id"], event["dest_app_id"]) == ("clone_completed", app, copy)
    assert event.keys() == {"event", "job_id", "source_app_id", "dest_app_id", "dest_region", "completed_at"}
    signature = hmac.new(secret.encode(), sent_body, hashlib.sha256).hexdigest()
    assert (headers["x-platform-event"], headers["x-platform-signature"]) == ("clone_completed", f"sha256={signature}")
    clearing = await gallery.do("PATCH", path, {"clear": True})
    assert clearing["webhook_url"] is None
    await gallery.clone(app, name="again")
    assert len([each for each in requests if each[1] == "https://told.example/x"]) == 3


async def test_a_template_is_found_looked_at_and_cloned_over_mcp_alone(gallery: Gallery) -> None:
    app = await gallery.offer("desk")
    found_texts = await call_tool(gallery.baobab, "templates_list", {"q": "de"})
    assert app in json.dumps(found_texts)
    preflight = (await call_tool(gallery.baobab, "templates_preflight", {"template_id": app}))["structuredContent"]
    assert preflight["_meta"]["next_actions"][0]["tool"] == "templates_clone"
    start_answer = (await call_tool(gallery.baobab, "templates_clone", {"template_id": app, "name": "mine"}))[
        "structuredContent"
    ]
    state = await gallery.finish(start_answer["job_id"], gallery.baobab.owner)
    assert state["_meta"]["next_actions"][-1]["tool"] == "clones_review"
    review = await call_tool(gallery.baobab, "clones_review", {"app_id": state["dest_app_id"]})
    assert review["structuredContent"]["source_name"] == "desk"


async def test_what_the_template_can_do_with_what_is_never_copied_is_said_and_can_be_set_anew(gallery: Gallery) -> None:
    app, ada = await gallery.offer(), gallery.ada.headers
    await gallery.apply(app, notes=NOTES)
    for method, path, body in (
        ("POST", f"/v1/{app}/integrations/configure", {"toolkit": "gmail"}),
        ("PATCH", f"/v1/{app}/env", {"envVars": {"SHARED": "the-template's-own"}}),
        ("PUT", f"/v1/{app}/frontend/env", {"API_URL": "https://api.example"}),
        ("PUT", f"/v1/{app}/kv/_own_text", {"prefix": "settings:", "own": True}),
        ("PUT", f"/storage/{app}/own-text", {"prefix": "handbook/", "own": True}),
        ("PUT", f"/v1/{app}/schema/notes/own-text", {"own": True}),
        ("PUT", f"/v1/{app}/ai/config", {"byokKey": "sk-" + "x" * 40, "byokProvider": "openai"}),
        ("PUT", f"/v1/{app}/ai/meetings/webhook", {"forward_url": "https://hooks.example/in"}),
    ):
        await gallery.do(method, path, body)
    missing_names = {
        ("integration", "gmail"),
        ("app_variable", "SHARED"),
        ("build_variables", "site"),
        ("own_text", "keys settings:"),
        ("own_text", "files handbook/"),
        ("own_text", "table notes"),
        ("model_key", "openai"),
        ("meeting_webhook", "meetings"),
    }
    preflight = await gallery.do("GET", f"/v1/templates/{app}/clone-preflight", headers=ada)
    assert missing_names <= {(each["kind"], each["name"]) for each in preflight["abilities"]}
    assert preflight["app_env"]["keys"] == ["SHARED"]
    state = await gallery.finish(await gallery.start(app))
    copy = state["dest_app_id"]
    assert len([warning for warning in state["warnings"] if warning.startswith("Not copied: ")]) == len(missing_names)

    async def list_off() -> dict[tuple[str, str], str]:
        review = await gallery.do("GET", f"/v1/{copy}/clone-review", headers=ada)
        return {(each["kind"], each["name"]): each["tool"] for each in review["abilities"] if not each["is_on"]}

    off = await list_off()
    assert off.keys() == missing_names
    assert off["integration", "gmail"] == "integrations_configure"
    await gallery.do("POST", f"/v1/{copy}/integrations/configure", {"toolkit": "gmail"}, ada)
    await gallery.do("PATCH", f"/v1/{copy}/env", {"envVars": {"SHARED": "mine"}}, ada)
    assert (await list_off()).keys() == missing_names - {("integration", "gmail"), ("app_variable", "SHARED")}
    assert "the-template's-own" not in str(state) + str(preflight)
