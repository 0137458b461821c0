"""An app whose users sign in."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account
from tests.jobs import run_due_jobs
from tests.tools.conftest import ToolHarness

PASSWORD = "correct Horse 7!"
EMAIL = "ada@example.com"


@dataclass
class UsersHarness:
    """Calls the tools of sign-in for one app, each from an address of its own unless one is named."""

    tools: ToolHarness
    owner: Account
    app_id: str

    async def call(self, tool: str, *by: Any, **arguments: Any) -> Any:
        return await self.tools.call(tool, *by, app_id=self.app_id, **arguments)

    async def sign_up(self, email: str = EMAIL, password: str = PASSWORD) -> Any:
        user = (await self.call("auth_signup", email=email, password=password))["user"]
        # So that the mail of the sign-up is older than the next.
        self.tools.clock.advance(1)
        return user

    async def log_in(self, email: str = EMAIL, password: str = PASSWORD) -> Any:
        return await self.call("auth_login", email=email, password=password)

    async def authenticate(self, tokens: Any) -> Any:
        return await self.tools.authenticate(tokens["access_token"])

    async def list_mails(self, email: str = EMAIL) -> list[Any]:
        """The mails to an address, the newest first, when every job is done."""
        await run_due_jobs(self.tools)
        outbox = await self.call("mail_outbox_list", self.owner)
        return [mail for mail in outbox["mails"] if mail["to"] == email]

    async def read_code(self, email: str = EMAIL) -> str:
        match = re.search(r"^    (\d{6})$", (await self.list_mails(email))[0]["text"], re.MULTILINE)
        assert match
        return match[1]


@pytest.fixture
async def people(harness: ToolHarness) -> UsersHarness:
    owner = await harness.sign_up("owner@example.com")
    return UsersHarness(harness, owner, await harness.create_app_row(owner.organisation_id))
