"""The access matrix: who may call what. The table below is the policy of record: whoever changes access changes it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from pydantic_core import to_json
from sqlalchemy import insert

from baobab.storage.kv.engine import Quota, Tier
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from baobab.tools.moves.tables import moves_table
from baobab.tools.oauth.requests import seal
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app
from tests.jobs import run_due_jobs
from tests.people import Person, create_key, create_person

pytestmark = pytest.mark.own_installation

PASSWORD = "correct Horse 7!"
DOCUMENT = "https://client.example/client.json"

# Every credential is of the organisation `org` and its app, but for the strangers and what is `of another app`.
CALLERS = (
    "anonymous",
    "gateway key",
    "substrate key",
    "user",
    "user of another app",
    "app key",
    "key of another app",
    "function key",
    "member",
    "admin",
    "owner",
    "owner's key",
    "stranger",
    "stranger's key",
)

# `ok` is anything that is no refusal of the caller; the other words are statuses.
PUBLIC = "ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok"
ACCOUNTS = "401 403 403 403 403 403 403 403 ok  ok  ok  ok  ok  ok"
TOKENS = "401 403 403 403 403 403 403 403 ok  ok  ok  403 ok  403"
MEMBERS_OF_IT = "401 403 403 403 403 403 403 403 ok  ok  ok  ok  404 403"
ADMINS_OF_IT = "401 403 403 403 403 403 403 403 403 ok  ok  ok  404 403"
OWNERS_OF_IT = "401 403 403 403 403 403 403 403 403 403 ok  ok  404 403"
# Named by `org_id`, an organisation is refused to strangers whether it is there or not.
ORGANISATIONS = "401 403 403 403 403 403 403 403 ok  ok  ok  ok  403 403"
ADMINS_OF_ORGANISATIONS = "401 403 403 403 403 403 403 403 403 ok  ok  ok  403 403"
RUNNERS = "401 403 403 403 403 ok  403 403 ok  ok  ok  ok  403 403"
ADMINS = "401 403 403 403 403 ok  403 403 403 ok  ok  ok  403 403"
# The key-value store names its own refusals (document 3): an anonymous operator is forbidden, a foreign token unknown.
KV_OPERATORS = "403 403 403 403 401 ok  403 ok  ok  ok  ok  ok  403 403"
# What opens the store to others or empties it is for those who run the app; members use it.
KV_ADMINS = "403 403 403 403 401 ok  403 ok  403 ok  ok  ok  403 403"
# The function key does not give out its like.
KV_ROTATERS = "403 403 403 403 401 ok  403 403 403 ok  ok  ok  403 403"
INTERNAL = "403 403 403 403 403 403 403 403 403 403 403 403 403 403"
KV_UNEXPOSED = "401 403 403 403 401 ok  403 ok  ok  ok  ok  ok  403 403"
# Keys of an app have the scope for it.
GATEWAY = "401 ok  403 403 403 ok  ok  403 ok  ok  ok  ok  ok  ok"
# An app's models are for its users, too, at the expense of its organisation.
AI = "401 403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
# Users and keys of apps decide about calls of runs; a key's proposal is none of their business.
DECIDED = "401 403 403 404 404 404 404 403 404 ok  ok  ok  404 404"
OWN_AND_ADMINS = "401 403 403 403 403 403 403 403 404 ok  ok  ok  404 404"

ASKING: dict[str, Any] = {
    "spec_version": 1,
    "entry": "ask",
    "nodes": {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
        },
        "done": {"type": "end"},
    },
    "edges": [{"from": "ask", "to": "done"}],
    "tools": {"builtin": ["interrupt"]},
}

POLICY = {
    "system_health": PUBLIC,
    "system_ready": PUBLIC,
    "system_regions": PUBLIC,
    "system_llms_txt": PUBLIC,
    "docs_read": PUBLIC,
    "platform_signup": PUBLIC,
    "platform_login": PUBLIC,
    "platform_refresh": PUBLIC,
    "platform_logout": TOKENS,
    "platform_me": ACCOUNTS,
    "platform_update": ACCOUNTS,
    "organisations_list": ACCOUNTS,
    "organisations_create": TOKENS,
    "organisations_get": MEMBERS_OF_IT,
    "organisations_update": ADMINS_OF_IT,
    "organisations_delete": OWNERS_OF_IT,
    "organisations_members": MEMBERS_OF_IT,
    "organisations_set_role": ADMINS_OF_IT,
    "organisations_remove_member": ADMINS_OF_IT,
    "organisations_invite": ADMINS_OF_IT,
    "organisations_invitations": ADMINS_OF_IT,
    "organisations_withdraw_invitation": ADMINS_OF_IT,
    "organisations_accept_invitation": TOKENS,
    "api_keys_create": ACCOUNTS,
    "api_keys_list": ACCOUNTS,
    # A key that the owner made: to a plain member, as to a stranger, there is no such key.
    "api_keys_update": OWN_AND_ADMINS,
    "api_keys_revoke": OWN_AND_ADMINS,
    # What a key of the owner asked for.
    "approvals_list": "401 ok  ok  ok  ok  ok  ok  403 ok  ok  ok  ok  ok  ok",
    "approvals_get": "401 404 404 404 404 404 404 403 404 ok  ok  ok  404 404",
    "approvals_approve": DECIDED,
    "approvals_reject": DECIDED,
    "billing_get": ORGANISATIONS,
    "billing_plans": PUBLIC,
    "billing_usage": ORGANISATIONS,
    "billing_budgets": ORGANISATIONS,
    "billing_set_budget": ADMINS_OF_ORGANISATIONS,
    "billing_delete_budget": ADMINS_OF_ORGANISATIONS,
    "oauth_request": PUBLIC,
    "oauth_decide": TOKENS,
    # Only the OAuth endpoints call these, after they have checked what the protocol asks for.
    "oauth_register": INTERNAL,
    "oauth_client": INTERNAL,
    "oauth_code": INTERNAL,
    "oauth_exchange": INTERNAL,
    "oauth_refresh_token": INTERNAL,
    "oauth_refresh": INTERNAL,
    "oauth_revoke": INTERNAL,
    "oauth_programs_list": TOKENS,
    "oauth_programs_revoke": "401 403 403 403 403 403 403 403 404 404 404 403 404 403",
    "apps_init": ACCOUNTS,
    "apps_list": ACCOUNTS,
    "apps_status": RUNNERS,
    "apps_update": ADMINS,
    # No key of an app can delete the app.
    "apps_delete": "401 403 403 403 403 403 403 403 403 ok  ok  ok  403 403",
    "moves_start": ADMINS,
    "moves_active": RUNNERS,
    "moves_get": RUNNERS,
    "moves_abort": ADMINS,
    "moves_reverse": ADMINS,
    "source_replicas_list": ACCOUNTS,
    "source_replicas_delete": "401 403 403 403 403 403 403 403 403 ok  ok  ok  404 404",
    "config_get": RUNNERS,
    "config_access_mode": ADMINS,
    "config_secure": ADMINS,
    "config_auth_hooks": ADMINS,
    "config_visibility": ADMINS,
    "config_storage": ADMINS,
    "config_jwt": ADMINS,
    "config_cors": ADMINS,
    "config_pause": ADMINS,
    "kv_expose_list": KV_OPERATORS,
    "kv_expose": KV_ADMINS,
    "kv_expose_replace": KV_ADMINS,
    "kv_unexpose": KV_ADMINS,
    "kv_scan": KV_OPERATORS,
    "kv_stats": KV_OPERATORS,
    "kv_flush": KV_ADMINS,
    "kv_audit_recent": "401 403 403 ok  401 ok  403 ok  ok  ok  ok  ok  403 403",
    "kv_rotate_key": KV_ROTATERS,
    "kv_get": KV_UNEXPOSED,
    "kv_ttl": KV_UNEXPOSED,
    "kv_exists": KV_UNEXPOSED,
    "kv_put": KV_UNEXPOSED,
    "kv_delete": KV_UNEXPOSED,
    "kv_incr": KV_UNEXPOSED,
    "kv_decr": KV_UNEXPOSED,
    "kv_setnx": KV_UNEXPOSED,
    "kv_cas": KV_UNEXPOSED,
    "kv_expire": KV_UNEXPOSED,
    # Each operation of a batch is allowed or refused by itself.
    "kv_batch": "ok  403 403 ok  401 ok  403 ok  ok  ok  ok  ok  403 403",
    "gateway_chat": GATEWAY,
    "gateway_embeddings": GATEWAY,
    "gateway_messages": GATEWAY,
    "gateway_messages_count": GATEWAY,
    "gateway_model": GATEWAY,
    "gateway_models": GATEWAY,
    # Everybody here is the owner of an organisation of their own, where the credential leads.
    "model_servers_list": ACCOUNTS,
    "model_servers_create": ACCOUNTS,
    "model_servers_get": ACCOUNTS,
    "model_servers_update": ACCOUNTS,
    "model_servers_probe": ACCOUNTS,
    "model_servers_delete": ACCOUNTS,
    "provider_keys_list": ACCOUNTS,
    "provider_keys_set": ACCOUNTS,
    "provider_keys_delete": ACCOUNTS,
    "gateway_public_models": PUBLIC,
    "gateway_response": GATEWAY,
    "gateway_response_delete": GATEWAY,
    "gateway_responses": GATEWAY,
    "ai_chat": AI,
    "ai_embeddings": AI,
    "ai_messages": AI,
    "ai_messages_count": AI,
    "ai_model": AI,
    "ai_model_list": AI,
    "ai_models": AI,
    "ai_response": AI,
    "ai_response_delete": AI,
    "ai_responses": AI,
    "ai_config": RUNNERS,
    "ai_config_update": ADMINS,
    "ai_usage": RUNNERS,
    "images_generate": AI,
    "images_job": AI,
    "images_content": AI,
    "videos_generate": AI,
    "videos_job": AI,
    "videos_content": AI,
    "agents_list": RUNNERS,
    "agents_get": RUNNERS,
    "agents_create": ADMINS,
    "agents_update": ADMINS,
    "agents_delete": ADMINS,
    "agents_validate": RUNNERS,
    "agents_runs_delete": ADMINS,
    "agents_runs_webhook": RUNNERS,
    "agents_webhook_secret_rotate": ADMINS,
    "agents_webhook_secret_get": RUNNERS,
    "agents_threads_delete": ADMINS,
    "agents_users_erase": ADMINS,
    "agents_run": AI,
    "agents_runs_list": AI,
    "agents_runs_get": AI,
    "agents_runs_cancel": AI,
    "agents_runs_resume": AI,
    "agents_runs_fork": AI,
    "agents_runs_events": AI,
    "agents_runs_events_list": AI,
    # Anonymous callers of these show the app's anon key; here they come with nothing.
    "agents_public_run": AI,
    "agents_public_get": AI,
    "agents_public_cancel": AI,
    "agents_public_resume": AI,
    "agents_public_events_list": AI,
    "agents_public_stream_token": AI,
    # The token in the query opens them, whoever shows it.
    "agents_public_events": PUBLIC,
    "agents_public_socket": PUBLIC,
    # It does nothing: a run that calls it waits for a person.
    "interrupt": PUBLIC,
    "mcp_servers_list": RUNNERS,
    "mcp_servers_create": ADMINS,
    "mcp_servers_probe": ADMINS,
    "mcp_servers_delete": ADMINS,
    # Only a run of an agent calls it.
    "mcp_servers_call": INTERNAL,
    "audit_logs_list": ADMINS,
    "suggestions_create": ACCOUNTS,
    "suggestions_public_create": PUBLIC,
}


@dataclass
class Caller:
    name: str
    headers: dict[str, str]
    email: str
    client: httpx.AsyncClient


@dataclass
class World:
    baobab: Baobab
    org: str
    app: str
    owner: Person
    other_member: Person
    host: Person
    host_org: str
    callers: dict[str, Caller]
    made: int = 0

    async def request(self, method: str, path: str, headers: dict[str, str], **body: Any) -> Any:
        answer = await self.baobab.client.request(method, path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def new_name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    async def build_arguments(self, tool: str, caller: Caller) -> dict[str, Any]:
        """Arguments with which the call works for a caller who may; things that it uses up are made anew."""
        if tool.startswith("kv_"):
            kv = self.baobab.application.services.regions["local"].kv
            await kv.put(self.app, "k", b"1", None, Tier.DURABLE, Quota())
        makes = getattr(self, f"for_{tool}", None)
        if makes is not None:
            made: dict[str, Any] = await makes(caller)
            return made
        takes = self.baobab.application.registry.find(tool).arguments.model_fields
        known = {"organization_id": self.org, "app_id": self.app, "key": "k", "pattern": "user:{user.id}:**"}
        example = dict(self.baobab.application.registry.find(tool).examples)
        return example | {name: value for name, value in known.items() if name in takes and takes[name].is_required()}

    async def for_platform_signup(self, caller: Caller) -> dict[str, Any]:
        return {"email": f"{self.new_name('new')}@example.com", "password": PASSWORD, "name": "New"}

    async def for_platform_login(self, caller: Caller) -> dict[str, Any]:
        return {"email": "known@example.com", "password": PASSWORD}

    async def for_platform_refresh(self, caller: Caller) -> dict[str, Any]:
        signed_in = await caller.client.post("/platform/login", json=await self.for_platform_login(caller))
        return {"refresh_token": signed_in.json()["refresh_token"]}

    async def for_organisations_set_role(self, caller: Caller) -> dict[str, Any]:
        return {"organization_id": self.org, "account_id": self.other_member.id, "role": "member"}

    async def for_organisations_remove_member(self, caller: Caller) -> dict[str, Any]:
        leaving = await create_person(self.baobab, self.new_name("leaving"), role="member", of=self.org)
        return {"organization_id": self.org, "account_id": leaving.id}

    async def for_organisations_withdraw_invitation(self, caller: Caller) -> dict[str, Any]:
        path, email = f"/v1/organizations/{self.org}/invitations", f"{self.new_name('invited')}@example.com"
        invited = await self.request("POST", path, self.owner.headers, email=email)
        return {"organization_id": self.org, "invitation_id": invited["invitation"]["id"]}

    async def for_organisations_accept_invitation(self, caller: Caller) -> dict[str, Any]:
        path = f"/v1/organizations/{self.host_org}/invitations"
        return {"token": (await self.request("POST", path, self.host.headers, email=caller.email))["token"]}

    async def for_api_keys_create(self, caller: Caller) -> dict[str, Any]:
        return {"name": "matrix"}

    async def for_api_keys_revoke(self, caller: Caller) -> dict[str, Any]:
        made = await self.request("POST", "/api-keys", self.owner.headers, name="k", organization_id=self.org)
        return {"key_id": made["key_id"]}

    async def for_api_keys_update(self, caller: Caller) -> dict[str, Any]:
        return {**await self.for_api_keys_revoke(caller), "name": "renamed"}

    async def for_billing_get(self, caller: Caller) -> dict[str, Any]:
        return {"org_id": self.org}

    async def for_billing_usage(self, caller: Caller) -> dict[str, Any]:
        return {"org_id": self.org}

    async def for_billing_budgets(self, caller: Caller) -> dict[str, Any]:
        return {"org_id": self.org}

    async def for_billing_set_budget(self, caller: Caller) -> dict[str, Any]:
        return {**await self.for_billing_delete_budget(caller), "most_usd": "1.50"}

    async def for_billing_delete_budget(self, caller: Caller) -> dict[str, Any]:
        await self.baobab.application.services.part(Credits).set_budget(self.org, "app", self.app, "day", 1)
        return {"subject": "app", "subject_id": self.app, "period": "day", "org_id": self.org}

    async def for_gateway_response(self, caller: Caller) -> dict[str, Any]:
        asked = {"model": "baobab/echo", "input": "Hello!"}
        answer = await caller.client.post("/v1/responses", json=asked, headers=caller.headers)
        return {"response_id": answer.json().get("id", "resp_0")}

    async def for_gateway_response_delete(self, caller: Caller) -> dict[str, Any]:
        return await self.for_gateway_response(caller)

    async def for_ai_response(self, caller: Caller) -> dict[str, Any]:
        asked = {"model": "baobab/echo", "input": "Hello!"}
        answer = await caller.client.post(f"/v1/{self.app}/responses", json=asked, headers=caller.headers)
        return {"app_id": self.app, "response_id": answer.json().get("id", "resp_0")}

    async def for_ai_response_delete(self, caller: Caller) -> dict[str, Any]:
        return await self.for_ai_response(caller)

    async def for_model_servers_create(self, caller: Caller) -> dict[str, Any]:
        # Where nobody listens: that is told at once.
        return {"name": "lab", "url": "http://127.0.0.1:1/v1"}

    async def for_model_servers_get(self, caller: Caller) -> dict[str, Any]:
        server = await self.for_model_servers_create(caller)
        await caller.client.post("/v1/ai/servers", json=server, headers=caller.headers)
        return {"name": "lab"}

    async def for_model_servers_update(self, caller: Caller) -> dict[str, Any]:
        return {**await self.for_model_servers_get(caller), "key": None}

    async def for_model_servers_probe(self, caller: Caller) -> dict[str, Any]:
        return await self.for_model_servers_get(caller)

    async def for_model_servers_delete(self, caller: Caller) -> dict[str, Any]:
        return await self.for_model_servers_get(caller)

    async def for_provider_keys_set(self, caller: Caller) -> dict[str, Any]:
        return {"provider": "openai", "key": "sk-proj-0000"}

    async def for_provider_keys_delete(self, caller: Caller) -> dict[str, Any]:
        given = await self.for_provider_keys_set(caller)
        await caller.client.put("/v1/ai/provider-keys/openai", json={"key": given["key"]}, headers=caller.headers)
        return {"provider": "openai"}

    async def for_kv_rotate_key(self, caller: Caller) -> dict[str, Any]:
        # Whoever may has just made the one that is in use void.
        rotated = await self.request("POST", f"/v1/{self.app}/kv/_rotate_key", self.owner.headers)
        self.callers["function key"].headers = {"authorization": f"Bearer {rotated['function_key']}"}
        return {"app_id": self.app}

    async def for_approvals_get(self, caller: Caller) -> dict[str, Any]:
        asking = {"name": "agent", "organization_id": self.org, "approval": "write"}
        made = await self.request("POST", "/api-keys", self.owner.headers, **asking)
        agent = {"authorization": f"Bearer {made['key']}"}
        refused = await self.baobab.client.post("/init", json={"name": self.new_name("app")}, headers=agent)
        return {"approval_id": refused.json()["error"]["details"]["approval_id"]}

    async def for_approvals_approve(self, caller: Caller) -> dict[str, Any]:
        return await self.for_approvals_get(caller)

    async def for_approvals_reject(self, caller: Caller) -> dict[str, Any]:
        return await self.for_approvals_get(caller)

    async def for_images_job(self, caller: Caller) -> dict[str, Any]:
        return await self.start_generation("images", "baobab/picture", caller)

    async def for_images_content(self, caller: Caller) -> dict[str, Any]:
        return await self.start_generation("images", "baobab/picture", caller)

    async def for_videos_job(self, caller: Caller) -> dict[str, Any]:
        return await self.start_generation("videos", "baobab/film", caller)

    async def for_videos_content(self, caller: Caller) -> dict[str, Any]:
        return await self.start_generation("videos", "baobab/film", caller)

    async def for_agents_create(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": self.new_name("agent"), "graph_spec": ASKING}

    async def for_agents_update(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent(), "status": "disabled"}

    async def for_agents_get(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent()}

    async def for_agents_delete(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent()}

    async def for_agents_runs_delete(self, caller: Caller) -> dict[str, Any]:
        run = await self.start_run(caller)
        await self.get_token(run)
        await self.request("POST", f"/v1/{self.app}/agents/{run['name']}/runs/{run['id']}/cancel", self.owner.headers)
        return run

    async def for_agents_runs_webhook(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller)

    async def for_agents_webhook_secret_rotate(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app}

    async def for_agents_webhook_secret_get(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app}

    async def for_agents_threads_delete(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent(), "thread_id": "t"}

    async def for_agents_users_erase(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "user_id": "nobody"}

    async def for_agents_validate(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": "any", "graph_spec": ASKING}

    async def for_agents_run(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent(), "input": {}}

    async def for_agents_runs_list(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent()}

    async def for_agents_runs_get(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller)

    async def for_agents_runs_cancel(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller)

    async def for_agents_runs_events_list(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller)

    async def for_agents_runs_events(self, caller: Caller) -> dict[str, Any]:
        run = await self.start_run(caller)
        await self.request("POST", f"/v1/{self.app}/agents/{run['name']}/runs/{run['id']}/cancel", self.owner.headers)
        return run

    async def for_agents_runs_resume(self, caller: Caller) -> dict[str, Any]:
        run = await self.start_run(caller)
        return {**run, "approved": True, "approval_token": await self.get_token(run)}

    async def for_agents_runs_fork(self, caller: Caller) -> dict[str, Any]:
        run = await self.start_run(caller)
        # It waits: by then it has begun.
        await self.get_token(run)
        return run

    async def for_agents_public_run(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "name": await self.create_agent(), "input": {}}

    async def for_agents_public_get(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller, named=False)

    async def for_agents_public_cancel(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller, named=False)

    async def for_agents_public_events_list(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller, named=False)

    async def for_agents_public_stream_token(self, caller: Caller) -> dict[str, Any]:
        return await self.start_run(caller, named=False)

    async def for_mcp_servers_create(self, caller: Caller) -> dict[str, Any]:
        # No machine, and no name to ask anybody for.
        return {"app_id": self.app, "name": self.new_name("tools"), "url": "http://192.0.2.1.invalid/mcp"}

    async def for_mcp_servers_probe(self, caller: Caller) -> dict[str, Any]:
        path, server = f"/v1/{self.app}/mcp-servers", await self.for_mcp_servers_create(caller)
        made = await self.request("POST", path, self.owner.headers, name=server["name"], url=server["url"])
        return {"app_id": self.app, "id": made["mcp_server"]["id"]}

    async def for_mcp_servers_delete(self, caller: Caller) -> dict[str, Any]:
        return await self.for_mcp_servers_probe(caller)

    async def for_mcp_servers_call(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "server_id": "nowhere", "tool": "search", "digest": "0" * 32, "arguments": {}}

    async def for_agents_public_resume(self, caller: Caller) -> dict[str, Any]:
        run = await self.start_run(caller)
        token = await self.get_token(run)
        return {"app_id": self.app, "id": run["id"], "approved": True, "approval_token": token}

    async def for_agents_public_events(self, caller: Caller) -> dict[str, Any]:
        app = await self.baobab.application.services.directory.app(self.app)
        anon, name = {"apikey": app.anon_key}, await self.create_agent()
        path = f"/v1/{self.app}/public"
        begun = await self.request("POST", f"{path}/agents/{name}/runs", anon, input={})
        await self.request("POST", f"{path}/runs/{begun['run_id']}/cancel", anon)
        return {"app_id": self.app, "id": begun["run_id"], "token": begun["stream_token"]}

    async def for_agents_public_socket(self, caller: Caller) -> dict[str, Any]:
        return await self.for_agents_public_events(caller)

    async def for_interrupt(self, caller: Caller) -> dict[str, Any]:
        return {"app_id": self.app, "reason": "Go on?"}

    async def create_agent(self) -> str:
        """An agent that anybody may run, and that asks before it ends."""
        name = self.new_name("agent")
        made = {"name": name, "graph_spec": ASKING, "visibility": "public", "safety_acknowledged": True}
        await self.request("POST", f"/v1/{self.app}/agents", self.owner.headers, **made)
        return name

    async def start_run(self, caller: Caller, *, named: bool = True) -> dict[str, Any]:
        """A run of the caller's own, where it may have one, that waits for a decision or soon will."""
        name = await self.create_agent()
        path = f"/v1/{self.app}/agents/{name}/runs"
        answer = await caller.client.post(path, json={"input": {}}, headers=caller.headers)
        begun = answer.json() if answer.is_success else await self.request("POST", path, self.owner.headers, input={})
        run = {"app_id": self.app, "id": begun["run_id"]}
        return {**run, "name": name} if named else run

    async def get_token(self, run: dict[str, Any]) -> str:
        await run_due_jobs(self.baobab.application)
        path = f"/v1/{self.app}/agents/{run['name']}/runs/{run['id']}/events.json"
        token: str = (await self.request("GET", path, self.owner.headers))["events"][-1]["payload"]["approval_token"]
        return token

    async def start_generation(self, kind: str, model: str, caller: Caller) -> dict[str, Any]:
        """A job of the caller's own, where it may have one: files are for who submitted them."""
        path, asked = f"/v1/{self.app}/{kind}/completions", {"model": model, "prompt": "A tree"}
        begun = await caller.client.post(path, json=asked, headers=caller.headers)
        return {"app_id": self.app, "job_id": begun.json().get("job_id", "none")}

    async def for_apps_delete(self, caller: Caller) -> dict[str, Any]:
        made = await self.request(
            "POST", "/init", self.owner.headers, name=self.new_name("app"), organization_id=self.org
        )
        return {"app_id": made["app_id"]}

    async def for_moves_get(self, caller: Caller) -> dict[str, Any]:
        now, move = self.baobab.application.services.clock.now(), self.baobab.application.services.ids.uuid()
        row = {"id": move, "app_id": self.app, "organisation_id": self.org, "source_region": "there"}
        state = {"current_step": "completed", "source_replica_state": "active", "completed_at": now, "retry_count": 0}
        times = {"created_at": now, "step_started_at": now, "progress": {}, "dest_region": "local"}
        async with self.baobab.application.services.database.writing() as connection:
            await connection.execute(insert(moves_table), row | state | times)
        return {"app_id": self.app, "migration_id": move}

    async def for_moves_abort(self, caller: Caller) -> dict[str, Any]:
        return await self.for_moves_get(caller)

    async def for_moves_reverse(self, caller: Caller) -> dict[str, Any]:
        return await self.for_moves_get(caller)

    async def for_source_replicas_delete(self, caller: Caller) -> dict[str, Any]:
        return {"migration_id": (await self.for_moves_get(caller))["migration_id"]}

    async def for_oauth_request(self, caller: Caller) -> dict[str, Any]:
        client: dict[str, Any] = {"client_id": DOCUMENT, "client_name": "Agent", "code_challenge": "c" * 43}
        asked: dict[str, Any] = {"redirect_uri": "http://localhost/", "redirect_given": True, "state": None}
        sealed = seal(self.baobab.application.services, **client, **asked, scopes=None, resource=None, issuer=ADDRESS)
        return {"request": sealed}

    async def for_oauth_decide(self, caller: Caller) -> dict[str, Any]:
        return {**await self.for_oauth_request(caller), "decision": "approve"}

    async def for_oauth_programs_revoke(self, caller: Caller) -> dict[str, Any]:
        return {"program_id": self.baobab.application.services.ids.uuid()}

    async def call_without_route(self, tool: str, arguments: dict[str, Any], caller: Caller) -> str:
        application = self.baobab.application
        # Who may not call a tool is told so only where the arguments have the right names.
        required = application.registry.find(tool).input_schema.get("required", ())
        arguments = {**dict.fromkeys(required, "x"), **arguments}
        header = caller.headers.get("authorization")
        who = await application.services.credentials.caller(header.encode() if header else None)
        try:
            await application.registry.call(tool, arguments, who, RequestContext("test", "matrix"))
        except BaobabError as error:
            return str(error.status)
        return "ok"

    async def call_tool(self, tool: str, caller: Caller) -> str:
        arguments = await self.build_arguments(tool, caller)
        rest = self.baobab.application.registry.find(tool).rest
        if rest is None:
            return await self.call_without_route(tool, arguments, caller)

        def fill_parameter(found: re.Match[str]) -> str:
            return str(arguments[found[1]])

        path = re.sub(r"\{(\w+)(?::path)?\}", fill_parameter, rest.path)
        answer = await caller.client.request(
            rest.method,
            httpx.URL(path),
            params={name: arguments[name] for name in rest.query_parameters if name in arguments},
            content=to_json({name: arguments[name] for name in rest.body_parameters if name in arguments}),
            headers=caller.headers,
        )
        if tool in ("config_secure", "config_access_mode"):
            path = f"/v1/{self.app}/config/access-mode"
            await self.request("PATCH", path, self.owner.headers, access_mode="public")
        # 426: no WebSocket, whoever asks. 502: somebody's server, which is none, does not answer those who may ask.
        if answer.is_success or answer.status_code in (409, 426, 502):
            return "ok"
        return str(answer.status_code)


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.fixture
async def world(baobab: Baobab) -> AsyncIterator[World]:
    async with open_world(baobab) as made:
        yield made


