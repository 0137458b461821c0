"""The callers that may call the tools of audit_logs, and the arguments for it (tests/tools/access.py)."""

from tests.tools.access import ADMINS

POLICY = {
    "audit_logs_list": ADMINS,
}
