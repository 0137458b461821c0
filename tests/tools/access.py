"""The callers, the answers that they should get, and a world in which each of them calls each tool.

What each tool answers stands beside the tests of its domain, in `access_policy.py`: `POLICY` has a row for each tool,
with a word for each caller, and `for_TOOL` makes the arguments of a tool that needs more than its example.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baobab.runtime.passkeys import PasskeyRefused, PasskeysUnavailable
from baobab.storage.kv.engine import Quota, Tier
from baobab.tools.core.call import Tool
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app
from tests.people import Person, create_key, create_person
from tests.users import mint_user_token

PASSWORD = "correct Horse 7!"

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
# A stream's token is good once.
USED_UP_BY_READING = ("agents_public_events", "agents_public_socket")
OWN_AND_ADMINS = "401 403 403 403 403 403 403 403 404 ok  ok  ok  404 404"


@dataclass
class Caller:
    name: str
    headers: dict[str, str]
    email: str
    client: httpx.AsyncClient


@dataclass
class WatchedCaller(Caller):
    """A caller who notes whether anything of theirs was read."""

    was_read: bool = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("name", "headers", "email", "client"):
            self.was_read = True
        return super().__getattribute__(name)


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
    name_count: int = 0
    unspent: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Arguments by tool that are good for any caller, as no call so far has used them up."""
    refusal_arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Arguments by tool that would be good for the owner, and are shown by those who are to be refused."""

    async def request(self, method: str, path: str, headers: dict[str, str], **body: Any) -> Any:
        answer = await self.baobab.client.request(method, path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def new_name(self, kind: str) -> str:
        self.name_count += 1
        return f"{kind}-{self.name_count}"

    async def build_arguments(self, tool: str, caller: Caller) -> dict[str, Any]:
        """Arguments with which the call works for a caller who may; things that it uses up are made anew."""
        if tool.startswith("kv_"):
            kv = self.baobab.application.services.regions["local"].kv
            await kv.put(self.app, "k", b"1", None, Tier.DURABLE, Quota())
        module = import_module(f"tests.tools.{find_domain(self.baobab.application.registry.find(tool))}.access_policy")
        makes = getattr(module, f"for_{tool}", None)
        if makes is not None:
            arguments: dict[str, Any] = await makes(self, caller)
            return arguments
        takes = self.baobab.application.registry.find(tool).arguments.model_fields
        values = {"organization_id": self.org, "app_id": self.app, "key": "k", "pattern": "user:{user.id}:**"}
        example = dict(self.baobab.application.registry.find(tool).examples)
        return example | {name: value for name, value in values.items() if name in takes and takes[name].is_required()}

    async def sign_in_again(self, caller: Caller) -> None:
        """Begins the session of a user anew whose token said good-bye; the token is then as good as before."""
        token = caller.headers.get("authorization", "").removeprefix("Bearer ")
        if token.count(".") == 2:
            claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
            if "app_id" in claims:
                await mint_user_token(self.baobab.application, claims["app_id"], claims["sub"])

    async def call_without_route(self, tool: str, arguments: dict[str, Any], caller: Caller) -> str:
        application = self.baobab.application
        # Who may not call a tool is told so only where the arguments have the right names.
        required_names = application.registry.find(tool).input_schema.get("required", ())
        arguments = {**dict.fromkeys(required_names, "x"), **arguments}
        header = caller.headers.get("authorization")
        organisation = caller.headers.get("x-organization-id")
        who = await application.services.credentials.caller(
            header.encode() if header else None, organisation=organisation.encode() if organisation else None
        )
        try:
            await application.registry.call(tool, arguments, who, RequestContext("test", "matrix"))
        except (PasskeyRefused, PasskeysUnavailable):
            # The address of these tests has no passkeys, and what is shown is none: both are said to those who may ask.
            return "ok"
        except BaobabError as error:
            return str(error.status)
        return "ok"

    async def call_tool(self, tool: str, caller: Caller, expected_answer: str = "ok") -> str:
        """Calls a tool; the answer is `ok` or the status of a refusal.

        A refusal uses no arguments up, nor does a call that only reads. Who is to be refused shows what is good for the
        owner, and would be let in with it if anybody could. Only users show what is their own.
        """
        is_refused = expected_answer in ("401", "403") and caller.name != "user"
        pools = [self.unspent, self.refusal_arguments] if is_refused else [self.unspent]
        pool = next((pool for pool in pools if tool in pool), None)
        if pool is not None:
            arguments = pool.pop(tool)
        else:
            watched_caller = WatchedCaller(**vars(self.callers["owner"] if is_refused else caller))
            arguments = await self.build_arguments(tool, watched_caller)
            if not watched_caller.was_read:
                pool = self.unspent
            elif is_refused:
                pool = self.refusal_arguments
        answer = await self._call_with(arguments, tool, caller)
        only_reads = self.baobab.application.registry.find(tool).effect == "read" and tool not in USED_UP_BY_READING
        if pool is not None and (answer != "ok" or only_reads):
            pool[tool] = arguments
        return answer

    async def _call_with(self, arguments: dict[str, Any], tool: str, caller: Caller) -> str:
        rest = self.baobab.application.registry.find(tool).rest
        if rest is None:
            return await self.call_without_route(tool, arguments, caller)

        def fill_parameter(match: re.Match[str]) -> str:
            return str(arguments[match[1]])

        path = re.sub(r"\{(\w+)(?::path)?\}", fill_parameter, rest.path)
        answer = await caller.client.request(
            rest.method,
            httpx.URL(path),
            params={name: arguments[name] for name in rest.query_parameters if name in arguments}
            | arguments.get(rest.further_query or "", {}),
            content=arguments[rest.raw_body].encode()
            if rest.raw_body in arguments
            else to_json(
                arguments[rest.whole_body]
                if rest.whole_body is not None
                else {name: arguments[name] for name in rest.body_parameters if name in arguments}
            ),
            headers=caller.headers,
        )
        if tool == "auth_logout":
            await self.sign_in_again(caller)
        if tool in ("config_secure", "config_access_mode"):
            path = f"/v1/{self.app}/config/access-mode"
            await self.request("PATCH", path, self.owner.headers, access_mode="public")
        if tool == "config_pause":
            await self.request("PATCH", f"/v1/{self.app}/config/pause", self.owner.headers, paused=False)
        if tool == "config_visibility":
            path = f"/v1/{self.app}/config/visibility"
            await self.request("PATCH", path, self.owner.headers, visibility="private")
        # 426: no WebSocket, whoever asks. 502: somebody's server, which is none, does not answer those who may ask.
        # 415: the bytes of an upload have a type of their own.
        # 302: to a provider's sign-in. 307: to the host of a page. 400: back from a provider, in another browser.
        if answer.status_code in (302, 307) or (tool.startswith("auth_oauth_callback") and answer.status_code == 400):
            return "ok"
        if answer.is_success or answer.status_code in (409, 415, 426, 502):
            return "ok"
        return str(answer.status_code)


def find_domain(tool: Tool) -> str:
    """The folder in `tools/` that a tool is in."""
    return tool.handler.__module__.split(".")[2]


def load_policies() -> dict[str, dict[str, str]]:
    """The tables of all domains that have one, by domain."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/access_policy.py"))
    return {name: import_module(f"tests.tools.{name}.access_policy").POLICY for name in folders}