@asynccontextmanager
async def open_world(baobab: Baobab) -> AsyncIterator[World]:
    """An organisation with an app, people and credentials of every kind, and strangers to them."""
    client = baobab.client

    async def create_organisation(of: Person, name: str) -> str:
        made = await client.post("/v1/organizations", json={"name": name}, headers=of.headers)
        organisation_id: str = made.json()["id"]
        return organisation_id

    async def create_app(of: Person, org: str) -> str:
        body = {"name": "shop", "organization_id": org}
        app_id: str = (await client.post("/init", json=body, headers=of.headers)).json()["app_id"]
        return app_id

    owner, stranger, host = [await create_person(baobab, name) for name in ("owner", "stranger", "host")]
    org, stranger_org, host_org = [await create_organisation(who, "Team") for who in (owner, stranger, host)]
    member, admin = [await create_person(baobab, role, role=role, of=org) for role in ("member", "admin")]
    here, elsewhere = await create_app(owner, org), await create_app(stranger, stranger_org)
    rotated = await client.post(f"/v1/{here}/kv/_rotate_key", headers=owner.headers)
    function_key = rotated.json()["function_key"]
    credentials = {
        "anonymous": {},
        "gateway key": await create_key(baobab, owner.headers, scopes=["ai:gateway"]),
        "substrate key": await create_key(baobab, owner.headers, scopes=["substrate"]),
        "user": await baobab.user_headers(here, owner.id),
        "user of another app": await baobab.user_headers(elsewhere, owner.id),
        "app key": await create_key(baobab, owner.headers, key_scope="app", target_app_id=here),
        "key of another app": await create_key(baobab, stranger.headers, key_scope="app", target_app_id=elsewhere),
        "function key": {"authorization": f"Bearer {function_key}"},
        "member": member.headers,
        "admin": admin.headers,
        "owner": owner.headers,
        "owner's key": await create_key(baobab, owner.headers, organization_id=org),
        "stranger": stranger.headers,
        "stranger's key": await create_key(baobab, stranger.headers, organization_id=stranger_org),
    }
    signed_up = {"email": "known@example.com", "password": PASSWORD, "name": "Known"}
    assert (await client.post("/platform/signup", json=signed_up)).status_code == 201
    addresses = {"member": member.email, "admin": admin.email, "owner": owner.email, "stranger": stranger.email}
    callers = {}
    for number, (name, headers) in enumerate(credentials.items()):
        # An address each: limits that count addresses must not decide the table.
        transport = httpx.ASGITransport(app=get_asgi_app(client), client=(f"192.0.2.{number}", 1))
        # Who has no address cannot be invited; the invitation of somebody else must not help them either.
        email = addresses.get(name, f"nobody-{number}@example.com")
        callers[name] = Caller(name, headers, email, httpx.AsyncClient(transport=transport, base_url=ADDRESS))
    other_member = await create_person(baobab, "other-member", role="member", of=org)
    yield World(baobab, org, here, owner, other_member, host, host_org, callers)
    for caller in callers.values():
        await caller.client.aclose()


