"""Whose texts calls read and store: those of the people who run an app are its own, all others come from outside.

A tool with `taints=True` says of each call what it has read (`Call.note_texts`). A run of an agent that has read text
from outside asks before it writes. An admin marks places as the app's own; what a person stored in the console is its
own in any place. What a run stored after it had read text from outside comes from outside in any place.
"""

from typing import Any, Literal

from baobab.tools.core.auth.callers import Account, Anonymous, EndUser
from baobab.tools.core.auth.roles import require_role
from baobab.tools.core.call import Call
from baobab.tools.core.errors import Forbidden

Writer = Literal["person", "outside"]
"""Who stored a text, as far as it matters: a person of the organisation, in the console; or a user, a visitor, or a run
that had read text from outside. None for keys and everybody else: their texts are the app's own in a marked place.
"""
_OF_STRANGERS = ("user:", "anonymous")


def find_writer(call: Call) -> Writer | None:
    """Returns as whom a call stores text."""
    if isinstance(call.caller, (EndUser, Anonymous)) or call.context.brings_outside_text:
        return "outside"
    step, attempt = call.context.step, call.approved_attempt
    if step is not None:
        return "outside" if step.tainted or step.starter.startswith(_OF_STRANGERS) else None
    if attempt is not None:
        return "outside" if attempt.tainted or attempt.starter.startswith(_OF_STRANGERS) else None
    is_person = isinstance(call.caller, Account) and call.caller.key_id is None and call.context.name == "console"
    return "person" if is_person else None


def find_origin(call: Call) -> dict[str, Any]:
    """Returns who caused an event, as `Jobs.emit` takes it: the run of an agent, whether it comes from outside, and how
    many triggers lie before it.
    """
    step, attempt = call.context.step, call.approved_attempt
    run_id = step.run_id if step is not None else attempt.run_id if attempt is not None else None
    origin = {"run_id": run_id, "outside": find_writer(call) == "outside"}
    trigger = call.context.trigger
    return origin if trigger is None else {**origin, "depth": trigger["depth"]}


def is_own_text(writer: str | None, *, in_own_place: bool) -> bool:
    """Returns whether a text is the app's own, by who stored it and where."""
    return writer == "person" or (in_own_place and writer != "outside")


def require_marking(call: Call) -> None:
    """Raises Forbidden unless the caller may mark a place as the app's own: an admin, and never a run of an agent."""
    if call.context.step is not None or (
        call.approved_attempt is not None and call.approved_attempt.run_id is not None
    ):
        raise Forbidden(
            "A run of an agent cannot say whose text is the app's own.",
            remediation="Let an admin mark the place in the console.",
        )
    require_role(call.role, "admin")
