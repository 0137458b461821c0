"""Opens the sealed arguments of approvals, and describes them in words for the person who decides."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.agents.spec.asks import ARGUMENTS, list_shown, write_button, write_title
from baobab.tools.approvals.schemas import ShownValue
from baobab.tools.approvals.tables import FieldCipher
from baobab.tools.core.auth import proposers
from baobab.tools.core.call import Tool
from baobab.tools.core.guard.titles import write_excerpt
from baobab.tools.core.guard.wording import (
    BUTTON,
    EXCERPT,
    LABEL,
    LABELLED,
    TITLE,
    Fields,
    describe_call,
    redact_arguments,
    render_fields,
)

_QUESTION, _REMOTE = "interrupt", "mcp_servers_call"
_NO_WORDING: Mapping[str, Any] = {"ask": None, "label": None}


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

    def wording(self, row: Any) -> Mapping[str, Any]:
        """Returns what the sentences about a call are made of beside its arguments, as `build_fields` takes it."""
        if row.ask is None:
            return {**_NO_WORDING, "effect": row.effect}
        wording: Mapping[str, Any] = json.loads(self.seals.open(row.id, "ask", row.ask))
        return wording

    def summarise(self, row: Any, tool: Tool | None) -> str:
        """Describes what the call of a row will do, or did. tool: None if it no longer exists."""
        return describe_row(tool, row, self.render_fields(row, tool))

    def summarise_asked(self, row: Any, tool: Tool | None) -> str | None:
        """Describes the call as it was proposed, if whoever approved it changed the arguments; else None."""
        if row.asked_fields is None:
            return None
        return describe_row(tool, row, json.loads(self.seals.open(row.id, "asked_fields", row.asked_fields)))

    def list_shown(self, row: Any, arguments: Mapping[str, Any]) -> list[ShownValue]:
        """Returns what the author of the graph wants to be read first of a call. arguments: without secrets."""
        ask = self.wording(row)["ask"]
        pairs = [] if ask is None else list_shown(ask, arguments)
        return [{"path": path, "value": value} for path, value in pairs]

    def used_arguments(self, row: Any) -> dict[str, Any] | None:
        """Returns the arguments that the approver changed; None if they changed nothing."""
        return None if row.used is None else json.loads(self.seals.open(row.id, "used", row.used))

    def read_reading(self, row: Any) -> dict[str, Any] | None:
        """Returns what the run that asks had read, and why a person is warned; None if it had read nothing."""
        return None if row.reading is None else json.loads(self.seals.open(row.id, "reading", row.reading))

    def read_warnings(self, row: Any) -> list[str]:
        """Returns what the executed call said beside its result."""
        return [] if row.warnings is None else json.loads(self.seals.open(row.id, "warnings", row.warnings))

    def seal_fields(self, approval_id: str, column: str, fields: Fields) -> str:
        return self.seals.seal(approval_id, column, json.dumps(fields, separators=(",", ":")))


def build_fields(tool: Tool, arguments: Mapping[str, Any], wording: Mapping[str, Any]) -> Fields:
    """Returns the arguments of a call as a person reads them, and before them the sentences that are made of them.

    wording: `ask` of the node that asks (agents/spec/asks.py), the `label` of the row that the call is about, each
    of them None where there is none, and the `effect` of the call.
    """
    safe_arguments = redact_arguments(tool, arguments)
    marks: list[tuple[str, str]] = []
    ask, label = wording["ask"], wording["label"]
    title = None if ask is None else write_title(ask, safe_arguments, wording["effect"])
    if ask is not None and title is not None:
        marks += [(TITLE, json.dumps(title)), (BUTTON, write_button(ask, safe_arguments))]
    if label is not None and tool.outcome is not None:
        sentence = tool.outcome({**safe_arguments, LABEL: label})
        marks += [] if sentence is None else [(LABELLED, sentence)]
    excerpt = _write_excerpt(tool, ask, safe_arguments)
    marks += [] if excerpt is None else [(EXCERPT, excerpt)]
    return [*marks, *render_fields(tool, arguments)]


def _write_excerpt(tool: Tool, ask: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> str | None:
    """Writes one line of the text that a call proposes: of what its author shows first, or else of its arguments."""
    pairs = [] if ask is None else list_shown(ask, arguments)
    excerpts = (write_excerpt(value) for path, value in pairs if path.startswith(f"{ARGUMENTS}."))
    first = next(filter(None, excerpts), None)
    if first is not None:
        return first
    if tool.name == _QUESTION:
        return write_excerpt(arguments.get("reason"))
    proposal = arguments.get(ARGUMENTS) if tool.name == _REMOTE else arguments
    if not isinstance(proposal, dict):
        return None
    # What the title names already, such as the table and its row, says less than what is written.
    values = {name: value for name, value in proposal.items() if name != tool.app_parameter}
    inner_values = [value for name, value in values.items() if name == "value" or isinstance(value, dict | list)]
    return write_excerpt(inner_values) or write_excerpt([value for value in values.values() if _is_text(value)])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and " " in value.strip()


def describe_row(tool: Tool | None, row: Any, fields: Fields) -> str:
    """Describes what the call of a row does, with the arguments as a person reads them."""
    user_id = proposers.find_user(row.caller)
    tainted, as_app = bool(row.tainted), row.app_right is not None
    return describe_call(tool, fields, effect=row.effect, tainted=tainted, user_id=user_id, as_app=as_app)
