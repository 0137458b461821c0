"""A capability: something that can be proposed, with the shape of its payload, its policy and its plan."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Literal, get_type_hints

from pydantic import ValidationError
from sqlalchemy import Table

from baobab.tools.core.binding import RegistrationError
from baobab.tools.core.invalid import invalid
from baobab.tools.core.schema import portable
from baobab.tools.substrate.capabilities.schemas import Payload
from baobab.tools.substrate.errors import UnknownCapability
from baobab.tools.substrate.forgetting import Traces
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row, encode_row


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Describes the action that a plan is made for."""

    id: str
    at: datetime
    kind: Literal["human", "agent"]
    app_id: str | None
    entity_id: str | None
    from_strangers: bool


@dataclass(slots=True)
class Plan:
    """Says what an action would do: its result, and the rows that it changes. links: the entities that it is about."""

    result: dict[str, Any]
    changes: list[RowChange] = field(default_factory=list)
    links: list[dict[str, str]] = field(default_factory=list)
    reverted_ids: list[str] = field(default_factory=list)
    """The actions that it undoes."""
    traces: Traces | None = None
    """What the ledger forgets with the rows that it deletes."""
    agents_wait: str | None = None
    """Why it waits for a person if an agent proposes it; None if the capability alone decides."""

    @property
    def frees(self) -> bool:
        """Whether it is done even where the memory is full: it makes room, or takes back what was done."""
        return self.traces is not None or bool(self.reverted_ids)

    def is_marked(self, *, is_done: bool) -> bool:
        """Returns whether text of strangers may be in the action: in a row that it makes from its payload, or, once it
        is done, in one that it changes, of which its result may tell.
        """
        rows = [change.after for change in self.changes if is_done or change.before is None]
        rows += [change.before for change in self.changes if is_done]
        return any(row["from_strangers"] for row in rows if row is not None)


MakePlan = Callable[[Ledger, Any, ActionContext], Awaitable[Plan]]


@dataclass(frozen=True, slots=True)
class Capability:
    name: str
    summary: str
    payload: type[Payload]
    plan: MakePlan
    """Reads what there is and says what would change; it raises where the action cannot be done."""
    needs_approval: bool
    is_reversible: bool
    yolo_eligible: bool
    has_side_effect: bool
    """Whether it leads to something outside: those of agents always wait for a person."""

    def validate(self, payload: Mapping[str, Any]) -> Any:
        """Returns the validated payload. Raises a BadRequest that names what is wrong."""
        try:
            return self.payload.model_validate(dict(payload))
        except ValidationError as exc:
            schema = describe_payload(self.payload)
            fault = invalid(exc, self.payload, schema)
            fault.message = f"payload of {self.name}: {fault.message}"
            # The tool's schema is the same for all capabilities, so a caller may not know what this payload needs.
            fault.details = {**fault.details, "payload_schema": schema}
            raise fault from exc


@cache
def describe_payload(payload: type[Payload]) -> dict[str, Any]:
    """Returns the schema of a payload, as callers see it."""
    return portable(payload.model_json_schema())


CAPABILITIES: dict[str, Capability] = {}


def capability(
    *, needs_approval: bool = False, reversible: bool = False, yolo: bool = False, side_effect: bool = False
) -> Callable[[MakePlan], MakePlan]:
    """Register the decorated function as the plan of the capability of its name.

    yolo: whether an action that needs approval is done without in yolo mode.
    """

    def register(plan: MakePlan) -> MakePlan:
        name = plan.__name__
        if name in CAPABILITIES:
            raise RegistrationError(f"{name}: there is a capability of this name already")
        summary = inspect.getdoc(plan)
        if not summary:
            raise RegistrationError(f"{name}: a capability has a docstring")
        payload = get_type_hints(plan)["payload"]
        CAPABILITIES[name] = Capability(
            name=name,
            summary=" ".join(summary.split()),
            payload=payload,
            plan=plan,
            needs_approval=needs_approval,
            is_reversible=reversible,
            yolo_eligible=yolo or not needs_approval,
            has_side_effect=side_effect,
        )
        return plan

    return register


def find_capability(name: str) -> Capability:
    capability_found = CAPABILITIES.get(name)
    if capability_found is None:
        raise UnknownCapability(details={"capabilities": sorted(CAPABILITIES)})
    return capability_found


def new_row(action: ActionContext, row_id: str, **values: Any) -> dict[str, Any]:
    """Returns a row that an action makes."""
    new_fields = {"id": row_id, "created_at": action.at, "updated_at": action.at}
    return {**new_fields, "action_id": action.id, "from_strangers": action.from_strangers, **values}


def show_before(action: ActionContext, table: Table, row: Mapping[str, Any], names: Sequence[str]) -> Row | None:
    """Returns what a result shows of a row as it was before. An agent does not see a row that strangers may have
    written: a proposal does not count as reading, after which the agent would have to ask before it acts.
    """
    if action.kind == "agent" and row["from_strangers"]:
        return None
    return encode_row(table, {name: row[name] for name in names})


def changed_row(action: ActionContext, row: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Returns a row as an action changes it. What strangers may have written stays marked."""
    from_strangers = row["from_strangers"] or action.from_strangers
    return {**row, **values, "action_id": action.id, "updated_at": action.at, "from_strangers": from_strangers}
