"""Who may call the tools of jobs, and with which arguments (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, Caller, World

# Everybody sees their own organisation's jobs only; each caller names one that nobody has.
_READERS = ACCOUNTS.replace("ok ", "404").replace("ok", "404")
_ADMINS = "401 403 403 403 403 403 403 403 403 404 404 404 404 404"

POLICY = {
    "jobs_list": ACCOUNTS,
    "jobs_get": _READERS,
    "jobs_retry": _ADMINS,
    "jobs_cancel": _ADMINS,
}


async def for_jobs_get(world: World, caller: Caller) -> dict[str, Any]:
    return {"job_id": "00000000-0000-0000-0000-000000000000"}


for_jobs_retry = for_jobs_cancel = for_jobs_get
