"""The toolset of approvals."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone
from baobab.tools.core.app_events import AppEvent
from baobab.tools.core.guard.steps import ASKED, ENDED
from baobab.tools.core.limits.limits import APPROVAL_REQUESTS

_CALL = {"approval_id": "appr_0a1b2c3d", "run_id": "5b2f7c9e-0000-4000-8000-000000000000"}

approvals = Toolset(
    "approvals",
    "Calls that wait for a person's approval: what they would do, and the decision.",
    base="/v1/approvals",
    limit=APPROVAL_REQUESTS,
    clones=never_clone("history", "approvals"),
    events=(
        AppEvent(
            "approval.asked", ASKED, "A call waits for a person.", {**_CALL, "tool": "data_update"}, "approval_id"
        ),
        AppEvent("approval.decided", ENDED, "A call that a run waited for has an outcome.", _CALL, "approval_id"),
    ),
)
