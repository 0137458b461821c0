"""Whatever hands out credentials or rights, in any order, against a model of who may hold what.

Nobody ever holds more than the model says, and nobody less: removals, demotions and revocations included.
"""

import asyncio
import math
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from baobab import composition
from baobab.runtime.oauth.errors import InvalidGrant
from baobab.settings import load_settings
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.errors import BaobabError
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.installation import reset_rate_limits
from tests.tools.conftest import ToolHarness
from tests.tools.oauth.conftest import Flow, parse_redirect

RANK = {"member": 0, "admin": 1, "owner": 2}
LIMITS: dict[str, dict[str, Any]] = {
    "none": {},
    "reads": {"read_only": True},
    "kv": {"toolsets": ["kv"]},
    "kv and keys": {"toolsets": ["kv", "api_keys"]},
}
# What a program is given by consent; `{app}` and `{other}` are apps of the team.
NARROWED: dict[str, dict[str, Any]] = {
    **LIMITS,
    "this app": {"only_app_id": "{app}"},
    "other app": {"only_app_id": "{other}"},
    "today": {"last_day": "{today}"},
}
ACCESS_SECONDS = 3600
MOST_NIGHTS = 3
PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("config_get", {}),
    "run": ("config_visibility", {"visibility": "private"}),
    "write": ("kv_put", {"key": "k", "value": 1}),
    "expose": ("kv_expose_replace", {"rules": []}),
}

people, limits = st.integers(0, 2), st.sampled_from(sorted(LIMITS))
roles = st.sampled_from(sorted(RANK))
# Who acts: a person who is signed in, or the n-th of the credentials that were handed out.
sources = st.one_of(people.map(lambda n: ("person", n)), st.integers(0, 30).map(lambda n: ("credential", n)))


@dataclass
class Credential:
    """kind: `account`, `app`, `function`, `program`, or `invitation`. held_to: names of LIMITS and NARROWED, its
    makers' among them. good_until, ends_at: for now, as a token that is renewed, and for good.
    """

    kind: str
    text: str
    id: str
    person: int
    maker: "Credential | None" = None
    held_to: frozenset[str] = frozenset()
    role: str = "member"
    lives: bool = True
    good_until: float = math.inf
    ends_at: float = math.inf
    client_id: str = ""
    refresh_token: str = ""


