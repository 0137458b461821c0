"""Who may call the tools of jobs, and with which arguments (tests/tools/access.py)."""

from tests.tools.access import ACCOUNTS

# Everybody sees their own organisation's jobs only; each caller names one that nobody has.
_READERS = ACCOUNTS.replace("ok ", "404").replace("ok", "404")
_ADMINS = "401 403 403 403 403 403 403 403 403 404 404 404 404 404"

POLICY = {
    "jobs_list": ACCOUNTS,
    "jobs_get": _READERS,
    "jobs_retry": _ADMINS,
    "jobs_cancel": _ADMINS,
}
