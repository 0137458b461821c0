"""Callers that a worker keeps in memory: a change ends what they may do on every worker, and leaves others' alone."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from baobab.tools.core.auth.credentials import Credentials
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import Person, create_key, create_person, get_first_organisation

TIMEOUT_SECONDS = 180

Headers = dict[str, str]


@dataclass
class Workers:
    """Two workers of one installation, in whose memory nothing expires: the clock stands still."""

    here: Baobab
    there: Baobab
    organisation_id: str
    app_id: str

    async def send(self, method: str, path: str, json: object = None, by: Headers | None = None) -> int:
        answer = await self.here.client.request(method, path, json=json, headers=by or self.here.owner)
        return answer.status_code


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    clock = FixedClock(time.time())
    async with contextlib.AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(open_installation(tmp_path / "data", clock=clock)) for _ in range(2)
        ]
        yield Workers(here, there, await get_first_organisation(here), await here.create_app())


Case = tuple[Headers, tuple[str, str], Callable[[], Awaitable[int]]]
"""Somebody's headers, a request that they may make, and a change after which they may not."""


async def _find_key(workers: Workers, by: Headers, key: Headers) -> str:
    keys = (await workers.here.client.get("/api-keys", headers=by)).json()["keys"]
    return str(
        next(one["id"] for one in keys if key["authorization"].removeprefix("Bearer ").startswith(one["prefix"]))
    )


async def revoke_key(workers: Workers) -> Case:
    key = await create_key(workers.here)
    key_id = await _find_key(workers, workers.here.owner, key)
    return key, ("PUT", f"/v1/{workers.app_id}/kv/a"), lambda: workers.send("DELETE", f"/api-keys/{key_id}")


async def limit_key(workers: Workers) -> Case:
    key = await create_key(workers.here)
    key_id = await _find_key(workers, workers.here.owner, key)
    path = f"/v1/{workers.app_id}/kv/a"
    return key, ("PUT", path), lambda: workers.send("PATCH", f"/api-keys/{key_id}", {"read_only": True})


async def remove_member(workers: Workers) -> Case:
    person, path = await _create_member(workers)
    return person.headers, ("PUT", f"/v1/{workers.app_id}/kv/a"), lambda: workers.send("DELETE", path)


async def lower_role(workers: Workers) -> Case:
    person, path = await _create_member(workers)
    members = f"/v1/organizations/{workers.organisation_id}/invitations"
    return person.headers, ("GET", members), lambda: workers.send("PATCH", path, {"role": "member"})


async def _create_member(workers: Workers) -> tuple[Person, str]:
    person = await create_person(workers.here, "member", role="admin")
    return person, f"/v1/organizations/{workers.organisation_id}/members/{person.id}"


async def delete_app(workers: Workers) -> Case:
    key = await create_key(workers.here, key_scope="app", target_app_id=workers.app_id)
    return key, ("PUT", f"/v1/{workers.app_id}/kv/a"), lambda: workers.send("DELETE", f"/apps/{workers.app_id}")


@pytest.mark.parametrize("prepare", [revoke_key, limit_key, remove_member, lower_role, delete_app])
async def test_a_right_that_is_taken_away_ends_at_once_here_and_soon_elsewhere(
    workers: Workers, prepare: Callable[[Workers], Awaitable[Case]]
) -> None:
    headers, (method, path), change = await prepare(workers)
    for worker in (workers.here, workers.there):
        answer = await worker.client.request(method, path, json={"value": 1}, headers=headers)
        assert answer.status_code < 300, answer.text
    assert await change() < 300
    refusal = await workers.here.client.request(method, path, json={"value": 1}, headers=headers)
    assert refusal.status_code in {401, 403, 404}, refusal.text
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await workers.there.client.request(method, path, json={"value": 1}, headers=headers)).status_code < 300:
            await asyncio.sleep(0.01)


async def test_a_new_app_is_usable_at_once_and_leaves_all_other_callers_in_memory(workers: Workers) -> None:
    here, stranger = workers.here, await create_person(workers.here, "stranger")
    keys = [await create_key(here, stranger.headers) for _ in range(2)]
    user = await here.user_headers(workers.app_id, "ada")
    app_key = await create_key(here, key_scope="app", target_app_id=workers.app_id)
    others = [here.owner, user, app_key, keys[0]]
    for headers in (*others, keys[1]):
        await here.client.get(f"/v1/{workers.app_id}/kv/a", headers=headers)
    response = await here.client.post("/init", json={"name": "new"}, headers=keys[1])
    assert response.status_code == 201, response.text
    written_response = await here.client.put(
        f"/v1/{response.json()['app_id']}/kv/a", json={"value": 1}, headers=keys[1]
    )
    assert written_response.status_code == 204, written_response.text
    key_id = await _find_key(workers, stranger.headers, keys[1])
    assert await workers.send("DELETE", f"/api-keys/{key_id}", by=stranger.headers) < 300
    credentials = here.application.services.credentials
    assert isinstance(credentials, Credentials)
    cached_callers = [credentials.find_cached(headers["authorization"].encode()) for headers in (*others, keys[1])]
    assert [caller is not None for caller in cached_callers] == [True, True, True, True, False]
    # What the users and keys of an app depend on is that app.
    assert await workers.send("PATCH", f"/apps/{workers.app_id}", {"name": "other"}) < 300
    cached_callers = [credentials.find_cached(headers["authorization"].encode()) for headers in others]
    assert [caller is not None for caller in cached_callers] == [True, False, False, True]
