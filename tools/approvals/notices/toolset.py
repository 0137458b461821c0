"""The toolset of notices."""

from baobab.tools.core.auth.access import AnyAccount
from baobab.tools.core.toolset import Guard, Toolset

notices = Toolset(
    "notices",
    "How people are told that a call waits for their decision: mail, webhooks, Slack, Discord and web push.",
    base="/v1/notices",
    # Where a person is told, and by what address, is that person's and no model's.
    mcp=False,
)
# A caller who gets a person's notices learns what waits, and the person does not.
GUARD = Guard(grants=True)
PERSON = AnyAccount()
