"""The toolset of the audit log."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone

audit_logs = Toolset(
    "audit_logs",
    "What was done to an app, by whom.",
    base="/v1/{app_id}",
    clones=never_clone("history", "audit_logs"),
)
