"""What waits for a person while a server is upgraded, calls and runs, and whether this version can go on with it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, inspect, select

from baobab.runtime.agents.spec.spec import parse_graph
from baobab.runtime.agents.tables import runs
from baobab.storage.secrets import SecretUnreadable, Vault
from baobab.storage.sql.database import Database
from baobab.tools.approvals.carrying_over import require_makeable
from baobab.tools.approvals.errors import CallOutdated
from baobab.tools.approvals.tables import FieldCipher, approvals
from baobab.tools.core.auth import proposers
from baobab.tools.core.call import ToolRunner

# Columns that every version has had, so that a database can be looked at before it is migrated.
_CALL_COLUMNS = ("id", "caller", "tool", "tool_version", "effect", "arguments")
_PENDING_CALLS = select(*(approvals.c[name] for name in _CALL_COLUMNS)).where(approvals.c.status == "pending")
_PAUSED_RUNS = select(runs.c.id, runs.c.agent, runs.c.caller, runs.c.graph_spec).where(runs.c.status == "paused")


@dataclass(frozen=True, slots=True)
class Outdated:
    """A call or run that this version cannot go on with. name: its tool or agent; reason: a sentence."""

    id: str
    name: str
    reason: str
    is_lost: bool = True
    """False if a server of another version may still go on with it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many calls and runs wait, and which of them this version cannot go on with."""

    calls: int = 0
    runs: int = 0
    outdated_calls: Sequence[Outdated] = ()
    outdated_runs: Sequence[Outdated] = ()

    def __add__(self, other: "Waiting") -> "Waiting":
        return Waiting(
            self.calls + other.calls,
            self.runs + other.runs,
            (*self.outdated_calls, *other.outdated_calls),
            (*self.outdated_runs, *other.outdated_runs),
        )

    def describe(self) -> list[str]:
        """Describes it in lines for the operator; nothing if nothing waits."""
        if not self.calls and not self.runs:
            return []
        counts = f"{_count(self.calls, 'call')} and {_count(self.runs, 'run')} wait for a person"
        outdated_ids = (*self.outdated_calls, *self.outdated_runs)
        if not outdated_ids:
            return [f"{counts}; this version can go on with all of them."]
        lines = [f"{counts}; this version cannot go on with {len(outdated_ids)} of them:"]
        return lines + [f"  {each.id} ({each.name}): {each.reason}" for each in outdated_ids]


async def survey_calls(database: Database, vault: Vault, registry: ToolRunner, now: datetime) -> Waiting:
    """Looks at the calls that wait. The database may be of an earlier revision."""
    rows = await _read(database, approvals.name, _PENDING_CALLS.where(approvals.c.expires_at > now))
    seals, outdated_ids = FieldCipher(vault), []
    for row in rows:
        try:
            require_makeable(registry, row, json.loads(seals.open(row.id, "arguments", row.arguments)))
        except proposers.CallerUnreadable as error:
            outdated_ids.append(Outdated(row.id, row.tool, error.message, is_lost=False))
        except CallOutdated as error:
            outdated_ids.append(Outdated(row.id, row.tool, error.message))
        except SecretUnreadable:
            outdated_ids.append(
                Outdated(row.id, row.tool, "The secret key does not open its arguments.", is_lost=False)
            )
    return Waiting(calls=len(rows), outdated_calls=outdated_ids)


async def survey_runs(database: Database) -> Waiting:
    """Looks at the runs of a database that are paused. The database may be of an earlier revision."""
    rows, outdated_ids = await _read(database, runs.name, _PAUSED_RUNS), []
    for row in rows:
        try:
            proposers.read_version(row.caller)
            parse_graph(json.dumps(row.graph_spec, sort_keys=True))
        except proposers.CallerUnreadable as error:
            outdated_ids.append(Outdated(row.id, row.agent, error.message, is_lost=False))
        except ValidationError:
            outdated_ids.append(Outdated(row.id, row.agent, "This version does not read its graph."))
    return Waiting(runs=len(rows), outdated_runs=outdated_ids)


async def _read(database: Database, table: str, query: Any) -> Sequence[Any]:
    async with database.reading() as connection:
        if not await connection.run_sync(lambda sync: _has_table(sync, table)):
            return []
        return (await connection.execute(query)).all()


def _has_table(connection: Connection, table: str) -> bool:
    return inspect(connection).has_table(table)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
