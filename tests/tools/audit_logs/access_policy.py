"""Who may call the tools of audit_logs, and with which arguments (tests/tools/access.py)."""

from tests.tools.access import ADMINS

POLICY = {
    "audit_logs_list": ADMINS,
}
