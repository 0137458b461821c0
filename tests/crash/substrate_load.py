"""Callers that propose to one substrate, undo and decide, whatever happens to the servers; and what they were told."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aiohttp
from sqlalchemy import select, update

from baobab.storage.clock import SystemClock
from baobab.storage.sql.database import Database
from baobab.tools.substrate import tables
from baobab.tools.substrate.forgetting import ERASED
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.tools.substrate.checker import find_faults

SECRET = "correct horse battery"
_AT_ONCE = 6
_SHARED = ("ent_shared-0", "ent_shared-1")
"""Everybody changes these two."""
_EXPECTED = {200, 409, 429, 503}
_PAUSE_SECONDS = 0.05
"""Between two actions of a caller, whose key may make so many a minute."""


@dataclass
class Receiver:
    """An outbox target. bodies: what it took, by delivery."""

    bodies: dict[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        delivery = dict(scope["headers"])[b"x-platform-delivery"].decode()
        self.bodies[delivery] = message["body"].decode()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class SubstrateLoad:
    session: aiohttp.ClientSession
    organisation_id: str
    headers: dict[str, str]
    dice: random.Random
    acknowledged_actions: dict[str, str] = field(default_factory=dict)
    """By action, its capability: what a server said is done."""
    waiting: set[str] = field(default_factory=set)
    undone_ids: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    """By key of idempotency, the action."""
    forgotten_ids: set[str] = field(default_factory=set)
    approval_counts: Counter[str] = field(default_factory=Counter)
    """How many actions of a capability were approved right after they were proposed."""
    number: int = 0
    _callers: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def create(
        cls, session: aiohttp.ClientSession, server: ServerProcess, receiver: str, dice: random.Random
    ) -> "SubstrateLoad":
        """With a key of the substrate, an outbox target, a rule that is due again and again, and two entities."""
        load = cls(session, "", {}, dice)
        created_key = await load.require(server, "POST", "/api-keys", {"name": "load", "scope": "substrate"})
        load.headers = {"Authorization": f"Bearer {created_key['key']}"}
        base = "/v1/me/substrate"
        target = {"webhook_url": receiver, "signing_secret": SECRET}
        await load.require(server, "PUT", f"{base}/outbox-targets/record_decision", target)
        rule = {
            "name": "Tick",
            "trigger_cron": "* * * * *",
            "condition_mode": "row_query",
            "condition": {"table": "entities", "where": {"==": [{"var": "type"}, "self"]}, "limit": 1},
            "action_capability": "record_learning",
            "action_payload_template": {"title": "Tick", "description": "{{now}}"},
        }
        await load.require(server, "POST", f"{base}/attention-rules", rule)
        for entity_id in _SHARED:
            payload = {"type": "person", "display_name": "Shared", "id": entity_id}
            await load.propose(server, "upsert_entity", payload)
        # Nobody undoes these two.
        load.acknowledged_actions.clear()
        load.organisation_id = (await load.require(server, "GET", f"{base}/settings"))["organization_id"]
        return load

    async def require(self, server: ServerProcess, method: str, path: str, body: Any = None) -> Any:
        status, answer_json = await self.ask(server, method, path, body)
        assert status in (200, 201), answer_json
        return answer_json

    async def ask(self, server: ServerProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.session.request(method, server.address + path, json=body, headers=self.headers) as answer:
            return answer.status, await answer.json()

    async def propose(self, server: ServerProcess, capability: str, payload: Any, key: str | None = None) -> None:
        body = {"capability": capability, "payload": payload, "idempotency_key": key}
        status, answer_json = await self.ask(server, "POST", "/v1/me/substrate/actions/propose", body)
        assert status in _EXPECTED, answer_json
        if status != 200:
            return
        if key is not None:
            assert self.keys.setdefault(key, answer_json["action_id"]) == answer_json["action_id"], (
                "a key stands for two actions"
            )
        if answer_json["requires_approval"]:
            self.waiting.add(answer_json["action_id"])
        else:
            self.acknowledged_actions[answer_json["action_id"]] = capability
            self.undone_ids |= set((answer_json["result"] or {}).get("reverted", ()))

    @contextlib.asynccontextmanager
    async def run(self, server: ServerProcess) -> AsyncIterator[None]:
        """Callers that go on until the server is gone."""
        dices = [random.Random(self.dice.random()) for _ in range(_AT_ONCE)]
        self._callers = [asyncio.create_task(self._work(server, dice)) for dice in dices]
        try:
            yield
        finally:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*self._callers)

    async def wait_for_actions(self, count: int) -> None:
        target_count = len(self.acknowledged_actions) + count
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.acknowledged_actions) < target_count and not any(caller.done() for caller in self._callers):
                await asyncio.sleep(0.02)

    async def _work(self, server: ServerProcess, dice: random.Random) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            while True:
                await self._act(server, dice)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _act(self, server: ServerProcess, dice: random.Random) -> None:
        self.number += 1
        kind, number = dice.random(), self.number
        if kind < 0.25:
            payload = {"title": f"Decision {number}", "kind": "operational"}
            await self.propose(server, "record_decision", payload, f"key-{number - number % 2}")
        elif kind < 0.45:
            # Two callers at one entity, which both of them change in part.
            changing: Any = {"id": dice.choice(_SHARED), "attrs_patch": {f"n{number % 7}": number}}
            await self.propose(server, "patch_entity", changing)
        elif kind < 0.55:
            payload = {"kind": "note", "title": f"Note {number}", "external_system": "crm"}
            await self.propose(server, "upsert_source_artifact", {**payload, "external_id": str(number % 9)})
        elif kind < 0.65 and self.acknowledged_actions:
            undoing = {"action_id": dice.choice(sorted(self.acknowledged_actions)), "cascade": dice.random() < 0.5}
            await self.propose(server, "revert_action", undoing)
        elif kind < 0.72:
            await self.propose(server, "place_call", {"to": "Ada", "purpose": f"Ask {number}"})
        elif kind < 0.8:
            await self._merge(server, dice)
        elif kind < 0.87:
            await self._forget(server, number)
        elif kind < 0.93:
            await self._import(server, number)
        elif self.waiting:
            await self._decide(server, dice.choice(sorted(self.waiting)), dice.choice(("approve", "reject")))

    async def _decide(self, server: ServerProcess, action_id: str, word: str) -> Any:
        """Decides about a waiting action and returns the answer; None if somebody else has decided or at a limit."""
        status, answer_json = await self.ask(server, "POST", f"/v1/me/substrate/actions/{action_id}/{word}", {})
        assert status in _EXPECTED, answer_json
        if status in (200, 409):
            self.waiting.discard(action_id)
        return answer_json if status == 200 else None

    async def _do(self, server: ServerProcess, capability: str, payload: Any) -> Any:
        """The action of a capability that waits, approved at once; None where it cannot be done now."""
        body = {"capability": capability, "payload": payload}
        status, answer_json = await self.ask(server, "POST", "/v1/me/substrate/actions/propose", body)
        assert status in _EXPECTED | {400, 404}, answer_json
        action = await self._decide(server, answer_json["action_id"], "approve") if status == 200 else None
        self.approval_counts[capability] += action is not None and action["status"] == "executed"
        return action

    async def _merge(self, server: ServerProcess, dice: random.Random) -> None:
        """Merges one of a few entities into another that everybody changes, or takes that back."""
        entity_id = f"ent_pair-{dice.randrange(3)}"
        if dice.random() < 0.5:
            await self.propose(server, "upsert_entity", {"type": "person", "display_name": "Pair", "id": entity_id})
            merging = {"loser_id": entity_id, "winner_id": dice.choice(_SHARED), "reason": "Same."}
            await self._do(server, "merge_entities", merging)
        else:
            await self._do(server, "unmerge_entities", {"entity_id": entity_id, "reason": "Not the same."})

    async def _forget(self, server: ServerProcess, number: int) -> None:
        """Learns something from a file, and forgets it."""
        learning_id = f"lrn_{number:026}"
        await self._import(server, number, table="learnings", row_id=learning_id)
        action = await self._do(server, "forget", {"ids": [learning_id], "reason": "They asked us to."})
        if action is not None and action["status"] == "executed":
            self.forgotten_ids.add(learning_id)

    async def _import(
        self, server: ServerProcess, number: int, table: str = "decisions", row_id: str | None = None
    ) -> None:
        row = {"id": row_id or f"dec_{number:026}", "title": f"From a file {number}"}
        row |= {"kind": "vision"} if table == "decisions" else {"description": "x"}
        headers = {**self.headers, "content-type": "application/x-ndjson"}
        url, line = f"{server.address}/v1/me/substrate/import", json.dumps({"table": table, "row": row})
        async with self.session.post(url, data=line, headers=headers) as answer:
            body = await answer.json()
        assert answer.status in _EXPECTED, body
        if answer.status == 200:
            self.acknowledged_actions[body["action_id"]] = "import_memories"

    async def verify(self, database: Database) -> None:
        """The ledger is consistent, and has everything that was acknowledged."""
        assert await find_faults(database, self.organisation_id) == []
        rows = tables.action_ledger.c
        query = select(rows.id, rows.status).where(rows.organisation_id == self.organisation_id)
        async with database.reading() as connection:
            statuses = {row.id: row.status for row in await connection.execute(query)}
        lost_ids = [each for each in self.acknowledged_actions if statuses.get(each) not in ("executed", "reverted")]
        assert lost_ids == [], "acknowledged actions are lost"
        assert [each for each in self.undone_ids if statuses[each] != "reverted"] == [], "an undo is lost"
        assert self.waiting <= statuses.keys()
        learnings, changes = tables.learnings.c, tables.changes.c
        here = (learnings.organisation_id == self.organisation_id, learnings.id.in_(self.forgotten_ids))
        conditions = (changes.organisation_id == self.organisation_id, changes.row_id.in_(self.forgotten_ids))
        async with database.reading() as connection:
            back = (await connection.execute(select(learnings.id).where(*here))).all()
            images = (await connection.execute(select(changes.before).where(*conditions))).scalars().all()
        assert back == [], "what was forgotten is back"
        assert all(image in (None, ERASED) for image in images), "what was forgotten is kept"

    async def make_rules_due(self, database: Database) -> None:
        rules = tables.attention_rules
        due = SystemClock().now() - timedelta(seconds=1)
        async with database.writing(lock=self.organisation_id) as connection:
            await connection.execute(
                update(rules).where(rules.c.organisation_id == self.organisation_id).values(next_fire_at=due)
            )

    async def count_firings(self, database: Database) -> int:
        """How many ticks there were; each of them is one row with one action."""
        firings, actions = tables.attention_rule_firings.c, tables.action_ledger.c
        async with database.reading() as connection:
            query = select(firings.status, firings.action_ids).where(firings.organisation_id == self.organisation_id)
            rows = (await connection.execute(query)).all()
            which = (actions.organisation_id == self.organisation_id, actions.source_rule_id.is_not(None))
            proposed_ids = set((await connection.execute(select(actions.id).where(*which))).scalars())
        fired_ids = [action_id for row in rows if row.status == "fired" for action_id in row.action_ids]
        assert sorted(fired_ids) == sorted(proposed_ids), "a tick proposed twice, or what it did not record"
        return len(rows)

    async def wait_for_deliveries(self, database: Database) -> dict[str, str]:
        """By delivery, the action of all that the outbox holds, as soon as none is pending."""
        rows = tables.outbox.c
        query = select(rows.delivery_id, rows.action_id, rows.state).where(rows.organisation_id == self.organisation_id)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                async with database.reading() as connection:
                    delivery_rows = (await connection.execute(query)).all()
                if all(row.state == "delivered" for row in delivery_rows):
                    return {row.delivery_id: row.action_id for row in delivery_rows}
                await asyncio.sleep(0.2)
