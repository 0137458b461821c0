"""The toolset of approvals."""

from baobab.tools.core.limits import APPROVAL_REQUESTS
from baobab.tools.core.toolset import Toolset

approvals = Toolset(
    "approvals",
    "Calls that wait for a person's approval: what they would do, and the decision.",
    base="/v1/approvals",
    limit=APPROVAL_REQUESTS,
)