def test_every_tool_has_a_row_in_the_table_and_every_row_a_tool(baobab: Baobab) -> None:
    assert POLICY.keys() == baobab.application.registry.tools.keys()


@pytest.mark.parametrize("row", sorted(set(POLICY.values())))
def test_every_row_has_a_word_for_every_caller(row: Any) -> None:
    assert len(row.split()) == len(CALLERS)
    assert set(row.split()) <= {"ok", "401", "403", "404"}


async def test_every_tool_answers_every_caller_as_the_table_says(world: Any) -> None:
    wrong = []
    for tool, row in POLICY.items():
        # A quick machine asks more of one app in a minute than an app may be asked; that is not what this is about.
        world.baobab.application.services.limits._windows.clear()
        for name, wanted in zip(CALLERS, row.split(), strict=True):
            found = await world.call_tool(tool, world.callers[name])
            if found != wanted:
                wrong.append(f"{tool} for {name}: {found}, not {wanted}")
    assert wrong == []


async def test_lists_of_tools_hold_no_tool_that_the_table_refuses_to_that_kind_of_caller(world: Any) -> None:
    """What MCP shows to a caller it may at least try: nobody is shown a tool that no one of their kind can use."""
    registry, credentials = world.baobab.application.registry, world.baobab.application.services.credentials
    for name in ("user", "app key", "function key", "owner", "owner's key"):
        header = world.callers[name].headers["authorization"].encode()
        shown = {tool.name for tool in registry.visible_to(await credentials.caller(header))}
        words = {tool: row.split()[CALLERS.index(name)] for tool, row in POLICY.items()}
        assert {tool for tool, word in words.items() if word == "ok" and registry.find(tool).mcp} <= shown, name
        refused = {tool for tool in shown if words[tool] in ("401", "403")}
        # Rules may open keys to a user; by default none does.
        exposed = {tool for tool, row in POLICY.items() if row == KV_UNEXPOSED}
        assert refused <= (exposed if name == "user" else set()), name
