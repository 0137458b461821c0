"""Labels of approvals: what a call is about and who proposed it, in words for the person who decides."""

import json
import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.spec.asks import is_sure
from baobab.storage.sql.database import Execute
from baobab.tools.approvals.schemas import Asker
from baobab.tools.approvals.service import service_of
from baobab.tools.core import AppNotFound, Services
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.names import find_name
from baobab.tools.core.auth.tables import accounts, api_keys
from baobab.tools.core.call import Tool
from baobab.tools.core.guard.escaping import escape_name, escape_text
from baobab.tools.core.guard.titles import TitlePart, is_plain, split_quoted
from baobab.tools.core.guard.wording import BUTTON, COUNTED, EXCERPT, LABELLED, OUTCOME, TITLE, quote_text

_TELLING = ("key", "name", "tool", "email", "filename", "table", "table_name")
_MOST = 120
_REMOTE, _APPROVE = "mcp_servers_call", "Approve"
_MOST_OF_BUTTON = 40
_FIRST_CLAUSE = re.compile(r"[,;:.](?:\s|$)")
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\$")


class ApprovalLabels:
    """Writes the labels of approvals. It looks each name up only once."""

    def __init__(self, tools: Mapping[str, Tool], services: Services, execute: Execute) -> None:
        self._tools = tools
        self._services = services
        self._execute = execute
        self._labels: dict[tuple[str, str], str | None] = {}

    def title(self, row: Any, *, is_outsider: bool = False) -> list[TitlePart]:
        """Returns a title in its parts: the one that the graph's author gives, or what the tool says that the call
        does, or else the first clause of its description and the argument that says most.

        is_outsider: whether it is for somebody who does not see what is stored with the right that the call uses.
        """
        tool = self._tools.get(row.tool)
        fields = dict(service_of(self._services).texts.render_fields(row, tool))
        if TITLE in fields:
            return [(text, own) for text, own in json.loads(fields[TITLE])]
        if LABELLED in fields and not (is_outsider and row.app_right is not None):
            return split_quoted(fields[LABELLED])
        if OUTCOME in fields:
            return split_quoted(fields[OUTCOME])
        if row.tool == "interrupt":
            reason = _cut(fields.get("reason", ""))
            return split_quoted(f"Answer a question: {reason}" if reason else "Answer a question")
        summary = row.tool if tool is None else tool.summary
        words = re.split(r"[;:.](?:\s|$)", summary, maxsplit=1)[0].replace("`", "")
        counts = [fields[name] for name in fields if name.endswith(COUNTED)]
        subjects = [_cut(fields[name]) for name in _TELLING if name in fields]
        if is_sure(row.effect):
            subjects = [text for text in subjects if is_plain(text.strip('"'))]
        subject = next(iter((*counts, *subjects)), "")
        return split_quoted(f"{words}: {subject}" if subject else words)

    def button(self, row: Any) -> str:
        """Returns what a button says that approves the call. Nothing in it is a stranger's but a number."""
        fields = dict(service_of(self._services).texts.render_fields(row, self._tools.get(row.tool)))
        tool = self._tools.get(row.tool)
        if BUTTON in fields:
            return fields[BUTTON]
        if TITLE in fields:
            return str(json.loads(fields[TITLE])[0][0]).rstrip(": ")
        if row.tool == "interrupt" or tool is None:
            return "Answer" if tool is not None else _APPROVE
        if row.tool == _REMOTE:
            name = fields.get("tool", "").strip('"')
            return f"Call {name}" if is_plain(name) else _APPROVE
        words = _FIRST_CLAUSE.split(tool.summary, maxsplit=1)[0].replace("`", "")
        return words if len(words) <= _MOST_OF_BUTTON else _APPROVE

    def excerpt(self, row: Any) -> str | None:
        """Returns one line of the text that a call proposes, which is a stranger's; None if it proposes none."""
        fields = service_of(self._services).texts.render_fields(row, self._tools.get(row.tool))
        return dict(fields).get(EXCERPT)

    async def app(self, row: Any) -> str | None:
        if row.app_id is None:
            return None
        try:
            return escape_text((await self._services.directory.app(row.app_id)).title)
        except AppNotFound:
            return None

    async def asker(self, row: Any) -> Asker:
        """Says who proposed the call, in parts. For a run, that is who started it."""
        asker = await self._asker(row)
        if row.caller.get("trigger"):
            asker["trigger"] = row.caller["trigger"]
        return asker

    async def _asker(self, row: Any) -> Asker:
        caller, account = row.caller, await self._account(row.account_id)
        kind, key_id = caller.get("kind"), caller.get("key_id")
        if (user_id := proposers.find_user(caller)) is not None:
            return {"kind": "user", "name": escape_text(user_id), "account": None, "door": row.door}
        if kind == "anonymous":
            return {"kind": "visitor", "name": None, "account": None, "door": row.door}
        if key_id is None:
            return {"kind": "account", "name": None, "account": account, "door": row.door}
        name = await self._key(key_id)
        return {
            "kind": "key",
            "name": None if name is None else escape_text(name),
            "account": account,
            "door": row.door,
        }

    async def asked_by(self, row: Any) -> str:
        """Says the same in a phrase, in which names that are no plain words are quoted."""
        asker = await self.asker(row)
        match asker["kind"]:
            case "user":
                proposer = f"the app's user {escape_name(str(row.caller['user_id']))}"
            case "visitor":
                proposer = "a visitor of the app, who is not signed in"
            case "account":
                proposer = asker["account"] or ""
            case "key":
                name = await self._key(row.caller["key_id"])
                key = "a key that is revoked," if name is None else f"the key {escape_name(name)}"
                proposer = f"{key} of {asker['account']}"
        if row.caller.get("trigger"):
            proposer = f"trigger:{row.caller['trigger']}, with the right of {proposer},"
        return f"the agent {escape_name(row.agent)}, in a run that {proposer} started" if row.agent else proposer

    async def asks(self, row: Any) -> str:
        """Says who asks in a word or two: the agent, the key by its name, or the person."""
        if row.agent:
            return escape_text(row.agent)
        asker = await self.asker(row)
        return asker["name"] or asker["account"] or "a visitor"

    async def credential(self, name: str) -> str | None:
        """Returns the name behind a credential, such as `key:<id>`; None if it is gone."""
        if ("credential", name) not in self._labels:
            self._labels["credential", name] = await find_name(self._execute, name)
        return self._labels["credential", name]

    async def _account(self, account_id: str) -> str:
        if ("account", account_id) not in self._labels:
            query = select(accounts.c.name, accounts.c.email).where(accounts.c.id == account_id)
            account_row = (await self._execute(query)).first()
            words = (
                "an account that is gone"
                if account_row is None
                else f"{escape_text(account_row.name)} ({account_row.email})"
            )
            self._labels["account", account_id] = words
        return self._labels["account", account_id] or ""

    async def _key(self, key_id: str) -> str | None:
        if ("key", key_id) not in self._labels:
            query = select(api_keys.c.name).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            name = (await self._execute(query)).scalar()
            self._labels["key", key_id] = name
        return self._labels["key", key_id]


def _cut(text: str) -> str:
    """Cuts JSON so that what the proposer chose still ends where its quotes do."""
    if len(text) <= _MOST:
        return text
    cut = text[:_MOST]
    if not text.startswith('"'):
        return quote_text(cut)
    # If an escape were cut in half, the closing quote would become a part of the text.
    return _HALF_ESCAPE.sub(r"\1", cut) + '…"'
