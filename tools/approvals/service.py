"""Approvals: a call that its credential's policy does not allow at once waits as a row until a person decides.

An approved call runs exactly once. The row is bound to who proposed the call, to the tool and its version, and to the
arguments. Its states:

    pending -> approved -> executed | failed
    pending -> rejected | expired

A decision is one compare-and-set. What follows from it is the executor's (tools/approvals/executor.py).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Select, and_, delete, func, insert, or_, select, update

from baobab.storage.clock import Clock, Ids
from baobab.storage.database import Database, DatabaseConnection, Execute, Unit
from baobab.storage.secrets import Vault
from baobab.tools.approvals.erasing import erase_calls, find_naming
from baobab.tools.approvals.executor import Executor, job_id_of
from baobab.tools.approvals.notices.tables import notice_settings
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.core.approvals import (
    ApprovalExpired,
    CallFailed,
    Decision,
    Edit,
    EditsTakeOne,
    TooLargeToPropose,
    TooManyPending,
)
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Account, AppKey, Caller, EndUser, Limits
from baobab.tools.core.auth.deciders import Decider, NeedsAnother, PendingDecision, person
from baobab.tools.core.auth.tables import members
from baobab.tools.core.errors import ApprovalRejected, ApprovalRequired, BaobabError
from baobab.tools.core.jobs import Jobs
from baobab.tools.core.services import Services
from baobab.tools.core.steps import ENDED
from baobab.tools.core.wording import Fields, describe_call, render_fields

if TYPE_CHECKING:
    from baobab.tools.core.call import Call, Tool

LIFETIME = timedelta(hours=24)
COLLECTABLE = timedelta(hours=24)
"""How long an outcome is kept for the caller who proposed the call; after that, the same call is a new proposal."""
MOST_PENDING = 1000
MOST_PENDING_OF_ONE = 100
MOST_BYTES = 4 * 2**20
MOST_BYTES_PENDING = 64 * 2**20
"""How many bytes of sealed arguments all waiting calls of an organisation may hold."""
_KEPT = timedelta(days=90)
_ID_LENGTH = 24
_LOOK_SECONDS = 0.5
_FINISHED = ("executed", "failed", "rejected")


class ApprovalService:
    """Keeps proposed calls, records the decisions about them, and returns their outcomes to whoever proposed them."""

    def __init__(
        self, database: Database, clock: Clock, ids: Ids, vault: Vault, audit_log: AuditLog, jobs: Jobs, base_url: str
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._clock = clock
        self._ids = ids
        self._seals = FieldCipher(vault)
        self._audit_log = audit_log
        self._base_url = base_url
        self.executor = Executor(database, clock, self._seals, base_url)

    def approval_url(self, approval_id: str) -> str:
        """Returns the address of the page on which a person decides."""
        return f"{self._base_url}/console/approvals/{approval_id}"

    def arguments(self, row: Any) -> dict[str, Any]:
        """Returns the arguments of the call; an empty object once it can no longer be executed."""
        opened: dict[str, Any] = json.loads(self._seals.open(row.id, "arguments", row.arguments))
        return opened

    def render_fields(self, row: Any, tool: "Tool | None") -> Fields:
        """Returns the arguments of a row as a person reads them.

        tool: None if it no longer exists. Then nobody knows which arguments are secret, and the list is empty.
        """
        if row.fields is not None:
            fields: Fields = json.loads(self._seals.open(row.id, "fields", row.fields))
            return fields
        return [] if tool is None else render_fields(tool, self.arguments(row))

    def summarise(self, row: Any, tool: "Tool | None") -> str:
        """Describes what the call of a row will do, or did. tool: None if it no longer exists."""
        return _describe_row(tool, row, self.render_fields(row, tool))

    def summarise_asked(self, row: Any, tool: "Tool | None") -> str | None:
        """Describes the call as it was proposed, if whoever approved it changed the arguments; else None."""
        if row.asked_fields is None:
            return None
        return _describe_row(tool, row, json.loads(self._seals.open(row.id, "asked_fields", row.asked_fields)))

    def _seal_fields(self, approval_id: str, column: str, fields: Fields) -> str:
        return self._seals.seal(approval_id, column, json.dumps(fields, separators=(",", ":")))

    async def propose(self, call: "Call", arguments: Mapping[str, Any], meaning: str | None = None) -> Any:
        """Returns the result of this call if it was proposed before, approved, and has run. Else it is proposed.

        Raises ApprovalRequired while the call waits, ApprovalRejected if a person refused it, CallFailed if it failed.
        An outcome is handed out once: the same call made again after that is a new proposal. A step of a run gets its
        outcome as often as it asks, and ApprovalExpired if nobody decided.

        meaning: a digest of what the arguments refer to, for tools whose arguments only name it.
        """
        asked = json.dumps(arguments, separators=(",", ":"))
        if len(asked) > MOST_BYTES:
            raise TooLargeToPropose(details={"max_bytes": MOST_BYTES})
        digest = _digest(call, arguments, meaning)
        belongs_to = await proposers.get_owner(call)
        # The same call made twice at once has one outcome, and the caps of an organisation are exact.
        async with self._database.writing_unit(lock=belongs_to[0]) as connection:
            row = await self._find_proposal(connection, call, digest)
            if row is not None and call.context.step is not None and row.status in ("expired", *_FINISHED):
                return self._resolve_step(call, row)
            if row is None:
                values = await self._insert_proposal(connection, call, belongs_to, asked, digest, meaning)
                await call.services.notices.publish(connection, NOTICE, belongs_to[0])
                await self._ask_for_notices(connection, values["id"], belongs_to[0])
                summary = _describe_row(call.tool, SimpleNamespace(**values), render_fields(call.tool, arguments))
                refusal: BaobabError = self._approval_error(values["id"], "pending", summary, values["expires_at"])
            elif row.status in _FINISHED:
                # The outcome is read before it is erased: one that cannot be read is kept.
                result, refused = self._read_outcome(call, row)
                collected = {"collected_at": self._clock.now(), "result": None}
                await connection.execute(update(approvals).where(approvals.c.id == row.id).values(**collected))
                if refused is None:
                    return result
                refusal = refused
            else:
                refusal = self._approval_error(row.id, row.status, self.summarise(row, call.tool), row.expires_at)
        raise refusal

    async def _ask_for_notices(self, unit: Unit, approval_id: str, organisation_id: str) -> None:
        """Asks for people to be told, if any member wants to be."""
        wanted = select(notice_settings.c.account_id).join(
            members, members.c.account_id == notice_settings.c.account_id
        )
        if (await unit.execute(wanted.where(members.c.organisation_id == organisation_id).limit(1))).first() is None:
            return
        arguments, job_id = {"approval_id": approval_id}, f"notices:{approval_id}"
        await self._jobs.enqueue(unit, "notices_plan", arguments, job_id=job_id, tenant=organisation_id)

    def _resolve_step(self, call: "Call", row: Any) -> Any:
        if row.status == "expired":
            raise ApprovalExpired(details={"approval_id": row.id})
        result, refused = self._read_outcome(call, row)
        if refused is not None:
            raise refused
        return result

    async def wait_for_outcome(self, approval_id: str, caller: Caller, seconds: float) -> str | None:
        """Waits until one of the caller's own proposals has an outcome, at most for `seconds`, and returns its status.

        None if the caller has no such proposal, or its outcome has been handed out.
        """
        status = await self._status(approval_id, caller)
        for _ in range(int(seconds / _LOOK_SECONDS)):
            if status not in ("pending", "approved"):
                break
            await asyncio.sleep(_LOOK_SECONDS)
            status = await self._status(approval_id, caller)
        return status

    async def _status(self, approval_id: str, caller: Caller) -> str | None:
        """Returns the status of a proposal of the caller's; None if there is none or its outcome was handed out."""
        matching = (
            approvals.c.id == approval_id,
            approvals.c.proposer == proposers.proposer_name(caller),
            approvals.c.collected_at.is_(None),
        )
        async with self._database.reading() as connection:
            row = (
                await connection.execute(select(approvals.c.status, approvals.c.expires_at).where(*matching))
            ).first()
        if row is None:
            return None
        overdue = row.status == "pending" and row.expires_at <= self._clock.now()
        return "expired" if overdue else str(row.status)

    async def decide(
        self,
        call: "Call",
        approval_id: str,
        decider: Decider,
        status: Literal["approved", "rejected"],
        reason: str | None,
        edit: Edit | None = None,
    ) -> Literal["decided", "waits", "lost"]:
        """Decides a pending approval in the caller's transaction.

        Returns `lost` if somebody else has decided it or it has expired, and `waits` if another person must approve it,
        too. Raises NotYoursToDecide, NotAnApprover, NeedsAnother or EditsTakeOne.
        """
        # Somebody who decides at the same time waits here for the lock, and then sees this decision.
        query = select(approvals).where(approvals.c.id == approval_id).with_for_update()
        row: Any = (await call.execute(query)).one()
        decider.require(gate := PendingDecision.of_approval(row))
        if row.status != "pending" or row.expires_at <= call.now:
            return "lost"
        values: dict[str, Any] = {}
        if status == "approved" and gate.approvers.persons > 1:
            if edit is not None:
                raise EditsTakeOne
            agreed = list(row.agreed or ())
            if (who := person(call.caller)) in agreed:
                raise NeedsAnother(details={"agreed": agreed, "persons": gate.approvers.persons})
            values["agreed"] = [*agreed, who]
            if len(values["agreed"]) < gate.approvers.persons:
                await call.execute(update(approvals).where(approvals.c.id == row.id).values(**values))
                await call.services.notices.publish(call.unit, NOTICE, row.organisation_id)
                return "waits"
        values |= {
            "status": status,
            "decided_at": call.now,
            "decided_by": _decided_by(call.caller),
            "decided_with": proposers.proposer_name(call.caller),
            "reason": reason,
        }
        if edit is not None:
            asked, tool = json.loads(self._seals.open(row.id, "arguments", row.arguments)), call.registry.find(row.tool)
            if edit.whole != asked:
                fields, used = render_fields(tool, edit.whole), json.dumps(edit.given, separators=(",", ":"))
                values |= {
                    "arguments": self._seals.seal(row.id, "arguments", json.dumps(edit.whole, separators=(",", ":"))),
                    "used": self._seals.seal(row.id, "used", used),
                    "asked_fields": self._seal_fields(row.id, "asked_fields", self.render_fields(row, tool)),
                    "fields": self._seal_fields(row.id, "fields", fields),
                    "edited": True,
                }
                details = {"summary": _describe_row(tool, row, fields), "asked": self.summarise(row, tool)}
                call.audit.data |= {"edited": True, **details}
        if status == "rejected":
            values |= {"finished_at": call.now, **self._seals.without_arguments(row.id)}
        pending = (approvals.c.id == row.id, approvals.c.status == "pending", approvals.c.expires_at > call.now)
        if (await call.execute(update(approvals).where(*pending).values(**values))).rowcount != 1:
            return "lost"
        await call.services.notices.publish(call.unit, NOTICE, row.organisation_id)
        if status == "approved":
            await self.executor.ask(call, row.id, row.organisation_id)
        elif row.run_id is not None:
            details = {"approval_id": row.id, "run_id": row.run_id}
            await call.services.jobs.emit(call.unit, ENDED, app_id=row.app_id, data=details)
        return "decided"

    async def read_decision(self, run_id: str, request_id: str) -> Decision | None:
        """Returns the decision about a step of a run; None if nobody has decided."""
        query = select(approvals).where(
            approvals.c.proposer == f"run:{run_id}",
            approvals.c.request_id == request_id,
            approvals.c.decided_with.is_not(None),
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query.order_by(approvals.c.created_at.desc()).limit(1))).first()
        if row is None:
            return None
        approved, used = row.status != "rejected", self.used_arguments(row)
        return Decision(row.id, approved, row.decided_by, row.decided_at, row.reason, list(row.agreed or ()), used)

    def used_arguments(self, row: Any) -> dict[str, Any] | None:
        """Returns the arguments that the approver changed; None if they changed nothing."""
        return None if row.used is None else json.loads(self._seals.open(row.id, "used", row.used))

    async def withdraw_exempt(self, call: "Call", key_id: str, limits: Limits) -> None:
        """Withdraws the pending proposals of a key that the key no longer needs approval for.

        The key now makes such calls at once; one that still waited would be made a second time.
        """
        pending = (approvals.c.proposer == f"key:{key_id}", approvals.c.status == "pending")
        rows = (await call.execute(select(approvals.c.id, approvals.c.tool, approvals.c.effect).where(*pending))).all()
        for approval_id in [row.id for row in rows if not limits.requires_approval(row.tool, row.effect)]:
            values = {
                "status": "rejected",
                "decided_at": call.now,
                "decided_by": call.account.account_id,
                "decided_with": proposers.proposer_name(call.caller),
                "reason": "The key's policy has changed: it need not ask for this any more.",
                "finished_at": call.now,
                **self._seals.without_arguments(approval_id),
            }
            await call.execute(update(approvals).where(approvals.c.id == approval_id, *pending).values(**values))
        await call.services.notices.publish(call.unit, NOTICE, call.account.organisation_id)

    async def abandon(self, run_id: str) -> None:
        """Withdraws the proposals of a run that has ended, unless they were rejected or their call has begun."""
        undecided = (approvals.c.proposer == f"run:{run_id}", approvals.c.status.in_(("pending", "approved")))
        columns = (approvals.c.id, approvals.c.status)
        async with self._database.reading() as connection:
            waiting = (await connection.execute(select(*columns).where(*undecided))).all()
        if not waiting:
            return
        async with self._database.writing(lock=None) as connection:
            # They are read again under a lock: somebody may have decided one in the meantime.
            locked = select(*columns).where(*undecided).order_by(approvals.c.id).with_for_update()
            for approval_id, status in (await connection.execute(locked)).all():
                if status == "approved" and not await self._jobs.withdraw(connection.execute, job_id_of(approval_id)):
                    continue
                values = {
                    "status": "rejected",
                    "reason": "The run that proposed it has ended.",
                    "finished_at": self._clock.now(),
                    **self._seals.without_arguments(approval_id),
                }
                await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))

    async def has_ended(self, run_id: str, request_id: str) -> bool:
        """Whether a call that a run proposed has been made, refused or left to expire."""
        ended = (
            approvals.c.proposer == f"run:{run_id}",
            approvals.c.request_id == request_id,
            approvals.c.finished_at.is_not(None),
        )
        async with self._database.reading() as connection:
            return (await connection.execute(select(approvals.c.id).where(*ended).limit(1))).first() is not None

    async def list_pending_of_runs(self, call: "Call", run_ids: Sequence[str]) -> Sequence[Any]:
        """Lists the pending approvals of runs, oldest first, as the caller's transaction sees them."""
        if not run_ids:
            return []
        pending = select(approvals).where(
            approvals.c.run_id.in_(run_ids),
            approvals.c.proposer.in_([f"run:{run_id}" for run_id in run_ids]),
            approvals.c.status == "pending",
            approvals.c.expires_at > call.now,
        )
        return (await call.execute(pending.order_by(approvals.c.created_at, approvals.c.id))).all()

    async def list_runs_that_wait(self, after: str, most: int) -> list[str]:
        """Lists the ids of runs with a pending proposal, in order: at most `most`, all greater than `after`."""
        waiting = select(approvals.c.run_id).where(approvals.c.status == "pending", approvals.c.run_id > after)
        query = waiting.distinct().order_by(approvals.c.run_id).limit(most)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def list_approved_of_app(self, app_id: str) -> list[str]:
        """Lists the ids of an app's calls that were approved and have not finished."""
        query = select(approvals.c.id).where(approvals.c.app_id == app_id, approvals.c.status == "approved")
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def erase_of_runs(self, execute: Execute, run_ids: Sequence[str]) -> None:
        """Deletes the proposals of runs in the caller's transaction, except those that are still pending."""
        ended = (approvals.c.run_id.in_(run_ids), approvals.c.status != "pending")
        await execute(delete(approvals).where(*ended))

    async def find_naming(self, execute: Execute, organisation_id: str, is_named: Callable[[str], bool]) -> list[str]:
        """Finds the calls of an organisation that are not made yet and whose arguments, as JSON, a function picks."""
        return await find_naming(execute, self._seals, organisation_id, is_named)

    async def erase_calls(self, unit: Unit, services: Services, organisation_id: str, ids: Sequence[str]) -> None:
        """Erases what calls were asked with and what they answered. Those that are not made yet are rejected."""
        await erase_calls(unit, services, self._clock, self._seals, organisation_id, ids)

    async def finish(self, call: "Call", result: Any) -> None:
        """Marks an approved call as executed, in the transaction of its effects."""
        await self.executor.finish(call, result)

    async def tend(self) -> None:
        """Expires overdue proposals, erases results that nobody fetched, and deletes old rows."""
        now = self._clock.now()
        overdue = select(approvals.c.id).where(approvals.c.status == "pending", approvals.c.expires_at <= now)
        async with self._database.reading() as connection:
            expired = (await connection.execute(overdue.limit(100))).scalars().all()
        if expired:
            async with self._database.writing(lock=None) as connection:
                for approval_id in expired:
                    await self._expire(connection, approvals.c.id == approval_id, approval_id)
        uncollected = (approvals.c.result.is_not(None), approvals.c.finished_at <= now - COLLECTABLE)
        past = (approvals.c.created_at < now - _KEPT, approvals.c.status != "approved")
        async with self._database.writing(lock=None) as connection:
            await connection.execute(update(approvals).where(*uncollected).values(result=None))
            await connection.execute(delete(approvals).where(*past))

    async def _expire(self, connection: DatabaseConnection | Unit, which: Any, approval_id: str) -> None:
        values = {"status": "expired", "finished_at": self._clock.now(), **self._seals.without_arguments(approval_id)}
        await connection.execute(update(approvals).where(which, approvals.c.status == "pending").values(**values))

    async def is_approved(self, call: "Call", arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Returns whether this very call was approved, and its outcome has not been handed out."""
        same = self._digest_conditions(call, _digest(call, arguments, meaning))
        approved = approvals.c.status.in_(("approved", "executed", "failed"))
        async with self._database.reading() as connection:
            return (await connection.execute(select(approvals.c.id).where(*same, approved))).first() is not None

    async def has_proposal(self, call: "Call", arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Whether this call was proposed before and still waits, or has an outcome that was not handed out yet."""
        query = select(approvals.c.id).where(*self._match_conditions(call, _digest(call, arguments, meaning))).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    def _match_conditions(self, call: "Call", digest: str) -> tuple[Any, ...]:
        """Builds the conditions that select the row of this call, if it was proposed before."""
        same = self._digest_conditions(call, digest)
        if call.context.step is not None:
            return same
        now = self._clock.now()
        # An outcome is handed out even if the tool has changed since. A call that still waits is of the same version.
        waiting = and_(approvals.c.status == "pending", approvals.c.tool_version == call.tool.version)
        return (
            *same,
            or_(
                and_(waiting, approvals.c.expires_at > now),
                approvals.c.status == "approved",
                and_(approvals.c.status.in_(_FINISHED), approvals.c.finished_at > now - COLLECTABLE),
            ),
        )

    def _digest_conditions(self, call: "Call", digest: str) -> tuple[Any, ...]:
        return (
            approvals.c.proposer == proposers.proposer_name(call.caller, call.context.step),
            approvals.c.tool == call.tool.name,
            approvals.c.arguments_digest == digest,
            approvals.c.collected_at.is_(None),
        )

    async def _find_proposal(self, connection: DatabaseConnection | Unit, call: "Call", digest: str) -> Any:
        """Returns the row in which this call was proposed before; None if the call is new."""
        belonging = self._match_conditions(call, digest)
        if call.context.step is not None:
            return await self._step_row(connection, select(approvals).where(*belonging), self._clock.now())
        first = select(approvals).where(*belonging).order_by(approvals.c.created_at, approvals.c.id).limit(1)
        row = (await connection.execute(first)).first()
        if row is None:
            same = self._digest_conditions(call, digest)
            waiting = (approvals.c.status == "pending", approvals.c.tool_version == call.tool.version)
            overdue = (await connection.execute(select(approvals.c.id).where(*same, *waiting))).scalar()
            if overdue is not None:
                await self._expire(connection, approvals.c.id == overdue, overdue)
        return row

    async def _step_row(self, connection: DatabaseConnection | Unit, same: Select[Any], now: datetime) -> Any:
        row = (await connection.execute(same)).first()
        if row is None or row.status != "pending" or row.expires_at > now:
            return row
        await self._expire(connection, approvals.c.id == row.id, row.id)
        return (await connection.execute(same)).first()

    async def _insert_proposal(
        self,
        connection: DatabaseConnection | Unit,
        call: "Call",
        belongs_to: tuple[str, str],
        asked: str,
        digest: str,
        meaning: str | None,
    ) -> dict[str, Any]:
        (organisation, account), now, step = belongs_to, self._clock.now(), call.context.step
        approval_id, proposer = "appr_" + self._ids.secret(_ID_LENGTH), proposers.proposer_name(call.caller, step)
        await self._require_room(connection, approvals.c.organisation_id == organisation, MOST_PENDING)
        await self._require_room(connection, approvals.c.proposer == proposer, MOST_PENDING_OF_ONE)
        await self._require_bytes(connection, organisation, len(asked))
        values = {
            "id": approval_id,
            "organisation_id": organisation,
            "account_id": account,
            "app_id": call.app.id if call.app else None,
            "proposer": proposer,
            "caller": proposers.encode_caller(call.caller, step.voucher if step else None),
            "tool": call.tool.name,
            "tool_version": call.tool.version,
            "effect": call.effect,
            "door": call.context.name,
            "request_id": call.context.request_id[:80],
            "arguments": self._seals.seal(approval_id, "arguments", asked),
            "arguments_digest": digest,
            "fields": self._seal_fields(approval_id, "fields", render_fields(call.tool, json.loads(asked))),
            "status": "pending",
            "created_at": now,
            "expires_at": now + (LIFETIME if step is None else step.approval_timeout),
            "run_id": step and step.run_id,
            "tainted": step and step.tainted,
            "approvers": step and step.approvers,
            "persons": step and step.persons,
            "starter": step and step.starter,
            "agent": step and step.agent,
            "meaning": meaning,
        }
        await connection.execute(insert(approvals), values)
        await self._audit_log.record_proposal(connection, call, approval_id)
        return values

    async def _require_room(self, connection: DatabaseConnection | Unit, whose: Any, most: int) -> None:
        waiting = (approvals.c.status == "pending", approvals.c.expires_at > self._clock.now())
        if (await connection.execute(select(func.count()).where(whose, *waiting))).scalar_one() >= most:
            raise TooManyPending(details={"limit": most})

    async def _require_bytes(self, connection: DatabaseConnection | Unit, organisation: str, more: int) -> None:
        """Raises TooManyPending if an organisation's waiting calls hold too many bytes of arguments to add `more`."""
        waiting = (approvals.c.organisation_id == organisation, approvals.c.status == "pending")
        size = func.coalesce(func.sum(func.length(approvals.c.arguments)), 0)
        used = int((await connection.execute(select(size).where(*waiting))).scalar_one())
        if used + more > MOST_BYTES_PENDING:
            message = f"The organisation's calls that wait for approval hold {used} bytes."
            raise TooManyPending(message, details={"limit": MOST_BYTES_PENDING, "current": used})

    def _read_outcome(self, call: "Call", row: Any) -> tuple[Any, BaobabError | None]:
        """Returns the outcome of a proposal: its result, or the error that it is refused with."""
        if row.status == "rejected":
            return None, ApprovalRejected(row.reason, details={"approval_id": row.id})
        if row.status == "failed":
            details = {**row.error["details"], "approval_id": row.id, "code": row.error["code"]}
            return None, CallFailed(row.error["message"], remediation=row.error["remediation"], details=details)
        if row.result is None:
            return None, CallFailed(
                "The call was made; its outcome is no longer kept.", details={"approval_id": row.id}
            )
        outcome = self._seals.open(row.id, "result", row.result)
        return None if outcome == "null" else call.tool.decode(outcome), None

    def _approval_error(self, approval_id: str, status: str, summary: str, expires_at: datetime) -> ApprovalRequired:
        return ApprovalRequired(
            details={
                "approval_id": approval_id,
                "status": status,
                "summary": summary,
                "decide_at": self.approval_url(approval_id),
                "expires_at": expires_at.isoformat(),
            }
        )


def _describe_row(tool: "Tool | None", row: Any, fields: Fields) -> str:
    """Describes what the call of a row does, with the arguments as a person reads them."""
    user_id = row.caller.get("user_id") if row.caller.get("kind") == "end_user" else None
    return describe_call(tool, fields, effect=row.effect, tainted=bool(row.tainted), user_id=user_id)


def _decided_by(caller: Caller) -> str | None:
    """Returns the id of the account or of the app's user who decided."""
    if isinstance(caller, (Account, AppKey)):
        return caller.account_id
    return caller.user_id[:36] if isinstance(caller, EndUser) else None


def _digest(call: "Call", arguments: Mapping[str, Any], meaning: str | None) -> str:
    """Computes the digest that is equal for two calls of a tool if they are the same call.

    It contains the caller: a key that acts for one user must not get the outcome of another's call. A run may make the
    same call twice: its steps differ by their own ids.
    """
    step = call.context.step
    asking: Any = proposers.encode_caller(call.caller)
    if step is not None:
        asking = [step.run_id, step.call_id]
        arguments = {name: value for name, value in arguments.items() if name not in step.pins}
    meant = json.dumps(
        [asking, arguments, *([] if meaning is None else [meaning])], sort_keys=True, separators=(",", ":")
    )
    return sha256(meant.encode()).hexdigest()


def service_of(services: Services) -> ApprovalService:
    """The implementation behind the port `services.approvals`."""
    service = services.approvals
    assert isinstance(service, ApprovalService)
    return service
