"""Opens the sealed arguments of approvals, and describes them in words for the person who decides."""

import json
from dataclasses import dataclass
from typing import Any

from baobab.tools.approvals.tables import FieldCipher
from baobab.tools.core.auth import proposers
from baobab.tools.core.call import Tool
from baobab.tools.core.wording import Fields, describe_call, render_fields


@dataclass(frozen=True, slots=True)
class ApprovalTexts:
    """Reads and seals the columns of a row that hold arguments."""

    seals: FieldCipher

    def arguments(self, row: Any) -> dict[str, Any]:
        """Returns the arguments of the call; an empty object once it can no longer be executed."""
        arguments: dict[str, Any] = json.loads(self.seals.open(row.id, "arguments", row.arguments))
        return arguments

    def render_fields(self, row: Any, tool: Tool | None) -> Fields:
        """Returns the arguments of a row as a person reads them.

        tool: None if it no longer exists. Then nobody knows which arguments are secret, and the list is empty. It is
        also empty for calls that ended before the list was kept.
        """
        if row.fields is not None:
            fields: Fields = json.loads(self.seals.open(row.id, "fields", row.fields))
            return fields
        # Once a call has ended, its arguments are erased.
        return [] if tool is None or row.finished_at is not None else render_fields(tool, self.arguments(row))

    def summarise(self, row: Any, tool: Tool | None) -> str:
        """Describes what the call of a row will do, or did. tool: None if it no longer exists."""
        return describe_row(tool, row, self.render_fields(row, tool))

    def summarise_asked(self, row: Any, tool: Tool | None) -> str | None:
        """Describes the call as it was proposed, if whoever approved it changed the arguments; else None."""
        if row.asked_fields is None:
            return None
        return describe_row(tool, row, json.loads(self.seals.open(row.id, "asked_fields", row.asked_fields)))

    def used_arguments(self, row: Any) -> dict[str, Any] | None:
        """Returns the arguments that the approver changed; None if they changed nothing."""
        return None if row.used is None else json.loads(self.seals.open(row.id, "used", row.used))

    def seal_fields(self, approval_id: str, column: str, fields: Fields) -> str:
        return self.seals.seal(approval_id, column, json.dumps(fields, separators=(",", ":")))


def describe_row(tool: Tool | None, row: Any, fields: Fields) -> str:
    """Describes what the call of a row does, with the arguments as a person reads them."""
    user_id = proposers.find_user(row.caller)
    tainted, as_app = bool(row.tainted), row.app_right is not None
    return describe_call(tool, fields, effect=row.effect, tainted=tainted, user_id=user_id, as_app=as_app)
