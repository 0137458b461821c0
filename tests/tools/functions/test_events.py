"""Events of the realtime channel are handled by functions, as whoever has sent them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KEY
from tests.tools.data.sockets import Live, open_machines

USER = "11111111-1111-4111-8111-111111111111"
_SOCKET = [{"type": "websocket"}]
_ECHO = """
export default async (req, ctx) => {
  const {event, payload} = await req.json();
  if (payload?.fails) throw new Error("as asked");
  const type = req.headers.get("x-trigger-type");
  return Response.json({event, payload, type, user: ctx.user?.id ?? null, caller: ctx.caller.type});
}
"""


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with open_machines(tmp_path, 1) as machines:
        answer = await machines[0].client.post(
            "/init", json={"name": "chat"}, headers={"authorization": f"Bearer {KEY}"}
        )
        yield Live(machines, answer.json()["app_id"])


async def deploy(live: Live, name: str, **settings: Any) -> None:
    answer = await live.ask("POST", "/functions", {"name": name, "code": _ECHO, "triggers": _SOCKET, **settings})
    assert answer.status_code == 200, answer.text


async def test_an_event_calls_its_function_as_the_user_of_the_socket_and_the_answer_comes_back(live: Live) -> None:
    await deploy(live, "move")
    async with live.open(await live.user(USER)) as client:
        assert (await client.read())["type"] == "connected"
        await client.send("event", event="move", payload={"x": 1})
        answer = await client.read()
        assert (answer["type"], answer["event"]) == ("event_response", "move")
        own_data = {"event": "move", "payload": {"x": 1}, "type": "websocket", "user": USER, "caller": "end_user_jwt"}
        assert answer["data"] == own_data
    async with live.open() as client:
        assert (await client.read())["type"] == "connected"
        # The only function that handles events handles those of other names, too.
        await client.send("event", event="other")
        data = (await client.read())["data"]
        assert (data["event"], data["user"], data["caller"]) == ("other", None, "service_key")


async def test_an_event_that_nobody_handles_or_whose_function_fails_is_told_and_the_socket_stays(live: Live) -> None:
    await deploy(live, "move")
    await deploy(live, "turn")
    async with live.open() as client:
        assert (await client.read())["type"] == "connected"
        await client.send("event", event="other")
        error = await client.read()
        assert (error["type"], "No handler for event" in str(error)) == ("error", True)
        await client.send("event", event="move", payload={"fails": True})
        assert (await client.read())["type"] == "error"
        await client.send("event", event="turn")
        assert (await client.read())["data"]["event"] == "turn"
