"""Consents: an answer to a question that approves the write which the question announced.

The question's row keeps what the write is made of (`announced`). The answer completes it to one exact call, and the row
then holds the digest of that call (`consent`). If the run's next step makes this very call, it is approved already.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from baobab.runtime.agents.spec.announcements import complete_arguments, list_open_fields, sketch_arguments
from baobab.runtime.agents.spec.templates import TemplateError
from baobab.tools.approvals.tables import FieldCipher
from baobab.tools.core import BadRequest
from baobab.tools.core.auth.deciders import Approvers, Decider, PendingDecision
from baobab.tools.core.call import Tool, ToolRunner
from baobab.tools.core.guard.steps import Step
from baobab.tools.core.invalid import invalid


def digest_consent(announced: Mapping[str, Any], run_id: str, tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Computes the digest of one call of a run: its step, node, right, approvers, tool and arguments.

    announced: `node`, `call_id`, `approvers` and `app_right` are read.
    """
    right = announced["app_right"]
    parts = [run_id, announced["call_id"], announced["node"], announced["approvers"], right and right["digest"]]
    parts += [tool.name, tool.version, dict(arguments)]
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digest_step(step: Step, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """Computes the same digest of a call that is about to be proposed; None if no answer can have approved it."""
    if not step.node or step.persons > 1:
        return None
    right = None if step.app_right is None else step.app_right.as_column
    fields = {"node": step.node, "call_id": step.call_id, "approvers": step.approvers, "app_right": right}
    return digest_consent(fields, step.run_id, tool, arguments)


@dataclass(frozen=True, slots=True)
class AnnouncedCall:
    """The write that a question announces. row: of the question; fields: what its `announced` says."""

    row: Any
    fields: Mapping[str, Any]
    tool: Tool

    @classmethod
    def of(cls, registry: ToolRunner, seals: FieldCipher, row: Any) -> "AnnouncedCall | None":
        """Returns the write that the question of a row announces; None if it announces none that there is."""
        if row.announced is None:
            return None
        fields = json.loads(seals.open(row.id, "announced", row.announced))
        tool = registry.tools.get(fields["tool"])
        # What a call's arguments only name is not known before it is made.
        return None if tool is None or tool.meaning is not None else cls(row, fields, tool)

    @property
    def gate(self) -> PendingDecision:
        """Who may decide about the write."""
        row, fields = self.row, self.fields
        not_by = frozenset((fields["app_right"] or {}).get("not_by", ()))
        approvers = Approvers(fields["approvers"], fields["persons"])
        return PendingDecision(row.app_id, row.account_id, row.starter, approvers, not_by=not_by)

    def may_consent(self, decider: Decider) -> bool:
        """Returns whether the answer of a decider approves the write, too."""
        return self.gate.approvers.persons == 1 and decider.may(self.gate)

    @property
    def open_fields(self) -> list[str]:
        """The arguments that the answer fills."""
        return list_open_fields(self.fields)

    def sketch(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments as `complete` does, with null where the answer has nothing yet."""
        return sketch_arguments(self.fields, _build_answer(question))

    def complete(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of the write. question: the arguments of the question, with the answer in `data`.

        Raises BadRequest if the answer lacks what the call needs, or fills it with what its tool does not take.
        """
        try:
            arguments = complete_arguments(self.fields, _build_answer(question))
        except TemplateError as exc:
            raise BadRequest(
                f"The answer does not fill the call of {self.fields['node']} that follows it: {exc}.",
                remediation="Send `data` with all that the call needs (`then` of the approval shows it), or reject it.",
            ) from exc
        try:
            self.tool.validate(arguments)
        except ValidationError as exc:
            raise invalid(exc, self.tool.arguments, self.tool.input_schema) from exc
        return arguments

    def digest(self, arguments: Mapping[str, Any]) -> str:
        return digest_consent(self.fields, self.row.run_id, self.tool, arguments)

    @property
    def as_row(self) -> Any:
        """The row that the write would have if it were proposed now."""
        values = {**self.row._mapping, "tool": self.tool.name, "tool_version": self.tool.version}  # noqa: SLF001 - SQLAlchemy's
        values |= {"effect": self.tool.effect, "app_right": self.fields["app_right"], "announced": None}
        return SimpleNamespace(**values)


def _build_answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a question returns that is approved with these arguments."""
    return {"approved": True, "reason": question.get("reason"), "data": question.get("data")}