def load_policy() -> dict[str, str]:
    """The rows of all tools."""
    return {tool: row for table in load_policies().values() for tool, row in table.items()}


def hang_up(application: ASGIApp) -> ASGIApp:
    """Answers as the application does, to a client that hangs up as soon as a stream without an end has begun."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith(("/realtime/changes", "/logs/stream")):
            await application(scope, receive, send)
            return
        has_begun, requests = asyncio.Event(), iter([receive])

        async def receive_or_hang_up() -> Message:
            for read_request in requests:
                return await read_request()
            await has_begun.wait()
            return {"type": "http.disconnect"}

        async def note_begin(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                has_begun.set()
                message = {**message, "headers": []}
            await send(message)

        await application(scope, receive_or_hang_up, note_begin)
        if has_begun.is_set():
            await send({"type": "http.response.body", "body": b""})

    return answer


@asynccontextmanager
async def open_world(baobab: Baobab) -> AsyncIterator[World]:
    """An organisation with an app, people and credentials of every kind, and strangers to them."""
    client = baobab.client

    async def create_organisation(of: Person, name: str) -> str:
        response = await client.post("/v1/organizations", json={"name": name}, headers=of.headers)
        organisation_id: str = response.json()["id"]
        return organisation_id

    async def create_app(of: Person, org: str) -> str:
        body = {"name": "shop", "organization_id": org}
        app_id: str = (await client.post("/init", json=body, headers=of.headers)).json()["app_id"]
        return app_id

    owner, stranger, host = [await create_person(baobab, name) for name in ("owner", "stranger", "host")]
    org, stranger_org, host_org = [await create_organisation(who, "Team") for who in (owner, stranger, host)]
    member, admin = [await create_person(baobab, role, role=role, of=org) for role in ("member", "admin")]
    here, elsewhere = await create_app(owner, org), await create_app(stranger, stranger_org)
    response = await client.post(f"/v1/{here}/kv/_rotate_key", headers=owner.headers)
    function_key = response.json()["function_key"]
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
        transport = httpx.ASGITransport(app=hang_up(get_asgi_app(client)), client=(f"192.0.2.{number}", 1))
        # Who has no address cannot be invited; the invitation of somebody else must not help them either.
        email = addresses.get(name, f"nobody-{number}@example.com")
        callers[name] = Caller(name, headers, email, httpx.AsyncClient(transport=transport, base_url=ADDRESS))
    other_member = await create_person(baobab, "other-member", role="member", of=org)
    yield World(baobab, org, here, owner, other_member, host, host_org, callers)
    for caller in callers.values():
        await caller.client.aclose()
