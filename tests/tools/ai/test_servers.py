"""Model servers that organisations declare: who can call them, at what cost, and where they may be."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.backends import read_database
from tests.people import Person, create_person, get_first_organisation
from tests.runtime.gateway.upstream import Upstream, start_upstream
from tests.tools.ai.conftest import (
    HELLO,
    TEXT,
    TIMEOUT_SECONDS,
    Installation,
    join_content,
    open_installation,
    parse_events,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN_KEY = "own-server-key-0000wxyz"
# Loopback is where the fakes are; all other private networks stay closed.
VARIABLES = {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path_factory.mktemp("servers") / "data", VARIABLES) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theirs() -> AsyncIterator[Upstream]:
    """The server of an organisation."""
    async with start_upstream() as fake:
        yield fake


@pytest_asyncio.fixture(loop_scope="module")
async def owner(world: Installation) -> Person:
    """Somebody with an organisation that nobody else is in."""
    return await create_person(world, "owner")


async def declare_server(world: Installation, by: Person, url: str, name: str = "lab", **more: Any) -> dict[str, Any]:
    answer = await world.client.post("/v1/ai/servers", json={"name": name, "url": url, **more}, headers=by.headers)
    assert answer.status_code == 201, answer.text
    server: dict[str, Any] = answer.json()
    return server


async def list_models(world: Installation, by: Person) -> list[str]:
    answer = await world.client.get("/v1/models", headers=by.headers)
    return [model["id"] for model in answer.json()["data"]]


async def create_app(world: Installation, by: Person) -> str:
    response = await world.client.post("/init", json={"name": "shop"}, headers=by.headers)
    assert response.is_success, response.text
    app_id: str = response.json()["app_id"]
    return app_id


async def list_usage(world: Installation, by: Person) -> list[tuple[str | None, bool, int, int]]:
    today = world.application.services.clock.now().date()
    usage = await world.credits.usage(by.organisation_id, today, today)
    return [(each.model, each.byok, each.requests, each.cost) for each in usage]


async def test_a_server_is_asked_for_its_models_when_it_is_declared(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    server = await declare_server(world, owner, f"{theirs.url}/v1/", key=OWN_KEY)
    assert theirs.requests[-1].path == "/v1/models"
    assert theirs.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"
    assert (server["url"], server["key"]) == (f"{theirs.url}/v1", "***wxyz")
    assert server["models"] == ["lab/gpt-4o-mini", "lab/text-embedding-3-small"]
    assert (server["healthy"], server["problem"]) == (True, None)
    for path in ("/v1/ai/servers/lab", "/v1/ai/servers"):
        body = (await world.client.get(path, headers=owner.headers)).json()
        assert body == server if "name" in body else body == {"servers": [server]}
    assert {"lab/gpt-4o-mini", "lab/text-embedding-3-small"} <= set(await list_models(world, owner))


@pytest.mark.parametrize("model", ["gpt-4o-mini", "meta/never-listed:8b"])
async def test_its_models_answer_with_its_key_listed_or_not_and_nothing_is_charged(
    world: Installation, theirs: Upstream, owner: Person, model: str
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1", key=OWN_KEY)
    before = await world.credits.balance(owner.organisation_id)
    answer = await world.chat(f"lab/{model}", by=owner.headers)
    assert answer.json()["choices"][0]["message"]["content"] == TEXT
    assert answer.headers["x-baobab-cost-usd"] == "0.000000000"
    assert answer.headers["x-baobab-model"] == f"lab/{model}"
    assert theirs.requests[-1].json["model"] == model
    assert theirs.requests[-1].headers["authorization"] == f"Bearer {OWN_KEY}"
    assert (await world.credits.balance(owner.organisation_id)).credits == before.credits
    counted_model = f"lab/{model}" if model == "gpt-4o-mini" else "lab/*"
    assert await list_usage(world, owner) == [(counted_model, True, 1, 0)]


async def test_it_streams_and_embeds(world: Installation, theirs: Upstream, owner: Person) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    stream_answer = await world.chat("lab/gpt-4o-mini", by=owner.headers, stream=True)
    assert TEXT in join_content(parse_events(stream_answer.text))
    assert "authorization" not in theirs.requests[-1].headers
    body = {"model": "lab/text-embedding-3-small", "input": ["a", "b"]}
    vectors = await world.client.post("/v1/embeddings", json=body, headers=owner.headers)
    assert len(vectors.json()["data"]) == 2
    assert theirs.requests[-1].path == "/v1/embeddings"


async def test_it_answers_on_the_other_wires_too(world: Installation, theirs: Upstream, owner: Person) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    for path, body in (
        ("responses", {"input": "Hello!"}),
        ("messages", {"messages": HELLO, "max_tokens": 100}),
    ):
        request_body = {"model": "lab/gpt-4o-mini", **body}
        answer = await world.client.post(f"/v1/{path}", json=request_body, headers=owner.headers)
        assert answer.status_code == 200, answer.text
        assert TEXT in answer.text
        assert theirs.requests[-1].path == "/v1/chat/completions"


async def test_the_organisations_apps_and_their_users_call_it(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    app_id = await create_app(world, owner)
    user = await world.user_headers(app_id, "somebody")
    for by in (owner.headers, user):
        answer = await world.chat("lab/gpt-4o-mini", by=by, path=f"/v1/{app_id}")
        assert answer.status_code == 200, answer.text
        models = (await world.client.get(f"/v1/{app_id}/ai/models", headers=by)).json()["models"]
        (mini,) = [model for model in models if model["id"] == "lab/gpt-4o-mini"]
        assert (mini["prompt_price_per_mtok"], mini["modality"]) == (0, "chat")
    config = {"allowedModels": ["lab/plain"], "fallbackModels": ["lab/gpt-4o-mini"]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=config, headers=owner.headers)
    assert (await world.chat("lab/gpt-4o-mini", by=user, path=f"/v1/{app_id}")).status_code == 403
    assert (await world.chat("lab/plain", by=user, path=f"/v1/{app_id}")).status_code == 200


async def test_it_stands_in_for_a_model_that_fails(world: Installation, theirs: Upstream, owner: Person) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    app_id = await create_app(world, owner)
    config = {"fallbackModels": ["lab/gpt-4o-mini"]}
    await world.client.put(f"/v1/{app_id}/ai/config", json=config, headers=owner.headers)
    answer = await world.chat("lab/500", by=owner.headers, path=f"/v1/{app_id}")
    assert answer.headers["x-baobab-model"] == "lab/gpt-4o-mini"


async def test_to_strangers_there_is_no_such_server_and_no_such_model(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1", "lab-of-one", key=OWN_KEY)
    stranger, request_count = await create_person(world, "stranger"), len(theirs.requests)
    app_id = await create_app(world, stranger)
    for path in ("/v1", f"/v1/{app_id}"):
        for model in ("lab-of-one/gpt-4o-mini", "lab-of-one/anything"):
            answer = await world.chat(model, by=stranger.headers, path=path)
            unknown = await world.chat("nobody/gpt-4o-mini", by=stranger.headers, path=path)
            expected_text = unknown.text.replace("nobody/gpt-4o-mini", model)
            assert (answer.status_code, answer.text) == (404, expected_text)
    assert not [model for model in await list_models(world, stranger) if model.startswith("lab-of-one/")]
    assert "lab-of-one" not in (await world.client.get("/v1/public/models")).text
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/probe")):
        body: dict[str, Any] = {"json": {"key": "x"}} if method == "PATCH" else {}
        answer = await world.client.request(
            method, f"/v1/ai/servers/lab-of-one{path}", headers=stranger.headers, **body
        )
        assert answer.status_code == 404, answer.text
    assert (await world.client.get("/v1/ai/servers", headers=stranger.headers)).json() == {"servers": []}
    assert len(theirs.requests) == request_count


async def test_two_organisations_call_their_own_server_by_one_name(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    other = await create_person(world, "other")
    async with start_upstream() as others:
        await declare_server(world, owner, f"{theirs.url}/v1", key=OWN_KEY)
        await declare_server(world, other, f"{others.url}/v1", key="key-of-the-others")
        for by, fake, key in ((owner, theirs, OWN_KEY), (other, others, "key-of-the-others")):
            await world.chat("lab/gpt-4o-mini", by=by.headers)
            assert fake.requests[-1].path == "/v1/chat/completions"
            assert fake.requests[-1].headers["authorization"] == f"Bearer {key}"


@pytest.mark.parametrize("name", ["openai", "google", "meta-llama", "x-ai", "groq", "openrouter", "baobab", "gemini"])
async def test_a_server_cannot_pass_for_a_vendor(world: Installation, owner: Person, name: str) -> None:
    body = {"name": name, "url": "http://127.0.0.1:9000/v1"}
    answer = await world.client.post("/v1/ai/servers", json=body, headers=owner.headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "RESOURCE_CONFLICT")


async def test_a_server_cannot_pass_for_the_installations_own(world: Installation, owner: Person) -> None:
    world.add_model("plain", server="house")
    body = {"name": "house", "url": "http://127.0.0.1:9000/v1"}
    assert (await world.client.post("/v1/ai/servers", json=body, headers=owner.headers)).status_code == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Lab"},
        {"name": "1lab"},
        {"name": "lab/more"},
        {"name": "server:x"},
        {"name": "x" * 33},
        {"name": ""},
        {"url": "ftp://models.example.com"},
        {"url": "https://user:secret@models.example.com/v1"},
        {"url": "https://models.example.com/v1?key=secret"},
        {"url": "https://models.example.com/v1#here"},
        {"url": "http://127.0.0.1:6379/v1"},
        {"url": "http://10.1.2.3:8000/v1"},
        {"url": "http://169.254.169.254/v1"},
        {"url": "http://[::1]:8000/v1"},
        {"url": "http://[::ffff:10.0.0.1]/v1"},
        {"url": "http://2130706433/v1"},
        {"url": "http://0x7f.1/v1"},
        {"url": "http://93.184.216.34/v1", "key": OWN_KEY},
        {"key": "two\r\nlines"},
        {"key": ""},
        {"models": ["openai/gpt-4o"]},
    ],
)
async def test_what_is_no_server_is_refused(world: Installation, owner: Person, wrong: dict[str, Any]) -> None:
    body = {"name": "lab", "url": "http://127.0.0.1:9000/v1", **wrong}
    answer = await world.client.post("/v1/ai/servers", json=body, headers=owner.headers)
    assert answer.status_code == 400, answer.text
    assert "secret" not in answer.text
    assert (await world.client.get("/v1/ai/servers", headers=owner.headers)).json() == {"servers": []}


async def test_a_server_that_is_not_there_is_declared_all_the_same(world: Installation, owner: Person) -> None:
    server = await declare_server(world, owner, "http://127.0.0.1:1/v1")
    assert (server["healthy"], server["models"]) == (False, [])
    assert server["problem"] == "The service could not be reached, or closed the connection."
    answer = await world.chat("lab/llama", by=owner.headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert "127.0.0.1" not in answer.text


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("", 404)])
async def test_what_lists_no_models_is_told(
    world: Installation, theirs: Upstream, owner: Person, path: str, status: int
) -> None:
    server = await declare_server(world, owner, theirs.url + path + "/x")
    assert server["problem"] == f"It answered {status}, and no list of models."


async def test_its_redirects_are_not_followed_and_its_owner_reads_what_it_says_of_errors(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    for model, status in (("redirect", 502), ("500", 502), ("html", 502), ("malformed-json", 502), ("400", 400)):
        answer = await world.chat(f"lab/{model}", by=owner.headers)
        assert answer.status_code == status, answer.text
        assert "169.254" not in answer.text
        assert ("The upstream says" in answer.text) is (model in ("400", "500"))
        assert "127.0.0.1" not in answer.text


async def test_a_key_that_it_refuses_is_its_owners_to_put_right(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1", key=OWN_KEY)
    error = (await world.chat("lab/401", by=owner.headers)).json()["error"]
    assert error["code"] == "upstream_denied"
    assert "/v1/ai/servers" in error["message"]


async def test_it_moves_with_its_key_within_a_host_only(world: Installation, theirs: Upstream, owner: Person) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1", key=OWN_KEY)

    async def change(**values: Any) -> Any:
        return await world.client.patch("/v1/ai/servers/lab", json=values, headers=owner.headers)

    assert (await change(url=f"{theirs.url}/proxy")).json()["key"] == "***wxyz"
    async with start_upstream() as elsewhere:
        refusal = await change(url=f"{elsewhere.url}/v1")
        assert refusal.status_code == 400
        assert "`key`" in refusal.json()["error"]["remediation"]
        assert not elsewhere.requests
        response = await change(url=f"{elsewhere.url}/v1", key=None)
        assert (response.json()["url"], response.json()["key"]) == (f"{elsewhere.url}/v1", None)
        await world.chat("lab/gpt-4o-mini", by=owner.headers)
        assert "authorization" not in elsewhere.requests[-1].headers
        assert (await change(key="another-key-abcd")).json()["key"] == "***abcd"
        await world.chat("lab/gpt-4o-mini", by=owner.headers)
        assert elsewhere.requests[-1].headers["authorization"] == "Bearer another-key-abcd"
    assert (await change()).status_code == 400


async def test_what_it_answered_before_it_moved_is_not_said_again(
    world: Installation, theirs: Upstream, owner: Person
) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")

    async def fetch_cache_state() -> str:
        answer = await world.chat("lab/kept", by=owner.headers, cache={})
        assert answer.status_code == 200, answer.text
        return answer.headers["x-baobab-cache"]

    assert [await fetch_cache_state(), await fetch_cache_state()] == ["miss", "hit"]
    async with start_upstream() as elsewhere:
        response = await world.client.patch(
            "/v1/ai/servers/lab", json={"url": f"{elsewhere.url}/v1"}, headers=owner.headers
        )
        assert response.status_code == 200, response.text
        assert [await fetch_cache_state(), await fetch_cache_state()] == ["miss", "hit"]
        assert elsewhere.requests[-1].json["model"] == "kept"


async def test_a_probe_lists_anew_and_a_failed_one_keeps_what_was_listed(world: Installation, owner: Person) -> None:
    async with start_upstream() as fake:
        await declare_server(world, owner, f"{fake.url}/v1")
        response = await world.client.post("/v1/ai/servers/lab/probe", headers=owner.headers)
        assert response.json()["healthy"]
    response = await world.client.post("/v1/ai/servers/lab/probe", headers=owner.headers)
    assert (response.status_code, response.json()["healthy"]) == (200, False)
    assert response.json()["models"] == ["lab/gpt-4o-mini", "lab/text-embedding-3-small"]


async def test_what_is_removed_cannot_be_called_any_more(world: Installation, theirs: Upstream, owner: Person) -> None:
    await declare_server(world, owner, f"{theirs.url}/v1")
    assert (await world.chat("lab/gpt-4o-mini", by=owner.headers)).status_code == 200
    response = await world.client.delete("/v1/ai/servers/lab", headers=owner.headers)
    assert response.json() == {"removed": True, "name": "lab"}
    assert (await world.chat("lab/gpt-4o-mini", by=owner.headers)).status_code == 404
    assert (await world.client.delete("/v1/ai/servers/lab", headers=owner.headers)).status_code == 404


async def test_a_name_is_an_organisations_once(world: Installation, theirs: Upstream, owner: Person) -> None:
    body = {"name": "lab", "url": f"{theirs.url}/v1"}
    asks = [world.client.post("/v1/ai/servers", json=body, headers=owner.headers) for _ in range(3)]
    assert sorted(answer.status_code for answer in await asyncio.gather(*asks)) == [201, 409, 409]


async def test_its_key_is_sealed_and_never_shown(world: Installation, theirs: Upstream, owner: Person) -> None:
    key = "a-key-that-is-in-no-other-test"
    await declare_server(world, owner, f"{theirs.url}/v1", "sealed", key=key)
    refusal = await world.chat("sealed/401", by=owner.headers)
    answers = [
        await world.client.get(path, headers=owner.headers)
        for path in ("/v1/ai/servers", "/v1/ai/servers/sealed", "/v1/audit-logs")
    ]
    probe = await world.client.post("/v1/ai/servers/sealed/probe", headers=owner.headers)
    for answer in (*answers, probe, refusal):
        assert key not in answer.text
    assert key.encode() not in read_database(world.data)
    short = await declare_server(world, owner, f"{theirs.url}/v1", "short", key="abcd")
    assert short["key"] == "***"


async def test_what_the_operator_declares_is_trusted_wherever_it_is(tmp_path: Path) -> None:
    async with start_upstream() as private:
        # No private network is allowed here.
        servers = {"BAOBAB_AI_SERVERS": f"corp={private.url}/v1"}
        async with open_installation(tmp_path / "data", servers) as one, asyncio.timeout(TIMEOUT_SECONDS):
            while "corp/gpt-4o-mini" not in (await one.client.get("/v1/models", headers=one.owner)).text:
                await asyncio.sleep(0.01)
            assert (await one.chat("corp/gpt-4o-mini")).status_code == 200


async def test_whoever_is_no_admin_sees_servers_and_changes_none(world: Installation, theirs: Upstream) -> None:
    home = await get_first_organisation(world)
    member = await create_person(world, "member", role="member")
    by = {**member.headers, "x-organization-id": home}
    body = {"name": "lab", "url": f"{theirs.url}/v1"}
    assert (await world.client.post("/v1/ai/servers", json=body, headers=world.owner)).status_code == 201
    assert (await world.client.get("/v1/ai/servers/lab", headers=by)).status_code == 200
    for method, path, request_body in (
        ("POST", "", {"name": "other", "url": f"{theirs.url}/v1"}),
        ("PATCH", "/lab", {"key": None}),
        ("POST", "/lab/probe", {}),
        ("DELETE", "/lab", {}),
    ):
        answer = await world.client.request(method, f"/v1/ai/servers{path}", json=request_body, headers=by)
        assert answer.status_code == 403, (method, path, answer.text)
    assert (await world.chat("lab/gpt-4o-mini", by=by)).status_code == 200
    assert theirs.requests[-1].json["messages"] == HELLO
