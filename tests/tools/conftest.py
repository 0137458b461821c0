"""A house on a temporary folder whose clock stands still, and callers who sign up in it."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from baobab.storage.clock import Ids
from baobab.storage.database import Database
from baobab.storage.kv.memory import MemoryEngine
from baobab.storage.notices import Notices
from baobab.storage.secrets import Vault, new_key
from baobab.storage.tables import metadata
from baobab.tools.accounts.tools import accounts
from baobab.tools.api_keys.tools import api_keys
from baobab.tools.audit import Trail
from baobab.tools.call import Door
from baobab.tools.callers import Account, Caller
from baobab.tools.credentials import ANONYMOUS, Credentials
from baobab.tools.directory import Directory
from baobab.tools.failures import Failures
from baobab.tools.limits import RateLimits
from baobab.tools.organisations.tools import organisations
from baobab.tools.platform_tables import apps
from baobab.tools.registry import Registry
from baobab.tools.services import Options, Services, Stores
from baobab.tools.signing import Signers
from sqlalchemy import insert

from tests.clock import FixedClock

PASSWORD = "correct Horse 7!"


@dataclass
class House:
    """Services and registry, used as a door uses them."""

    services: Services
    registry: Registry
    clock: FixedClock
    _requests: Any = field(default_factory=itertools.count)

    async def use(self, tool: str, by: Caller = ANONYMOUS, *, ip: str | None = None, **arguments: Any) -> Any:
        """Call a tool; each call from an address of its own unless one is named, so that limits do not interfere."""
        request = str(next(self._requests))
        door = Door("test", request, ip=ip or f"address {request}")
        result = await self.registry.call(tool, arguments, by, door)
        # What does not fit the declared type would be a warning here, and warnings are errors.
        self.registry.find(tool).encode(result)
        return result

    async def bearer(self, token: str, **headers: bytes) -> Caller:
        return await self.services.credentials.caller(b"Bearer " + token.encode(), **headers)

    async def sign_up(self, email: str) -> Account:
        await self.use("platform_signup", email=email, password=PASSWORD, name=email.partition("@")[0])
        signed_in = await self.use("platform_login", email=email, password=PASSWORD)
        caller = await self.bearer(signed_in["token"])
        assert isinstance(caller, Account)
        return caller

    async def join(self, organization_id: str, by: Account, email: str, role: str) -> Account:
        """Sign somebody up and make them a member."""
        who = await self.sign_up(email)
        invited = await self.use("organisations_invite", by, organization_id=organization_id, email=email, role=role)
        await self.use("organisations_accept_invitation", who, token=invited["token"])
        return who

    async def organisation(self, owner: Account, name: str = "Engines") -> str:
        made: str = (await self.use("organisations_create", owner, name=name))["id"]
        return made

    async def app(self, organization_id: str, app_id: str = "app_000000000001") -> str:
        """An app's row, where a test is about who may do what and not about apps."""
        now = self.clock.now()
        row = {"id": app_id, "organisation_id": organization_id, "name": app_id, "subdomain": app_id.replace("_", "-")}
        row |= {"region": "local", "anon_key": f"anon {app_id}", "function_key": "", "function_key_digest": app_id}
        rest = {"allowed_origins": [], "storage_config": {}, "jwt_config": {}, "created_at": now, "updated_at": now}
        async with self.services.database.writing() as connection:
            await connection.execute(insert(apps), {**row, **rest})
        return app_id

    def kept(self) -> bytes:
        """Every byte that the database has written."""
        path = self.services.database.path
        return b"".join(file.read_bytes() for file in path.parent.glob(path.name + "*"))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    clock, ids, vault = FixedClock(), Ids(), Vault([new_key()])
    database = Database(tmp_path / "baobab.db")
    await database.open()
    async with database.writing() as connection:
        await connection.run_sync(metadata.create_all)
    notices = Notices(database, clock, ids)
    directory = Directory(database, clock, notices)
    signers = Signers(database, clock, ids, vault, notices)
    services = Services(
        options=Options("http://localhost", "localhost", "playground", "local", signup_open=True),
        clock=clock,
        ids=ids,
        vault=vault,
        database=database,
        regions={"local": Stores(database, MemoryEngine(clock.time))},
        notices=notices,
        limits=RateLimits(),
        directory=directory,
        signers=signers,
        credentials=Credentials(directory, signers, clock, notices),
        trail=Trail(database, clock, ids),
        failures=Failures(database, clock),
        outgoing=None,  # type: ignore[arg-type]
    )
    yield House(services, Registry([accounts, organisations, api_keys]).bind(services), clock)
    await database.close()
