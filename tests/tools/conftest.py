"""An installation in a temporary folder whose clock stands still, and callers who sign up in it."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from baobab import composition
from baobab.runtime import passwords
from baobab.settings import load_settings
from baobab.tools.core.auth.callers import Account, Caller
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.auth.membership import create_organisation_row
from baobab.tools.core.auth.tables import accounts, apps
from baobab.tools.core.context import RequestContext
from baobab.tools.core.registry import Registry
from baobab.tools.core.services import Services
from tests.backends import prepare_data, read_database, release_data
from tests.clock import FixedClock

PASSWORD = "correct Horse 7!"
_ENCODED: dict[int, str] = {}
"""PASSWORD's hash by the memory that it was made with."""


@dataclass
class ToolHarness:
    """Services and registry, used as an interface uses them."""

    services: Services
    registry: Registry
    clock: FixedClock
    data: Path
    _requests: Any = field(default_factory=itertools.count)

    async def call(self, tool: str, by: Caller = ANONYMOUS, *, ip: str | None = None, **arguments: Any) -> Any:
        """Call a tool; each call from an address of its own unless one is named, so that limits do not interfere."""
        request = str(next(self._requests))
        context = RequestContext("test", request, ip=ip or f"address {request}")
        result = await self.registry.call(tool, arguments, by, context)
        # What does not fit the declared type would be a warning here, and warnings are errors.
        self.registry.find(tool).encode(result)
        return result

    async def authenticate(self, token: str, **headers: Any) -> Caller:
        return await self.services.credentials.caller(b"Bearer " + token.encode(), **headers)

    async def sign_up(self, email: str) -> Account:
        """An account with PASSWORD and its token, without the work that the tools do for a password."""
        cost = passwords.hasher.memory_cost
        if cost not in _ENCODED:
            _ENCODED[cost] = await passwords.hash_password(PASSWORD)
        name, account_id = email.partition("@")[0], self.services.ids.uuid()
        row = {"id": account_id, "email": email, "name": name, "password_hash": _ENCODED[cost]}
        async with self.services.database.writing() as connection:
            await connection.execute(insert(accounts), {**row, "created_at": self.clock.now()})
            home = await create_organisation_row(connection.execute, self.services, name, account_id, personal=True)
        return Account(account_id, home["id"])

    async def join(self, organization_id: str, by: Account, email: str, role: str) -> Account:
        """Sign somebody up and make them a member."""
        who = await self.sign_up(email)
        result = await self.call("organisations_invite", by, organization_id=organization_id, email=email, role=role)
        await self.call("organisations_accept_invitation", who, token=result["token"])
        return who

    async def create_organisation(self, owner: Account, name: str = "Engines") -> str:
        organisation_id: str = (await self.call("organisations_create", owner, name=name))["id"]
        return organisation_id

    async def create_app_row(self, organization_id: str, app_id: str = "app_000000000001") -> str:
        """An app's row, where a test is about who may do what and not about apps."""
        now = self.clock.now()
        row = {"id": app_id, "organisation_id": organization_id, "name": app_id, "subdomain": app_id.replace("_", "-")}
        row |= {"region": "local", "anon_key": f"anon {app_id}", "function_key": "", "function_key_digest": app_id}
        rest = {"allowed_origins": [], "storage_config": {}, "jwt_config": {}, "created_at": now, "updated_at": now}
        async with self.services.database.writing() as connection:
            await connection.execute(insert(apps), {**row, **rest})
        return app_id

    def read_database(self) -> bytes:
        """Every byte that the database has written."""
        return read_database(self.data)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    clock = FixedClock()
    async with composition.open_application(
        load_settings(prepare_data(tmp_path), data=tmp_path), clock=clock
    ) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)