class Rights(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory()
        self.roles: list[str | None] = [None, None, None]
        self.handed_out: list[Credential] = []
        self.guests: dict[str, Account] = {}

    @initialize()
    def begin(self) -> None:
        self.runner.run(self._begin())
        self.join(0, "admin")
        self.join(1, "admin")
        self.let_a_program_in(0, "other app")
        self.let_a_program_in(1, "today")
        self.make_key(("credential", 1), "account", "none")

    async def _begin(self) -> None:
        clock, path = FixedClock(), Path(self.folder.name)
        application = await self.stack.enter_async_context(
            composition.open_application(
                load_settings({**prepare_data(path), "BAOBAB_PLAN": "enterprise"}, data=path), clock=clock
            )
        )
        self.harness = ToolHarness(application.services, application.registry, clock, path)
        self.owner = await self.harness.sign_up("owner@example.com")
        self.team = await self.harness.create_organisation(self.owner)
        self.app, self.other = [
            (await self.harness.call("apps_init", self.owner, name=name, organization_id=self.team))["app_id"]
            for name in ("shop", "other")
        ]
        self.flow, self.clock, self.nights = Flow(self.harness), clock, 0
        self.people = [await self.harness.sign_up(f"person{n}@example.com") for n in range(3)]

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        release_data(Path(self.folder.name))
        self.folder.cleanup()

    # -- What is done --------------------------------------------------------------------------------------------------

    @rule(who=people, role=roles)
    def take_in(self, who: int, role: str) -> None:
        self.join(who, role)

    def join(self, who: int, role: str) -> None:
        if self.roles[who] is None:
            email = f"person{who}@example.com"
            invitation = self.call_tool(
                "organisations_invite", self.owner, organization_id=self.team, email=email, role=role
            )
            self.call_tool("organisations_accept_invitation", self.people[who], token=invitation["token"])
            self.roles[who] = role

    @rule(who=people)
    def remove(self, who: int) -> None:
        if self.roles[who] is not None:
            arguments = {"organization_id": self.team, "account_id": self.people[who].account_id}
            self.call_tool("organisations_remove_member", self.owner, **arguments)
            self.roles[who] = None
            self.void_credentials(lambda credential: credential.person == who)

    @rule(who=people, role=roles)
    def change_role(self, who: int, role: str) -> None:
        before = self.roles[who]
        if before is not None:
            arguments = {"organization_id": self.team, "account_id": self.people[who].account_id, "role": role}
            self.call_tool("organisations_set_role", self.owner, **arguments)
            self.roles[who] = role
            if role == "member":
                self.void_credentials(
                    lambda credential: credential.person == who and credential.kind in ("app", "function")
                )
            if RANK[role] < RANK[before]:
                self.void_credentials(lambda credential: credential.person == who and credential.kind == "invitation")

    @rule(source=sources, kind=st.sampled_from(["account", "app"]), held_to=limits)
    def make_key(self, source: tuple[str, int], kind: str, held_to: str) -> None:
        holder = self.resolve_source(source)
        if holder is None:
            return
        caller, who, maker = holder
        arguments = {"key_scope": "app", "target_app_id": self.app} if kind == "app" else {"organization_id": self.team}
        inherited_limits = maker.held_to if maker else frozenset[str]()
        may = self.is_account(maker) and self.get_rank(who) >= (1 if kind == "app" else 0)
        may = may and not inherited_limits & {"reads", "kv", "this app", "other app"}
        created_key = self.check_call(may, "api_keys_create", caller, name="k", **arguments, **LIMITS[held_to])
        if created_key is not None:
            every = inherited_limits | ({held_to} - {"none"})
            key = Credential(kind, created_key["key"], created_key["key_id"], who, maker, every)
            # What a program makes ends with it.
            key.good_until = key.ends_at = maker.ends_at if maker else math.inf
            self.handed_out.append(key)

    @rule(source=sources)
    def rotate(self, source: tuple[str, int]) -> None:
        holder = self.resolve_source(source)
        if holder is None:
            return
        caller, who, maker = holder
        may = self.get_rank(who) >= 1 and (
            maker is None or (maker.kind in ("account", "app", "program") and not maker.held_to)
        )
        rotated_key = self.check_call(may, "kv_rotate_key", caller, app_id=self.app)
        if rotated_key is not None:
            self.void_credentials(lambda credential: credential.kind == "function")
            self.handed_out.append(Credential("function", rotated_key["function_key"], "", who, maker))

    @rule(source=sources, role=roles)
    def invite(self, source: tuple[str, int], role: str) -> None:
        holder = self.resolve_source(source)
        if holder is None:
            return
        caller, who, maker = holder
        may = self.is_account(maker) and not (maker and maker.held_to) and self.get_rank(who) >= max(1, RANK[role])
        email = f"guest{len(self.handed_out)}@example.com"
        arguments = {"organization_id": self.team, "email": email, "role": role}
        invitation = self.check_call(may, "organisations_invite", caller, **arguments)
        if invitation is not None:
            self.handed_out.append(Credential("invitation", invitation["token"], email, who, maker, role=role))

    @rule(n=st.integers(0, 30))
    def accept(self, n: int) -> None:
        open_ones = [credential for credential in self.handed_out if credential.kind == "invitation"]
        if open_ones:
            invitation = open_ones[n % len(open_ones)]
            if invitation.id not in self.guests:
                self.guests[invitation.id] = self.runner.run(self.harness.sign_up(invitation.id))
            guest = self.guests[invitation.id]
            self.check_call(invitation.lives, "organisations_accept_invitation", guest, token=invitation.text)
            invitation.lives = False

    @rule(n=st.integers(0, 30), keep_made=st.booleans())
    def revoke(self, n: int, keep_made: bool) -> None:
        kinds, now = ("account", "app", "program"), self.clock.time()
        # What has ended is revoked in the hour after.
        keys = [key for key in self.handed_out if key.kind in kinds and key.ends_at > now]
        if keys:
            key = keys[n % len(keys)]
            self.check_call(key.lives, "api_keys_revoke", self.owner, key_id=key.id, keep_made=keep_made)
            if key.lives:
                key.lives = False
                if not keep_made:
                    self.void_credentials(lambda credential: self.comes_from(credential, key))

    @rule(n=st.integers(0, 30))
    def let_a_program_in_by_a_key(self, n: int) -> None:
        if holder := self.resolve_source(("credential", n)):
            request = self.flow.build_request(self.runner.run(self.flow.register_client()))
            arguments = {"request": request, "decision": "approve", "organization_id": self.team}
            assert not self.is_allowed("oauth_decide", holder[0], **arguments)

    @rule(who=people, limit=st.sampled_from(sorted(NARROWED)))
    def let_a_program_in(self, who: int, limit: str) -> None:
        client = self.runner.run(self.flow.register_client())
        words = {"{app}": self.app, "{other}": self.other, "{today}": self.clock.now().date().isoformat()}
        limit_arguments = {
            name: words.get(value, value) if isinstance(value, str) else value
            for name, value in NARROWED[limit].items()
        }
        arguments = {
            "request": self.flow.build_request(client),
            "decision": "approve",
            "approval": "none",
            **limit_arguments,
        }
        given_by = self.people[who]
        redirect = self.check_call(
            self.get_rank(who) >= 0, "oauth_decide", given_by, organization_id=self.team, **arguments
        )
        if redirect is not None:
            code = {"client_id": client["client_id"], "code": parse_redirect(redirect)["code"]}
            tokens = self.runner.run(self.flow.call_endpoint("oauth_exchange", **code))
            programs = self.call_tool("oauth_programs_list", given_by)["programs"]
            program_id = next(program["id"] for program in programs if program["client_id"] == client["client_id"])
            program = Credential(
                "program", tokens["access_token"], program_id, who, None, frozenset({limit} - {"none"})
            )
            program.client_id, program.refresh_token = client["client_id"], tokens["refresh_token"]
            if limit == "today":
                program.ends_at = datetime.combine(self.clock.now().date() + timedelta(days=1), time(), UTC).timestamp()
            program.good_until = min(program.ends_at, self.clock.time() + ACCESS_SECONDS)
            self.handed_out.append(program)

    @rule(n=st.integers(0, 30))
    def renew(self, n: int) -> None:
        if program := self.program(n):
            token = {"client_id": program.client_id, "refresh_token": program.refresh_token}
            try:
                tokens = self.runner.run(self.flow.call_endpoint("oauth_refresh", **token))
            except InvalidGrant:
                assert not program.lives or program.ends_at <= self.clock.time(), program
                return
            assert program.lives, program
            assert program.ends_at > self.clock.time(), program
            program.text, program.refresh_token = tokens["access_token"], tokens["refresh_token"]
            program.good_until = min(program.ends_at, self.clock.time() + ACCESS_SECONDS)

    @rule(n=st.integers(0, 30), who=people)
    def take_access_away(self, n: int, who: int) -> None:
        program = self.program(n)
        if program is not None and program.ends_at > self.clock.time():
            may = program.lives and program.person == who
            self.check_call(may, "oauth_programs_revoke", self.people[who], program_id=program.id)
            if may:
                self.void_credentials(lambda credential: credential is program or self.comes_from(credential, program))

    @rule()
    def let_an_hour_pass(self) -> None:
        self.clock.advance(ACCESS_SECONDS)

    @rule()
    def sleep(self) -> None:
        # Not for so long that invitations end.
        if self.nights < MOST_NIGHTS:
            self.nights += 1
            tomorrow = datetime.combine(self.clock.now().date() + timedelta(days=1), time(), UTC)
            self.clock.advance(tomorrow.timestamp() - self.clock.time())
            for n in range(len(self.programs)):
                self.renew(n)

    @property
    def programs(self) -> list[Credential]:
        return [credential for credential in self.handed_out if credential.kind == "program"]

    def program(self, n: int) -> Credential | None:
        return self.programs[n % len(self.programs)] if self.programs else None

    # -- What must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_holds_more_or_less_than_the_model_says(self) -> None:
        if not hasattr(self, "people"):
            return
        for who, person in enumerate(self.people):
            assert self.probe_rights(person) == self.rights_of_role(self.roles[who]), f"person {who}"
        for credential in self.handed_out[-8:]:
            if credential.kind == "invitation":
                continue
            caller = self.authenticate(credential)
            assert (set() if caller is None else self.probe_rights(caller)) == self.rights(credential), credential

    def rights(self, credential: Credential) -> set[str]:
        if not credential.lives or credential.good_until <= self.clock.time():
            return set()
        if credential.kind == "function":
            return {"write", "expose"}
        rights = self.rights_of_role(self.roles[credential.person])
        if credential.held_to:
            rights -= {"expose"}
        if "other app" in credential.held_to:
            return set()
        if "reads" in credential.held_to:
            rights &= {"read"}
        if credential.held_to & {"kv", "kv and keys"}:
            rights &= {"write"}
        return rights

    @staticmethod
    def rights_of_role(role: str | None) -> set[str]:
        return set() if role is None else {"read", "write"} if role == "member" else set(PROBES)

    def probe_rights(self, caller: Caller) -> set[str]:
        return {
            right
            for right, (tool, arguments) in PROBES.items()
            if self.is_allowed(tool, caller, app_id=self.app, **arguments)
        }

    # -- How it is done ------------------------------------------------------------------------------------------------

    def call_tool(self, tool: str, by: Caller, **arguments: Any) -> Any:
        reset_rate_limits(self.harness.services)
        return self.runner.run(self.harness.call(tool, by, **arguments))

    def is_allowed(self, tool: str, by: Caller, **arguments: Any) -> bool:
        try:
            self.call_tool(tool, by, **arguments)
        except BaobabError as error:
            if error.status not in (401, 403, 404, 409):
                raise
            return False
        return True

    def check_call(self, may: bool, tool: str, by: Caller, **arguments: Any) -> Any:
        """What the tool answers to one who may; None where it must refuse, and does."""
        if may:
            return self.call_tool(tool, by, **arguments)
        assert not self.is_allowed(tool, by, **arguments), f"{tool} by {by}"
        return None

    def resolve_source(self, source: tuple[str, int]) -> tuple[Caller, int, Credential | None] | None:
        """Who acts, which person that is, and with which credential."""
        kind, n = source
        if kind == "person":
            return self.people[n], n, None
        now = self.clock.time()
        usable = [
            credential
            for credential in self.handed_out
            if credential.kind != "invitation" and credential.lives and credential.good_until > now
        ]
        if not usable:
            return None
        credential = usable[n % len(usable)]
        caller = self.authenticate(credential)
        assert caller is not None, credential
        return caller, credential.person, credential

    def authenticate(self, credential: Credential) -> Caller | None:
        try:
            return self.runner.run(self.harness.authenticate(credential.text))
        except BaobabError:
            return None

    def get_rank(self, who: int) -> int:
        role = self.roles[who]
        return -1 if role is None else RANK[role]

    @staticmethod
    def is_account(maker: Credential | None) -> bool:
        return maker is None or maker.kind in ("account", "program")

    @staticmethod
    def comes_from(credential: Credential, key: Credential) -> bool:
        maker = credential.maker
        while maker is not None and maker is not key:
            maker = maker.maker
        return maker is key

    def void_credentials(self, which: Any) -> None:
        for credential in self.handed_out:
            if which(credential):
                credential.lives = False


Rights.TestCase.settings = settings(max_examples=12, stateful_step_count=20)
TestRights = Rights.TestCase
