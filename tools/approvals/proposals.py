"""Proposals: a call that needs approval becomes a row, and whoever makes the call again gets its outcome.

An approved call runs exactly once. The row is bound to who proposed the call, to the tool and its version, and to the
arguments. Its states:

    pending -> approved -> executed | failed
    pending -> rejected | expired
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Select, and_, func, insert, or_, select, update

from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, DatabaseConnection, Unit
from baobab.storage.sql.notices import Notices
from baobab.tools.approvals.carrying_over import list_effects
from baobab.tools.approvals.consents import digest_step
from baobab.tools.approvals.executor import GOOD_FOR, enqueue_execution
from baobab.tools.approvals.notices.rows import has_channel
from baobab.tools.approvals.notices.tables import notice_settings
from baobab.tools.approvals.tables import NOTICE, FieldCipher, approvals
from baobab.tools.approvals.texts import ApprovalTexts, build_fields, describe_row
from baobab.tools.core import BaobabError, Call, Caller
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.tables import members
from baobab.tools.core.errors import ApprovalRejected, ApprovalRequired
from baobab.tools.core.guard.approvals import ApprovalExpired, CallFailed, TooLargeToPropose, TooManyPending
from baobab.tools.core.guard.steps import ASKED
from baobab.tools.core.guard.texts import find_origin
from baobab.tools.core.guard.wording import Fields
from baobab.tools.core.jobs import Jobs

LIFETIME = timedelta(hours=24)
COLLECTABLE = timedelta(hours=24)
"""How long an outcome is kept for the caller who proposed the call; after that, the same call is a new proposal."""
MOST_PENDING = 1000
MOST_PENDING_OF_ONE = 100
MOST_BYTES = 4 * 2**20
MOST_BYTES_PENDING = 64 * 2**20
"""How many bytes of sealed arguments all waiting calls of an organisation may hold."""
_ID_LENGTH = 24
_FINISHED = ("executed", "failed", "rejected")


class ProposedCalls:
    """Keeps proposed calls, and returns their outcomes to whoever proposed them."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ids: Ids,
        texts: ApprovalTexts,
        audit_log: AuditLog,
        jobs: Jobs,
        notices: Notices,
        base_url: str,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._texts = texts
        self._audit_log = audit_log
        self._jobs = jobs
        self._notices = notices
        self._base_url = base_url

    async def propose(
        self, call: Call, arguments: Mapping[str, Any], meaning: str | None = None, label: str | None = None
    ) -> Any:
        """Returns the result of this call if it was proposed before, approved, and has run. Else it is proposed.

        Raises ApprovalRequired while the call waits, ApprovalRejected if a person rejected it, CallFailed if it failed.
        An outcome is handed out once: the same call made again after that is a new proposal. A step of a run gets its
        outcome as often as it asks, and ApprovalExpired if nobody decided.

        meaning: a digest of what the arguments refer to, for tools whose arguments only name it. label: what people
        call the row that the call is about.
        """
        arguments_json = json.dumps(arguments, separators=(",", ":"))
        if len(arguments_json) > MOST_BYTES:
            raise TooLargeToPropose(details={"max_bytes": MOST_BYTES})
        digests = _list_digests(call, arguments, meaning)
        belongs_to = await proposers.get_owner(call)
        # The same call made twice at once has one outcome, and the caps of an organisation are exact.
        async with self._database.writing_unit(lock=belongs_to[0]) as connection:
            row = await self._find_proposal(connection, call, digests)
            if row is not None and call.context.step is not None and row.status in ("expired", *_FINISHED):
                return self._resolve_step(call, row)
            if row is None:
                consent = await self._take_consent(connection, call, arguments)
                ask = None if call.context.step is None else call.context.step.ask
                wording = {"ask": ask, "label": label, "effect": call.effect}
                fields = build_fields(call.tool, json.loads(arguments_json), wording)
                values = await self._insert_proposal(
                    connection, call, belongs_to, arguments_json, digests[0], meaning, wording, fields, consent
                )
                await self._notices.publish(connection, NOTICE, belongs_to[0])
                if values["status"] == "approved":
                    await enqueue_execution(self._jobs, connection, values["id"], belongs_to[0])
                else:
                    await self._ask_for_notices(connection, values["id"], belongs_to[0])
                    data = {"approval_id": values["id"], "run_id": values["run_id"], "tool": call.tool.name}
                    await self._jobs.emit(
                        connection,
                        ASKED,
                        app_id=values["app_id"],
                        data=data,
                        tenant=belongs_to[0],
                        origin=find_origin(call),
                        only_awaited=True,
                    )
                summary = describe_row(call.tool, SimpleNamespace(**values), fields)
                refusal: BaobabError = self._approval_error(
                    values["id"], values["status"], summary, values["expires_at"], call.warnings or ()
                )
            elif row.status in _FINISHED:
                # The outcome is read before it is erased: one that cannot be read is kept.
                result, error = self._read_outcome(call, row)
                collected_values = {"collected_at": self._clock.now(), "result": None}
                await connection.execute(update(approvals).where(approvals.c.id == row.id).values(**collected_values))
                if error is None:
                    return result
                refusal = error
            else:
                summary = self._texts.summarise(row, call.tool)
                refusal = self._approval_error(row.id, row.status, summary, row.expires_at)
        raise refusal

    async def _take_consent(
        self, connection: DatabaseConnection | Unit, call: Call, arguments: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Returns the columns of a decision, if an answer to the question before this step approved this very call. It
        is used up by that.
        """
        step = call.context.step
        consent = None if step is None else digest_step(step, call.tool, arguments)
        if step is None or consent is None:
            return None
        is_given = (
            approvals.c.proposer == proposers.proposer_name(call.caller, step),
            approvals.c.consent == consent,
            approvals.c.status.in_(("approved", "executed")),
            approvals.c.decided_at > self._clock.now() - GOOD_FOR,
        )
        question = (await connection.execute(select(approvals).where(*is_given).limit(1))).first()
        if question is None:
            return None
        await connection.execute(update(approvals).where(approvals.c.id == question.id).values(consent=None))
        call.audit.data["approved_with"] = question.id
        names = ("decided_at", "decided_by", "decided_with")
        return {"status": "approved", **{name: getattr(question, name) for name in names}}

    async def _ask_for_notices(self, unit: Unit, approval_id: str, organisation_id: str) -> None:
        """Asks for people to be told, if any member has somewhere to be told, or passes calls on to others."""
        tells = or_(notice_settings.c.escalate_to.is_not(None), has_channel())
        query = select(notice_settings.c.account_id).join(members, members.c.account_id == notice_settings.c.account_id)
        query = query.where(tells)
        if (await unit.execute(query.where(members.c.organisation_id == organisation_id).limit(1))).first() is None:
            return
        arguments, job_id = {"approval_id": approval_id}, f"notices:{approval_id}"
        await self._jobs.enqueue(unit, "notices_plan", arguments, job_id=job_id, tenant=organisation_id)

    def _resolve_step(self, call: Call, row: Any) -> Any:
        if row.status == "expired":
            raise ApprovalExpired(details={"approval_id": row.id})
        result, error = self._read_outcome(call, row)
        if error is not None:
            raise error
        return result

    async def is_approved(self, call: Call, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Returns whether this very call was approved, and its outcome has not been handed out."""
        conditions = self._digest_conditions(call, _list_digests(call, arguments, meaning))
        was_approved = approvals.c.status.in_(("approved", "executed", "failed"))
        async with self._database.reading() as connection:
            return (
                await connection.execute(select(approvals.c.id).where(*conditions, was_approved))
            ).first() is not None

    async def has_proposal(self, call: Call, arguments: Mapping[str, Any], meaning: str | None) -> bool:
        """Returns whether this call was proposed before, and still waits or has an outcome to hand out."""
        conditions = self._match_conditions(call, _list_digests(call, arguments, meaning))
        query = select(approvals.c.id).where(*conditions).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    def _match_conditions(self, call: Call, digests: Sequence[str]) -> tuple[Any, ...]:
        """Builds the conditions that select the row of this call, if it was proposed before."""
        conditions = self._digest_conditions(call, digests)
        if call.context.step is not None:
            return conditions
        now = self._clock.now()
        # An outcome is handed out even if the tool has changed since. A call that still waits can still be made: its
        # arguments are those of this call, which the tool takes.
        is_waiting = and_(approvals.c.status == "pending", approvals.c.effect.in_(list_effects(call.tool)))
        return (
            *conditions,
            or_(
                and_(is_waiting, approvals.c.expires_at > now),
                approvals.c.status == "approved",
                and_(approvals.c.status.in_(_FINISHED), approvals.c.finished_at > now - COLLECTABLE),
            ),
        )

    def _digest_conditions(self, call: Call, digests: Sequence[str]) -> tuple[Any, ...]:
        return (
            approvals.c.proposer == proposers.proposer_name(call.caller, call.context.step),
            approvals.c.tool == call.tool.name,
            approvals.c.arguments_digest.in_(digests),
            approvals.c.collected_at.is_(None),
        )

    async def _find_proposal(self, connection: DatabaseConnection | Unit, call: Call, digests: Sequence[str]) -> Any:
        """Returns the row in which this call was proposed before; None if the call is new."""
        belonging = self._match_conditions(call, digests)
        if call.context.step is not None:
            return await self._step_row(connection, select(approvals).where(*belonging), self._clock.now())
        first = select(approvals).where(*belonging).order_by(approvals.c.created_at, approvals.c.id).limit(1)
        row = (await connection.execute(first)).first()
        if row is None:
            conditions = self._digest_conditions(call, digests)
            is_waiting = (approvals.c.status == "pending", approvals.c.tool_version == call.tool.version)
            overdue_id = (await connection.execute(select(approvals.c.id).where(*conditions, *is_waiting))).scalar()
            if overdue_id is not None:
                await expire(connection, self._texts.seals, self._clock.now(), overdue_id)
        return row

    async def _step_row(self, connection: DatabaseConnection | Unit, query: Select[Any], now: datetime) -> Any:
        row = (await connection.execute(query)).first()
        if row is None or row.status != "pending" or row.expires_at > now:
            return row
        await expire(connection, self._texts.seals, self._clock.now(), row.id)
        return (await connection.execute(query)).first()

    async def _insert_proposal(
        self,
        connection: DatabaseConnection | Unit,
        call: Call,
        belongs_to: tuple[str, str],
        arguments_json: str,
        digest: str,
        meaning: str | None,
        wording: Mapping[str, Any],
        fields: Fields,
        consent: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        (organisation, account), now, step = belongs_to, self._clock.now(), call.context.step
        approval_id, proposer = "appr_" + self._ids.secret(_ID_LENGTH), proposers.proposer_name(call.caller, step)
        await self._require_room(connection, approvals.c.organisation_id == organisation, MOST_PENDING)
        await self._require_room(connection, approvals.c.proposer == proposer, MOST_PENDING_OF_ONE)
        announcement_json = json.dumps(step.announces, separators=(",", ":")) if step and step.announces else None
        if announcement_json is not None and len(announcement_json) > MOST_BYTES:
            # Too much to keep beside the question: the write that follows waits for a person of its own.
            announcement_json = None
        await self._require_bytes(connection, organisation, len(arguments_json) + len(announcement_json or ""))
        values = {
            "id": approval_id,
            "organisation_id": organisation,
            "account_id": account,
            "app_id": call.app.id if call.app else step and step.app_id,
            "proposer": proposer,
            "caller": {
                **proposers.encode_caller(_asker(call), step.voucher if step else None),
                **({"trigger": step.trigger} if step and step.trigger else {}),
            },
            "tool": call.tool.name,
            "tool_version": call.tool.version,
            "effect": call.effect,
            "door": call.context.name,
            "request_id": call.context.request_id[:80],
            "arguments": self._texts.seals.seal(approval_id, "arguments", arguments_json),
            "arguments_digest": digest,
            "fields": self._texts.seal_fields(approval_id, "fields", fields),
            "ask": self._texts.seals.seal(approval_id, "ask", json.dumps(wording, separators=(",", ":"))),
            "status": "pending",
            "created_at": now,
            "expires_at": now + (LIFETIME if step is None else step.approval_timeout),
            "run_id": step and step.run_id,
            "tainted": step and step.tainted,
            "approvers": step and step.approvers,
            "persons": step and step.persons,
            "starter": step and step.starter,
            "agent": step and step.agent,
            "node": step and step.node,
            "meaning": meaning,
            "reading": None
            if step is None or step.reading is None
            else self._texts.seals.seal(approval_id, "reading", json.dumps(step.reading, separators=(",", ":"))),
            "app_right": step.app_right.as_column if step and step.app_right else None,
            "announced": None
            if announcement_json is None
            else self._texts.seals.seal(approval_id, "announced", announcement_json),
            **(consent or {}),
        }
        await connection.execute(insert(approvals), values)
        if step is not None and step.app_right is not None:
            asker = step.app_right.asker
            call.audit.actor, call.audit.actor_id = asker.actor, asker.actor_id
            call.audit.data["right"] = {"of": "app", "node": step.app_right.node}
        await self._audit_log.record_proposal(connection, call, approval_id)
        return values

    async def _require_room(self, connection: DatabaseConnection | Unit, condition: Any, most: int) -> None:
        is_waiting = (approvals.c.status == "pending", approvals.c.expires_at > self._clock.now())
        if (await connection.execute(select(func.count()).where(condition, *is_waiting))).scalar_one() >= most:
            raise TooManyPending(details={"limit": most})

    async def _require_bytes(self, connection: DatabaseConnection | Unit, organisation: str, added_bytes: int) -> None:
        """Raises TooManyPending if an organisation's waiting calls hold too many bytes of arguments to add these."""
        is_waiting = (approvals.c.organisation_id == organisation, approvals.c.status == "pending")
        size = func.coalesce(func.sum(func.length(approvals.c.arguments)), 0)
        pending_bytes = int((await connection.execute(select(size).where(*is_waiting))).scalar_one())
        if pending_bytes + added_bytes > MOST_BYTES_PENDING:
            message = f"The organisation's calls that wait for approval hold {pending_bytes} bytes."
            raise TooManyPending(message, details={"limit": MOST_BYTES_PENDING, "current": pending_bytes})

    def _read_outcome(self, call: Call, row: Any) -> tuple[Any, BaobabError | None]:
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
        call.warn(*self._texts.read_warnings(row))
        outcome = self._texts.seals.open(row.id, "result", row.result)
        return None if outcome == "null" else call.tool.decode(outcome), None

    def _approval_error(
        self, approval_id: str, status: str, summary: str, expires_at: datetime, warnings: Sequence[str] = ()
    ) -> ApprovalRequired:
        details: dict[str, Any] = {
            "approval_id": approval_id,
            "status": status,
            "summary": summary,
            "decide_at": approval_url(self._base_url, approval_id),
            "expires_at": expires_at.isoformat(),
        }
        return ApprovalRequired(details=details | ({"warnings": list(warnings)} if warnings else {}))


def _asker(call: Call) -> Caller:
    """Returns whose call it is, also if it uses the app's right."""
    step = call.context.step
    return call.caller if step is None or step.app_right is None else step.app_right.asker


def approval_url(base_url: str, approval_id: str) -> str:
    """Returns the address of the page on which a person decides."""
    return f"{base_url}/console/approvals/{approval_id}"


async def expire(connection: DatabaseConnection | Unit, seals: FieldCipher, now: datetime, approval_id: str) -> None:
    """Marks an approval as expired if it is still pending."""
    is_pending = (approvals.c.id == approval_id, approvals.c.status == "pending")
    values = {"status": "expired", "finished_at": now, **seals.without_arguments(approval_id)}
    await connection.execute(update(approvals).where(*is_pending).values(**values))


def _list_digests(call: Call, arguments: Mapping[str, Any], meaning: str | None) -> list[str]:
    """Computes what is equal for two calls of a tool if they are the same call: the digest of this version of the
    server, and those by which former versions stored it.

    Each contains the caller: a key that acts for one user must not get the outcome of another's call. A run may make
    the same call twice: its steps differ by their own ids.
    """
    step = call.context.step
    identities: list[Any] = proposers.list_identities(call.caller)
    if step is not None:
        identity = [step.run_id, step.call_id]
        if step.app_right is not None:
            # No approval of a call with its caller's right is good for one with the app's, nor for another node.
            identity += ["app", step.app_right.node, step.app_right.digest]
        identities = [identity]
        arguments = {name: value for name, value in arguments.items() if name not in step.pins}
    further = [] if meaning is None else [meaning]
    contents = (
        json.dumps([identity, arguments, *further], sort_keys=True, separators=(",", ":")) for identity in identities
    )
    return [sha256(content.encode()).hexdigest() for content in contents]
