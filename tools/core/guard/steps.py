"""Steps: the calls that a run of an agent makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from baobab.tools.core.guard.app_rights import AppRight

ENDED = "approval.ended"
"""The event that a step's approval has an outcome; its data are `approval_id` and `run_id`."""


ASKED = "approval.asked"
"""The event that a call of an app waits for a person; its data are `approval_id`, `run_id` and `tool`."""


@dataclass(frozen=True, slots=True)
class Step:
    """Identifies a call of a run: if it is made again after a crash, it is the same call with the same outcome.

    organisation_id, account_id: whose approval it needs, where it needs one. approval_timeout: how long it waits.
    """

    run_id: str
    call_id: str
    organisation_id: str
    account_id: str
    approval_timeout: timedelta
    requires_approval: bool = False
    """Whether it waits for a person, whatever its caller may do without one."""
    tainted: bool = False
    """Whether text from outside has been read on the way to it."""
    approvers: str = "starter"
    """Who decides where it waits (deciders.py), of which `persons` must agree; `starter` began the run."""
    persons: int = 1
    starter: str = ""
    agent: str = ""
    app_id: str | None = None
    """The app whose agent it is."""
    voucher: tuple[str, str] | None = None
    """The account that acts as a user of an app, and the organisation that it must still belong to at execution."""
    pins: frozenset[str] = frozenset()
    """Arguments that hold fast what is called. Whoever retries the step may find others: it is the same call."""
    app_right: AppRight | None = None
    """The app's right, which the call uses in place of its caller's once somebody has approved it."""
    trigger: str = ""
    """The name of the trigger that started the run; empty where none did."""
    node: str = ""
    """The node of the graph that makes the call; empty for a call that a model wants."""
    announces: Mapping[str, Any] | None = None
    """For a question: what the write that follows it is made of (tools/approvals/consents.py)."""
    ask: Mapping[str, Any] | None = None
    """How the node's author wants the call to be shown to whoever decides (runtime/agents/spec/asks.py)."""
    reading: Mapping[str, Any] | None = None
    """What the run has read before, and why a person is warned (runtime/agents/reading.py)."""
