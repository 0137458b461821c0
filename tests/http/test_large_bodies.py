"""Large bodies are read when their callers may send them, and parsed in turns of whoever they are for."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.http.request import LargeBodyParser, parse_object
from tests.conftest import Baobab
from tests.http.live_server import serve_installation
from tests.people import Person, create_key, create_person
from tests.servers import TIMEOUT_SECONDS

LARGE = 3 * 2**20


@pytest.fixture
async def live_baobab(tmp_path: Path) -> AsyncIterator[Baobab]:
    async with serve_installation(tmp_path / "data", {"BAOBAB_PLAN": "playground"}) as served_baobab:
        yield served_baobab


async def status_before_the_body(live_baobab: Baobab, path: str, headers: dict[str, str], length: str) -> int:
    """Returns the status of a request of which only the head is sent."""
    address = live_baobab.client.base_url
    assert address.port is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    lines = [f"POST {path} HTTP/1.1", f"Host: {address.host}:{address.port}", length]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        status = int((await reader.readline()).split()[1])
    writer.close()
    return status


@pytest.mark.parametrize("length", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])
async def test_rights_are_looked_at_before_a_large_body_is_read(live_baobab: Baobab, length: str) -> None:
    app = await live_baobab.create_app()
    stranger, colleague = (
        await create_person(live_baobab, "stranger"),
        await create_person(live_baobab, "colleague", role="member"),
    )
    reader = await create_key(live_baobab, read_only=True)
    batch, agents, chat = f"/v1/{app}/kv/_batch", f"/v1/{app}/agents", "/v1/chat/completions"
    for path, headers, status in (
        (batch, stranger.headers, 403),
        (batch, {"authorization": "Bearer bb_sk_" + "0" * 40}, 401),
        (batch.replace(app, "app_000000000000"), live_baobab.owner, 404),
        (agents, colleague.headers, 403),
        (agents, reader, 403),
        (chat, {}, 401),
        (chat, reader, 403),
    ):
        assert await status_before_the_body(live_baobab, path, headers, length) == status, path


async def test_a_large_body_is_not_read_where_no_request_is_left(live_baobab: Baobab) -> None:
    owner = await create_person(live_baobab, "owner")
    app = (await live_baobab.client.post("/init", json={"name": "busy"}, headers=owner.headers)).json()["app_id"]
    path = f"/v1/{app}/chat/completions"
    status_codes = [
        (await live_baobab.client.get(f"/v1/{app}/config", headers=owner.headers)).status_code for _ in range(301)
    ]
    assert status_codes == [200] * 300 + [429]
    assert await status_before_the_body(live_baobab, path, owner.headers, f"Content-Length: {LARGE}") == 429


async def test_looking_whether_requests_are_left_takes_none(live_baobab: Baobab) -> None:
    owner = await create_person(live_baobab, "owner")
    app = (await live_baobab.client.post("/init", json={"name": "calm"}, headers=owner.headers)).json()["app_id"]
    path, body = f"/v1/{app}/kv/_batch", {"ops": [{"op": "set", "key": "a", "value": "x" * 100_000}]}
    answer = await live_baobab.client.post(path, json=body, headers=owner.headers)
    assert (answer.status_code, answer.headers["ratelimit"].split(";")[1]) == (200, "r=49")


async def test_one_tenants_large_bodies_are_parsed_in_turns_with_anothers(
    live_baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, one = [await create_person(live_baobab, name) for name in ("many", "one")]
    all_came, came, beginnings = threading.Event(), list[bytes](), list[bytes]()
    parse = LargeBodyParser.parse

    async def count(self: LargeBodyParser, raw: bytes, *, any_value: bool) -> Any:
        came.append(raw)
        if len(came) == 7:
            all_came.set()
        return await parse(self, raw, any_value=any_value)

    def parse_when_all_came(raw: bytes) -> dict[str, Any]:
        assert all_came.wait(20)
        beginnings.append(raw[:9])
        return parse_object(raw)

    async def send(whose: Person, name: bytes) -> None:
        content = b'{"%b": "%b"}' % (name, b"x" * 2**20)
        answer = await live_baobab.client.post("/v1/chat/completions", content=content, headers=whose.headers)
        assert answer.status_code == 400, answer.text

    monkeypatch.setattr(LargeBodyParser, "parse", count)
    monkeypatch.setattr("baobab.http.request.parse_object", parse_when_all_came)
    await asyncio.gather(*(send(many, b"many") for _ in range(6)), send(one, b"none"))
    assert len(beginnings) == 7
    # One of theirs was begun before it came, and one is theirs by turn.
    assert beginnings.index(b'{"none": ') <= 2
