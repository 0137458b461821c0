"""The callers that may call the tools of custom domains, and the arguments for it (tests/tools/access.py)."""

import itertools
from typing import Any

from tests.tools.access import ADMINS, RUNNERS, Caller, World

POLICY = {
    "domains_add": ADMINS,
    "domains_verify": ADMINS,
    "domains_remove": ADMINS,
    "domains_list": RUNNERS,
    "domains_status": RUNNERS,
}
_NUMBERS = itertools.count(1)


async def for_domains_add(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "hostname": f"www.shop-{next(_NUMBERS)}.example"}


async def _add(world: World, caller: Caller) -> dict[str, Any]:
    hostname = f"www.shop-{next(_NUMBERS)}.example"
    path = f"/v1/{world.app}/custom-domains"
    answer = await world.request("POST", path, world.owner.headers, hostname=hostname)
    return {"app_id": world.app, "domain_id": answer["domain"]["id"]}


for_domains_status = for_domains_verify = for_domains_remove = _add
