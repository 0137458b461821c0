"""The callers that may call the tools of jobs, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, Caller, World

# Everybody sees the jobs of their own organisation only, which each account owns; the job that they name is nobody's.
_OWN = ACCOUNTS.replace("ok ", "404").replace("ok", "404")

POLICY = {
    "jobs_list": ACCOUNTS,
    "jobs_get": _OWN,
    "jobs_retry": _OWN,
    "jobs_cancel": _OWN,
}


async def for_jobs_get(world: World, caller: Caller) -> dict[str, Any]:
    return {"job_id": "00000000-0000-0000-0000-000000000000"}


for_jobs_retry = for_jobs_cancel = for_jobs_get
