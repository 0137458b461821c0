"""Decisions: a person approves or rejects a call that waits, and a key whose policy is eased withdraws its own."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import select, update

from baobab.runtime.agents.edits import require_answer
from baobab.storage.sql.notices import Notices
from baobab.tools.approvals.carrying_over import require_makeable
from baobab.tools.approvals.consents import AnnouncedCall
from baobab.tools.approvals.executor import enqueue_execution
from baobab.tools.approvals.foreseeing import require_success
from baobab.tools.approvals.inbox.holding import end_held
from baobab.tools.approvals.tables import NOTICE, approvals
from baobab.tools.approvals.texts import ApprovalTexts, build_fields, describe_row
from baobab.tools.core import Account, AppKey, Call, Caller, EndUser
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.deciders import Decider, NeedsAnother, PendingDecision, person
from baobab.tools.core.auth.names import find_decider
from baobab.tools.core.guard.approvals import AlreadyDecided, Edit, EditsTakeOne
from baobab.tools.core.guard.steps import ENDED
from baobab.tools.core.jobs import Jobs


class CallDecisions:
    """Records decisions, each as one compare-and-set. What follows is the executor's (tools/approvals/executor.py)."""

    def __init__(self, texts: ApprovalTexts, jobs: Jobs, notices: Notices) -> None:
        self._texts = texts
        self._jobs = jobs
        self._notices = notices

    async def decide(
        self,
        call: Call,
        approval_id: str,
        decider: Decider,
        status: Literal["approved", "rejected"],
        reason: str | None,
        edit: Edit | None = None,
    ) -> Literal["decided", "waits"]:
        """Decides a pending approval in the caller's transaction. Returns `waits` if another person must approve it,
        too.

        Raises NotYoursToDecide, NotAnApprover, AlreadyDecided, NeedsAnother or EditsTakeOne, and BadRequest where a
        question is approved without an answer that matches its schema.
        """
        # Somebody who decides at the same time waits here for the lock, and then sees this decision.
        query = select(approvals).where(approvals.c.id == approval_id).with_for_update()
        row: Any = (await call.execute(query)).one()
        await self.require_decidable(call, row, decider, status, edit)
        gate = PendingDecision.of_approval(row)
        values = self._complete_fields(call, row)
        if status == "approved" and gate.approvers.persons > 1:
            values["agreed"] = [*(row.agreed or ()), person(call.caller)]
            if len(values["agreed"]) < gate.approvers.persons:
                await call.execute(update(approvals).where(approvals.c.id == row.id).values(**values))
                await end_held(call, row.id, status, is_over=False)
                await self._notices.publish(call.unit, NOTICE, row.organisation_id)
                return "waits"
        values |= {
            "status": status,
            "decided_at": call.now,
            "decided_by": _decided_by(call.caller),
            "decided_with": proposers.proposer_name(call.caller),
            "reason": reason,
        }
        if edit is not None:
            values |= self._edit_arguments(call, row, edit)
        if status == "rejected":
            values |= {"finished_at": call.now, **self._texts.seals.without_arguments(row.id)}
        else:
            values |= self._give_consent(call, row, decider, edit)
        pending = (approvals.c.id == row.id, approvals.c.status == "pending", approvals.c.expires_at > call.now)
        if (await call.execute(update(approvals).where(*pending).values(**values))).rowcount != 1:
            decided_row = (await call.execute(query)).one()
            raise AlreadyDecided.of(decided_row, await find_decider(call.execute, decided_row))
        await end_held(call, row.id, status, is_over=True)
        await self._notices.publish(call.unit, NOTICE, row.organisation_id)
        if status == "approved":
            await enqueue_execution(self._jobs, call.unit, row.id, row.organisation_id)
        elif row.run_id is not None:
            details = {"approval_id": row.id, "run_id": row.run_id}
            await self._jobs.emit(call.unit, ENDED, app_id=row.app_id, data=details)
        return "decided"

    async def require_decidable(
        self, call: Call, row: Any, decider: Decider, status: Literal["approved", "rejected"], edit: Edit | None = None
    ) -> None:
        """Raises what `decide` would raise about the waiting call of a row as it is now."""
        decider.require(gate := PendingDecision.of_approval(row))
        if row.status != "pending" or row.expires_at <= call.now:
            raise AlreadyDecided.of(row, await find_decider(call.execute, row))
        if status == "rejected":
            return
        call_arguments = self._texts.arguments(row) if edit is None else edit.all_arguments
        require_answer(row.tool, call_arguments)
        # Refused before anybody relies on it. An edit is validated against the present tool.
        require_makeable(call.registry, row, call_arguments)
        if gate.approvers.persons > 1:
            if edit is not None:
                raise EditsTakeOne
            if person(call.caller) in (row.agreed or ()):
                raise NeedsAnother(details={"agreed": row.agreed, "persons": gate.approvers.persons})
        write = AnnouncedCall.of(call.registry, self._texts.seals, row)
        if write is not None and write.may_consent(decider):
            write.complete(call_arguments)

    def _complete_fields(self, call: Call, row: Any) -> dict[str, Any]:
        """Returns the arguments as a person reads them, if a former version did not store them with the row.

        They cannot be read once the arguments are erased.
        """
        tool = call.registry.tools.get(row.tool)
        if row.fields is not None or tool is None:
            return {}
        return {"fields": self._texts.seal_fields(row.id, "fields", self._texts.render_fields(row, tool))}

    async def require_success(
        self,
        call: Call,
        row: Any,
        decider: Decider,
        arguments: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> bool:
        """Raises WouldFail if the waiting call of a row would fail now, before somebody approves it.

        Returns whether it, or the write that it announces, would delete something now.
        """
        return await require_success(call, self._texts.seals, row, decider, arguments, data)

    def _give_consent(self, call: Call, row: Any, decider: Decider, edit: Edit | None) -> dict[str, Any]:
        """Returns the columns that approve the write which a question announces, if its decider may decide about that.

        Raises BadRequest if the answer does not fill it.
        """
        write = AnnouncedCall.of(call.registry, self._texts.seals, row)
        if write is None or not write.may_consent(decider):
            return {"announced": None}
        arguments = write.complete(self._texts.arguments(row) if edit is None else edit.all_arguments)
        call.audit.data["approves"] = {"tool": write.tool.name, "node": write.fields["node"]}
        return {"announced": None, "consent": write.digest(arguments)}

    def _edit_arguments(self, call: Call, row: Any, edit: Edit) -> dict[str, Any]:
        """Returns the columns that hold other arguments than those that the call of the row was proposed with."""
        proposed_arguments, tool = self._texts.arguments(row), call.registry.find(row.tool)
        if edit.all_arguments == proposed_arguments:
            return {}
        seals, fields = self._texts.seals, build_fields(tool, edit.all_arguments, self._texts.wording(row))
        call.audit.data |= {
            "edited": True,
            "summary": describe_row(tool, row, fields),
            "asked": self._texts.summarise(row, tool),
        }
        return {
            "arguments": seals.seal(row.id, "arguments", json.dumps(edit.all_arguments, separators=(",", ":"))),
            "used": seals.seal(row.id, "used", json.dumps(edit.written_arguments, separators=(",", ":"))),
            "asked_fields": self._texts.seal_fields(row.id, "asked_fields", self._texts.render_fields(row, tool)),
            "fields": self._texts.seal_fields(row.id, "fields", fields),
            "edited": True,
        }

    async def withdraw_exempt(self, call: Call, key_id: str, limits: Limits) -> None:
        """Withdraws the pending proposals of a key that the key no longer needs approval for.

        The key now makes such calls at once; one that still waited would be made a second time.
        """
        is_pending = (approvals.c.proposer == f"key:{key_id}", approvals.c.status == "pending")
        rows = (
            await call.execute(select(approvals.c.id, approvals.c.tool, approvals.c.effect).where(*is_pending))
        ).all()
        for approval_id in [row.id for row in rows if not limits.requires_approval(row.tool, row.effect)]:
            values = {
                "status": "rejected",
                "decided_at": call.now,
                "decided_by": call.account.account_id,
                "decided_with": proposers.proposer_name(call.caller),
                "reason": "The key's limits have changed: this call no longer needs approval.",
                "finished_at": call.now,
                **self._texts.seals.without_arguments(approval_id),
            }
            await call.execute(update(approvals).where(approvals.c.id == approval_id, *is_pending).values(**values))
        await self._notices.publish(call.unit, NOTICE, call.account.organisation_id)


def _decided_by(caller: Caller) -> str | None:
    """Returns the id of the account or of the app's user who decided."""
    if isinstance(caller, (Account, AppKey)):
        return caller.account_id
    return caller.user_id[:36] if isinstance(caller, EndUser) else None
