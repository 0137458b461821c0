"""The toolset of billing."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

billing = Toolset(
    "billing",
    "What an organisation has, what it has spent, and its budgets.",
    base="/dashboard",
    clones=never_clone("billing", "credit_reservations", "credit_usage"),
)
