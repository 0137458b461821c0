"""The callers that may call the tools of repositories, and the arguments for it (tests/tools/access.py)."""

import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.tools.access import ADMINS, PUBLIC, RUNNERS, Caller, World

# To others, the repository of a private app is not there.
OWNERS = "404 404 404 404 404 ok  404 404 ok  ok  ok  ok  404 404"

POLICY = {
    "repo_prepare": OWNERS,
    "repo_commit": OWNERS,
    "repo_snapshots_list": OWNERS,
    "repo_latest": OWNERS,
    "repo_snapshot": OWNERS,
    "repo_blob": OWNERS,
    "repo_blobs": OWNERS,
    "repo_delete": OWNERS,
    "repo_settings_get": RUNNERS,
    "repo_settings_update": ADMINS,
    # The signed address is what counts.
    "repo_blob_store": PUBLIC,
    "repo_blob_content": PUBLIC,
}
# What the matrix sends as the body of what takes bytes.
_CONTENT = b"{}"
_DIGEST = hashlib.sha256(_CONTENT).hexdigest()
_FILES = [{"path": "a.json", "sha256": _DIGEST, "size": len(_CONTENT)}]


async def _prepare(world: World) -> Any:
    path = f"/v1/{world.app}/repo/snapshots/prepare"
    return await world.request("POST", path, world.owner.headers, files=_FILES)


async def _commit(world: World, caller: Caller) -> dict[str, Any]:
    preparation = await _prepare(world)
    for missing in preparation["missing_blobs"]:
        response = await world.baobab.client.put(missing["uploadUrl"], content=_CONTENT)
        assert response.status_code == 200, response.text
    path = f"/v1/{world.app}/repo/snapshots/commit"
    committed_response = await world.request("POST", path, world.owner.headers, manifest={"files": _FILES})
    return {"app_id": world.app, "sha256": _DIGEST, "snapshot_id": committed_response["snapshot_id"], "shas": [_DIGEST]}


for_repo_latest = for_repo_snapshot = for_repo_blob = for_repo_blobs = _commit


async def for_repo_blob_store(world: World, caller: Caller) -> dict[str, Any]:
    await world.request("DELETE", f"/v1/{world.app}/repo", world.owner.headers)
    (missing,) = (await _prepare(world))["missing_blobs"]
    return {"app_id": world.app, "sha256": _DIGEST, **_read_query(missing["uploadUrl"])}


async def for_repo_blob_content(world: World, caller: Caller) -> dict[str, Any]:
    commit = await _commit(world, caller)
    answer = await world.baobab.client.get(f"/v1/{world.app}/repo/blobs/{_DIGEST}", headers=world.owner.headers)
    return {**commit, **_read_query(answer.json()["downloadUrl"])}


def _read_query(url: str) -> dict[str, Any]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
