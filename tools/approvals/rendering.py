"""Renders approvals as their readers see them."""

from typing import Any, cast

from pydantic_core import to_json

from baobab.tools.approvals.asking_runs import RunsById, render_run
from baobab.tools.approvals.consents import AnnouncedCall
from baobab.tools.approvals.naming import ApprovalLabels
from baobab.tools.approvals.reading_texts import render_read, render_warning
from baobab.tools.approvals.schemas import AnnouncedWrite, Approval, Status
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.texts import describe_row
from baobab.tools.core import Call, EndUser
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import Decider, PendingDecision
from baobab.tools.core.auth.membership import decider_of
from baobab.tools.core.guard.app_rights import name_editable_fields
from baobab.tools.core.guard.titles import join_parts
from baobab.tools.core.guard.wording import redact_arguments, render_fields

_MOST_IN_LIST = 2000
"""The most bytes of arguments, and of a run's input, that lists show."""
_COLUMNS = (
    "id",
    "status",
    "tool",
    "effect",
    "app_id",
    "proposer",
    "account_id",
    "created_at",
    "expires_at",
    "decided_at",
    "decided_by",
    "reason",
    "finished_at",
    "error",
    "action_id",
    "tainted",
    "edited",
    "run_id",
    "agent",
)


class ApprovalRenderer:
    """Renders rows of `approvals` for the caller. It looks each name and each role up only once."""

    def __init__(self, call: Call, asking_runs: RunsById) -> None:
        self._call = call
        self._asking_runs = asking_runs
        self._labels = ApprovalLabels(call.registry.tools, call.services, call.execute)
        self._deciders: dict[str, Decider] = {}

    async def render_row(self, row: Any) -> Approval:
        texts, tool = service_of(self._call.services).texts, self._call.registry.tools.get(row.tool)
        arguments, gate = self._visible_arguments(row), PendingDecision.of_approval(row)
        is_own = proposers.proposer_name(self._call.caller) == row.proposer
        question = None
        if row.tool == "interrupt" and arguments is not None:
            question = {name: arguments.get(name) for name in ("reason", "data", "answer_schema")}
        title = self._labels.title(row, is_outsider=isinstance(self._call.caller, EndUser))
        reading = texts.read_reading(row)
        # Names of what is stored are not for the app's users, as no preview of it is.
        sees_data = not isinstance(self._call.caller, EndUser)
        context = {
            "read": None if reading is None or not sees_data else render_read(reading),
            "warning": None if reading is None else render_warning(reading, names_sources=sees_data),
            "status": read_status(self._call, row),
            "warnings": texts.read_warnings(row) if sees_data else [],
            "title": join_parts(title),
            "title_parts": [{"text": text, "own": own} for text, own in title],
            "button": self._labels.button(row),
            # Only trying the call shows more, which approvals_get does.
            "undo": "never" if tool is None or tool.undone_by is None else "unknown",
            "undo_days": None,
            "excerpt": self._labels.excerpt(row),
            "asked_by": await self._labels.asked_by(row),
            "asker": await self._labels.asker(row),
            "app_name": await self._labels.app(row),
            "summary": texts.summarise(row, tool),
            "asked_summary": texts.summarise_asked(row, tool),
            "approvers": gate.approvers.as_json,
            "agreed": row.agreed or [],
            "run_as": None if row.app_right is None else "app",
            "node": row.node if row.app_right is None else row.app_right["node"],
            "edit": name_editable_fields(row.app_right),
            "may_decide": (await self.find_decider(row.organisation_id)).may(gate) and not is_own,
            "arguments": arguments,
            "question": question,
            "run": render_run(row, self._asking_runs.get(row.run_id)),
            "decided_by_name": None if row.decided_by is None else await self._labels.credential(row.decided_with),
            "agreed_names": [await self._labels.credential(name) or name for name in row.agreed or ()],
            "then": await self._render_announced(row) if read_status(self._call, row) == "pending" else None,
        }
        return cast(Approval, {name: getattr(row, name) for name in _COLUMNS} | context)

    async def _render_announced(self, row: Any) -> AnnouncedWrite | None:
        """Returns the write that a question announces; its arguments only for those whose answer approves it."""
        texts = service_of(self._call.services).texts
        announcement = AnnouncedCall.of(self._call.registry, texts.seals, row)
        if announcement is None:
            return None
        may_consent = announcement.may_consent(await self.find_decider(row.organisation_id))
        write, tool = announcement.as_row, announcement.tool
        arguments = announcement.sketch(texts.arguments(row)) if may_consent else {}
        return {
            "node": announcement.fields["node"],
            "tool": tool.name,
            "summary": describe_row(tool, write, render_fields(tool, arguments)),
            "arguments": redact_arguments(tool, arguments) if may_consent else None,
            "open": announcement.open_fields,
            "run_as": None if write.app_right is None else "app",
            "approvers": announcement.gate.approvers.as_json,
            "may_consent": may_consent,
        }

    async def find_decider(self, organisation_id: str) -> Decider:
        if organisation_id not in self._deciders:
            self._deciders[organisation_id] = await decider_of(self._call, organisation_id)
        return self._deciders[organisation_id]

    def _visible_arguments(self, row: Any) -> dict[str, Any] | None:
        """Returns the arguments of a row without secrets; None once they are no longer kept."""
        if read_status(self._call, row) not in ("pending", "approved"):
            return service_of(self._call.services).texts.used_arguments(row)
        tool = self._call.registry.tools.get(row.tool)
        # If the tool no longer exists, nobody knows which arguments are secrets.
        return None if tool is None else redact_arguments(tool, self._call.services.approvals.arguments(row))


def shorten_approval(approval: Approval) -> Approval:
    """Returns an approval as lists show it: without long arguments and inputs, which reading it shows."""
    short_approval: dict[str, Any] = {**approval}
    if _is_long(approval["arguments"]):
        short_approval |= {"arguments": None, "question": None}
    if approval["then"] is not None and _is_long(approval["then"]["arguments"]):
        short_approval["then"] = {**approval["then"], "arguments": None}
    if approval["run"] is not None and _is_long(approval["run"]["input"]):
        short_approval["run"] = {**approval["run"], "input": None}
    return cast(Approval, short_approval)


def _is_long(value: Any) -> bool:
    return len(to_json(value)) > _MOST_IN_LIST


def read_status(call: Call, row: Any) -> Status:
    is_overdue = row.status == "pending" and row.expires_at <= call.now
    status: Status = "expired" if is_overdue else row.status
    return status
