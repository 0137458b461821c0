"""The audit log: one row for each call that is not a read, in the call's transaction. Data writes are counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import Boolean, Column, Index, String, Table, insert

from baobab.storage.cancellation import run_to_completion
from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, DatabaseConnection, DatabaseUnavailable, Unit
from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.tools.core.auth.callers import Account, Caller, EndUser, ScopedKey
from baobab.tools.core.auth.directory import App
from baobab.tools.core.binding import Audit
from baobab.tools.core.context import AuditNote, RequestContext
from baobab.tools.core.errors import BaobabError

audit_logs = Table(
    "audit_logs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("organisation_id", String(36)),
    Column("app_id", String(36)),
    Column("category", String(20), nullable=False),
    Column("event_type", String(80), nullable=False),
    Column("action", String(20), nullable=False),
    Column("resource_type", String(60)),
    Column("resource_id", String(200)),
    Column("actor_type", String(20), nullable=False),
    Column("actor_id", String(60)),
    Column("event_data", Json, nullable=False),
    Column("ip_address", String(60)),
    Column("user_agent", String(300)),
    Column("success", Boolean, nullable=False),
    Column("error_message", String(300)),
    Column("correlation_id", String(80)),
    Column("created_at", Instant, nullable=False),
    Index("ix_audit_logs_organisation_id_created_at", "organisation_id", "created_at"),
)
# Calls that are not about an app have no place in this index, which would cost each of them a page of its own.
_OF_APP = audit_logs.c.app_id.is_not(None)
Index(
    "ix_audit_logs_app_id_created_at",
    audit_logs.c.app_id,
    audit_logs.c.created_at,
    sqlite_where=_OF_APP,
    postgresql_where=_OF_APP,
)
_INSERT = insert(audit_logs)


class _Recording(Protocol):
    """A toolset as the audit log sees it: whether it records its refusals itself."""

    @property
    def keeps_failures(self) -> str | None: ...


class _AuditedTool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def audit(self) -> Audit | None: ...

    @property
    def toolset(self) -> _Recording: ...


class AuditedCall(Protocol):
    """A call as the audit log sees it. `Call` is one; it finds the audit log among its services, so it is not named."""

    @property
    def tool(self) -> _AuditedTool: ...

    @property
    def caller(self) -> Caller: ...

    @property
    def context(self) -> RequestContext: ...

    @property
    def app(self) -> App | None: ...

    @property
    def approval_id(self) -> str | None: ...

    @property
    def app_right(self) -> Mapping[str, Any] | None: ...

    @property
    def audit(self) -> AuditNote: ...

    @property
    def noted_organisation_id(self) -> str | None: ...

    @property
    def unit(self) -> Unit: ...


@dataclass(slots=True)
class _Tally:
    row: dict[str, Any]
    count: int
    last_at: float


_READ = Audit("tool.read", action="read")


class AuditLog:
    """Writes one row for each call that changes settings, and one row with a count for many calls that write data.

    Tallies are written each second and at shutdown; a kill loses at most that second's counts, never a row.
    """

    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._tallies: dict[tuple[str | None, ...], _Tally] = {}

    async def record(self, call: AuditedCall, arguments: dict[str, Any]) -> None:
        """Adds the row of a call that succeeded, in the call's own transaction."""
        if not call.audit.nothing_done:
            await call.unit.write(_INSERT, self._row(call, arguments, None))

    def tally(self, call: AuditedCall, arguments: dict[str, Any], error: BaobabError | None = None) -> None:
        """Counts a call that succeeded, or failed with an error."""
        acted_for = call.caller.user_id if isinstance(call.caller, EndUser) else None
        app_id = call.app.id if call.app else None
        code = None if error is None else error.code
        subject = (_organisation(call), app_id, call.tool.name, call.caller.actor_id, acted_for, code)
        tally = self._tallies.get(subject)
        if tally is None:
            row = self._row(call, arguments, None if error is None else error.message)
            if error is not None:
                row["event_data"]["code"] = error.code
            self._tallies[subject] = _Tally(row, 1, self._clock.time())
        else:
            tally.count += 1
            tally.last_at = self._clock.time()

    async def record_failure(self, call: AuditedCall, arguments: dict[str, Any], error: BaobabError) -> None:
        """Adds the row of a call that its handler refused, in a transaction of its own: the call's was rolled back.

        A call that is tallied when it succeeds is tallied when it fails, except in toolsets that keep their refusals.
        """
        if call.tool.audit is None:
            return
        if not call.tool.audit.tallied:
            async with self._database.writing(lock=None) as connection:
                await connection.execute(_INSERT, self._row(call, arguments, error.message))
        elif call.tool.toolset.keeps_failures is None:
            self.tally(call, arguments, error)

    async def record_proposal(self, connection: DatabaseConnection | Unit, call: AuditedCall, approval_id: str) -> None:
        """Adds the row of a call that now waits for approval."""
        row = self._row(call, {}, None)
        row |= {"event_type": "approval.request", "resource_type": "approval", "resource_id": approval_id}
        await connection.execute(_INSERT, row)

    async def record_operator(
        self,
        unit: Unit,
        event: str,
        organisation_id: str,
        resource: str,
        resource_id: str,
        data: Mapping[str, Any],
        *,
        app_id: str | None = None,
        by_itself: bool = False,
    ) -> None:
        """Adds the row of an operator's change to an organisation, made by the command line without a credential.

        app_id: the app that it was about. by_itself: whether nobody made the change: the actor is then the system.
        """
        row = {
            "id": self._ids.uuid(),
            "organisation_id": organisation_id,
            "category": "admin",
            "event_type": event,
            "action": "update",
            "resource_type": resource,
            "resource_id": resource_id,
            "app_id": app_id,
            "actor_type": "system" if by_itself else "operator",
            "event_data": dict(data) if by_itself else {"door": "cli", **data},
            "ip_address": "local",
            "success": True,
            "created_at": self._clock.now(),
        }
        await unit.write(_INSERT, row)

    async def flush(self) -> None:
        # Runs to its end even if cancelled: the counts are no longer in memory, and not in the database yet.
        await run_to_completion(self._flush())

    async def _flush(self) -> None:
        tallies, self._tallies = self._tallies, {}
        try:
            await self._write(tallies.values())
        except DatabaseUnavailable:
            # The counts are kept, and added to, until the database answers again.
            for subject, tally in self._tallies.items():
                if subject in tallies:
                    tallies[subject].count += tally.count
                    tallies[subject].last_at = tally.last_at
                else:
                    tallies[subject] = tally
            self._tallies = tallies
            raise

    async def _write(self, tallies: Iterable[_Tally]) -> None:
        rows = []
        for tally in tallies:
            # The row counts many calls, so it must not name the resource of the first.
            details = {
                name: value for name, value in tally.row["event_data"].items() if name in ("tool", "as_user", "code")
            }
            tally.row["event_data"] = {
                **details,
                "count": tally.count,
                "last_at": datetime.fromtimestamp(tally.last_at, UTC).isoformat(),
            }
            tally.row["resource_id"] = None
            rows.append(tally.row)
        if rows:
            async with self._database.writing(lock=None) as connection:
                await connection.execute(_INSERT, rows)

    def _row(self, call: AuditedCall, arguments: dict[str, Any], failure: str | None) -> dict[str, Any]:
        # A read has no audit settings of its own, but an agent's graph may make it wait for approval.
        audit, note, caller = call.tool.audit or _READ, call.audit, call.caller
        # A key that acts for a user is the actor; whom it acted for is part of what it did.
        acted_for = {"as_user": caller.user_id} if isinstance(caller, EndUser) and caller.key_id else {}
        approval: dict[str, Any] = {"approval_id": call.approval_id} if call.approval_id else {}
        if call.app_right is not None:
            approval["right"] = dict(call.app_right)
        return {
            "id": self._ids.uuid(),
            "organisation_id": _organisation(call),
            "app_id": call.app.id if call.app else note.app_id,
            "category": audit.category,
            "event_type": (audit.failure_event or f"{audit.event}_failed") if failure else audit.event,
            "action": audit.action,
            "resource_type": audit.resource,
            "resource_id": note.resource_id,
            "actor_type": note.actor or caller.actor,
            "actor_id": note.actor_id or caller.actor_id,
            "event_data": {"tool": call.tool.name, "door": call.context.name, **acted_for, **approval, **note.data},
            "ip_address": call.context.ip,
            "user_agent": call.context.user_agent[:300],
            "success": failure is None,
            "error_message": failure and failure[:300],
            "correlation_id": call.context.request_id[:80],
            "created_at": self._clock.now(),
        }


def _organisation(call: AuditedCall) -> str | None:
    """Returns the organisation in whose audit log a call is recorded; None if the call belongs to no organisation."""
    noted_id, app, caller = call.noted_organisation_id, call.app, call.caller
    if noted_id or app is not None:
        return noted_id or (app.organisation_id if app is not None else None)
    return caller.organisation_id if isinstance(caller, (Account, ScopedKey)) else None
