"""The toolset of notices."""

from baobab.tools.core import AnyAccount, Guard, Toolset
from baobab.tools.core.auth.roles import APPROVER

notices = Toolset(
    "notices",
    "How people are notified of calls that wait for their decision: mail, webhooks, Slack, Discord and web push.",
    base="/v1/notices",
    # No model chooses the addresses at which a person is notified.
    mcp=False,
)
# A caller that redirects a person's notices would read what waits, and the person would not.
GUARD = Guard(grants=True)
PERSON = AnyAccount(APPROVER)
