"""Labels of approvals: what a call is about and who proposed it, in words for the person who decides."""

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from baobab.storage.database import Execute
from baobab.tools.approvals.service import service_of
from baobab.tools.core.auth.tables import accounts, api_keys
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import AppNotFound
from baobab.tools.core.escaping import escape_name, escape_text
from baobab.tools.core.services import Services
from baobab.tools.core.wording import COUNTED

_TELLING = ("key", "name", "tool", "email")
_MOST = 120


class ApprovalLabels:
    """Writes the labels of approvals. It looks each name up only once."""

    def __init__(self, tools: Mapping[str, Tool], services: Services, execute: Execute) -> None:
        self._tools = tools
        self._services = services
        self._execute = execute
        self._known: dict[tuple[str, str], str | None] = {}

    def title(self, row: Any) -> str:
        """Returns a title: the first clause of the tool's description and the argument that says most."""
        tool = self._tools.get(row.tool)
        fields = dict(service_of(self._services).render_fields(row, tool))
        if row.tool == "interrupt":
            asked = _cut(fields.get("reason", ""))
            return f"Answer a question: {asked}" if asked else "Answer a question"
        summary = row.tool if tool is None else tool.summary
        words = re.split(r"[;:.](?:\s|$)", summary, maxsplit=1)[0].replace("`", "")
        counted = (name for name in fields if name.endswith(COUNTED))
        about = next((_cut(fields[name]) for name in (*counted, *_TELLING) if name in fields), "")
        return f"{words}: {about}" if about else words

    async def app(self, row: Any) -> str | None:
        if row.app_id is None:
            return None
        try:
            return escape_text((await self._services.directory.app(row.app_id)).name)
        except AppNotFound:
            return None

    async def asker(self, row: Any) -> str:
        """Says who proposed the call: a visitor, a user, a person or a key. For a run, also who started it."""
        caller, account = row.caller, await self._account(row.account_id)
        kind, key_id = caller.get("kind"), caller.get("key_id")
        if kind == "end_user" or (kind is None and "user_id" in caller):
            who = f"the app's user {escape_name(str(caller['user_id']))}"
        elif kind == "anonymous":
            who = "a visitor of the app, who is not signed in"
        elif key_id is None:
            who = account
        else:
            name = await self._key(key_id)
            who = f"the key {name} of {account}" if name else f"a key that is revoked, of {account}"
        return f"the agent {escape_name(row.agent)}, in a run that {who} started" if row.agent else who

    async def _account(self, account_id: str) -> str:
        if ("account", account_id) not in self._known:
            query = select(accounts.c.name, accounts.c.email).where(accounts.c.id == account_id)
            account_row = (await self._execute(query)).first()
            words = (
                "an account that is gone"
                if account_row is None
                else f"{escape_text(account_row.name)} ({account_row.email})"
            )
            self._known["account", account_id] = words
        return self._known["account", account_id] or ""

    async def _key(self, key_id: str) -> str | None:
        if ("key", key_id) not in self._known:
            query = select(api_keys.c.name).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            name = (await self._execute(query)).scalar()
            self._known["key", key_id] = None if name is None else escape_name(name)
        return self._known["key", key_id]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
