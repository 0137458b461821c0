"""Lists of tools: each caller its own, few at first, the rest found by search."""

import ast
import importlib.util
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from mcp_types import SERVER_INFO_META_KEY

from baobab.mcp_server import catalogue
from baobab.mcp_server.catalogue import build_example
from baobab.tools.core.errors import name_operations
from baobab.tools.core.registry import Registry
from baobab.tools.core.tool_errors import errors_of
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import EARLIER, ERAS, MODERN, call_tool, give_tools, read_refusal, send_message
from tests.people import create_person

ROOT = Path(__file__).parents[2]
USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
MOST_AT_START, MOST_TOKENS, MOST_CHARACTERS = 25, 5500, 20_000
FIRST_HOUR = {
    *("apps_init", "apps_list", "schema_apply", "schema_get", "data_list", "data_insert", "data_update"),
    *("rls_create_policy", "agents_create", "agents_run", "agents_runs_get", "kv_get", "kv_put"),
    *("docs_read", "system_llms_txt", "search_tools", "call_tool"),
}

each_era = pytest.mark.parametrize("era", ERAS)


async def list_tools(baobab: Baobab, path: str = "/mcp", **how: Any) -> dict[str, dict[str, Any]]:
    """The whole list by name, in its order."""
    tools, cursor = [], None
    while True:
        page = (await send_message(baobab, "tools/list", {"cursor": cursor} if cursor else {}, path=path, **how)).result
        tools += page["tools"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return {tool["name"]: tool for tool in tools}


async def create_key(baobab: Baobab, **options: Any) -> dict[str, str]:
    response = await baobab.client.post("/api-keys", json={"name": "a key", **options}, headers=baobab.owner)
    assert response.status_code == 201, response.text
    return {"authorization": f"Bearer {response.json()['key']}"}


@pytest.fixture
def tokens() -> Any:
    """Counts tokens as GPT-4 does; the table lies within a package that is installed anyway."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(spec.origin).parent / "litellm_core_utils" / "tokenizers")
    encoding = tiktoken.get_encoding("cl100k_base")
    return lambda text: len(encoding.encode(text))


@each_era
async def test_the_start_set_is_small(baobab: Baobab, era: str, tokens: Any) -> None:
    answer = await send_message(baobab, "tools/list", era=era)
    names = [tool["name"] for tool in answer.result["tools"]]
    assert len(names) <= MOST_AT_START
    assert set(names) == FIRST_HOUR
    list_text = json.dumps(answer.result["tools"], separators=(",", ":"), ensure_ascii=False)
    assert len(list_text) < MOST_CHARACTERS
    assert tokens(list_text) < MOST_TOKENS


async def test_every_kind_of_caller_is_shown_a_small_list_first(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    user = await baobab.user_headers(app_id, USER)
    await give_tools(baobab, app_id, ["kv_get", "kv_put"])
    app_key = await create_key(baobab, key_scope="app", target_app_id=app_id)
    for by in (baobab.owner, user, app_key):
        assert 0 < len(await list_tools(baobab, by=by)) <= MOST_AT_START


@each_era
async def test_an_address_that_opens_nothing_says_why_and_what_the_key_opens(baobab: Baobab, era: str) -> None:
    by = await create_key(baobab, key_scope="app", target_app_id=await baobab.create_app())
    refusal = await send_message(baobab, "tools/list", path="/mcp?toolsets=substrate", by=by, era=era)
    assert refusal.status == 403
    error_data = refusal.error["data"]
    assert error_data["code"] == "MCP_TOOLSETS_CLOSED"
    assert "a key with the scope `substrate`" in refusal.error["message"]
    assert error_data["details"]["closed"] == ["substrate"]
    open_toolsets = error_data["details"]["open"]
    assert "kv" in open_toolsets
    assert "substrate" not in open_toolsets
    for name in open_toolsets:
        assert await list_tools(baobab, f"/mcp?toolsets={name}", by=by, era=era)
    # Where something is open, only what is missing is told.
    assert {"kv_get"} <= set(await list_tools(baobab, "/mcp?toolsets=kv,substrate", by=by, era=era))


async def test_instructions_say_which_toolsets_of_the_address_are_closed(baobab: Baobab) -> None:
    by = await create_key(baobab, key_scope="app", target_app_id=await baobab.create_app())
    client = {
        "protocolVersion": EARLIER,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    reply = await send_message(baobab, "initialize", client, path="/mcp?toolsets=kv,substrate", by=by)
    assert "`substrate` has no tool here" in reply.result["instructions"]
    assert "`kv`" not in reply.result["instructions"]
    key = await create_key(baobab, toolsets=["kv"])
    refusal = await send_message(baobab, "tools/list", path="/mcp?toolsets=files", by=key)
    assert "its toolsets are kv" in refusal.error["message"]


async def test_a_key_of_the_substrate_is_shown_first_what_it_can_do_there(baobab: Baobab, tokens: Any) -> None:
    tools = await list_tools(baobab, by=await create_key(baobab, scope="substrate"))
    expected_names = {"substrate_propose", "substrate_actions", "substrate_search_memory", "substrate_entities"}
    assert expected_names | {"search_tools", "call_tool"} <= tools.keys()
    assert len(tools) <= MOST_AT_START
    assert tokens(json.dumps(list(tools.values()), separators=(",", ":"))) < MOST_TOKENS


@each_era
async def test_all_tools_are_listed_on_request_with_schema_and_hints(baobab: Baobab, era: str) -> None:
    tools = await list_tools(baobab, "/mcp?toolsets=all", era=era)
    assert list(tools) == sorted(tools)
    assert len(tools) > MOST_AT_START
    assert tools["kv_get"]["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
    assert tools["kv_flush"]["annotations"]["destructiveHint"] is True
    assert tools["kv_put"]["annotations"]["idempotentHint"] is True
    assert tools["kv_put"]["inputSchema"]["required"] == ["app_id", "key", "value"]
    assert not {"search_tools", "call_tool"} & tools.keys()
    assert "$ref" not in json.dumps(tools)
    # Null is offered only where it says something else than leaving the argument out.
    for tool in tools.values():
        for argument in tool["inputSchema"]["properties"].values():
            assert '"null"' not in json.dumps(argument) or "null" in argument["description"], tool


async def test_both_eras_list_the_same_tools_in_the_same_words(baobab: Baobab) -> None:
    for path in ("/mcp", "/mcp?toolsets=all", "/mcp?toolsets=kv&read_only=true"):
        assert await list_tools(baobab, path, era=EARLIER) == await list_tools(baobab, path, era=MODERN)


async def test_a_family_of_tools_can_be_chosen(baobab: Baobab) -> None:
    tools = await list_tools(baobab, "/mcp?toolsets=kv,apps")
    assert {name.split("_")[0] for name in tools} == {"kv", "apps"}
    refusal = (await send_message(baobab, "tools/call", {"name": "config_get"}, path="/mcp?toolsets=kv")).error
    assert refusal["code"] == -32602


@each_era
async def test_a_connection_may_only_read(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    path = "/mcp?toolsets=all&read_only=true"
    tools = await list_tools(baobab, path, era=era)
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools.values())
    put = {"name": "kv_put", "arguments": {"app_id": app_id, "key": "a", "value": 1}}
    assert (await send_message(baobab, "tools/call", put, path=path, era=era)).error["code"] == -32602
    through = {"name": "call_tool", "arguments": put}
    assert (await send_message(baobab, "tools/call", through, path="/mcp?read_only=true", era=era)).result["isError"]
    assert (await baobab.client.get(f"/v1/{app_id}/kv/a", headers=baobab.owner)).status_code == 404


@each_era
async def test_a_connection_may_be_bound_to_one_app(baobab: Baobab, era: str) -> None:
    here, elsewhere = await baobab.create_app(), await baobab.create_app()
    path = f"/mcp?app_id={here}"
    tools = await list_tools(baobab, path, era=era)
    assert not any("app_id" in tool["inputSchema"]["properties"] for name, tool in tools.items() if "kv" in name)
    await call_tool(baobab, "kv_put", {"key": "a", "value": 1}, path=path, era=era)
    assert (await call_tool(baobab, "kv_get", {"key": "a"}, path=path, era=era))["structuredContent"] == {"value": 1}
    inside = await call_tool(baobab, "call_tool", {"name": "kv_exists", "arguments": {"key": "a"}}, path=path, era=era)
    assert inside["structuredContent"] == {"exists": True}
    for app_id, is_error in ((here, False), (elsewhere, True)):
        result = await call_tool(baobab, "kv_get", {"app_id": app_id, "key": "a"}, path=path, era=era)
        assert result["isError"] is is_error


async def test_the_key_of_an_app_need_not_name_it(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    by = await create_key(baobab, key_scope="app", target_app_id=app_id)
    await call_tool(baobab, "kv_put", {"key": "a", "value": 1}, by=by)
    assert (await call_tool(baobab, "kv_get", {"app_id": app_id, "key": "a"}, by=by))["structuredContent"] == {
        "value": 1
    }


@each_era
async def test_limits_that_a_key_was_made_with_hold_in_every_view(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    by = await create_key(baobab, toolsets=["kv"], read_only=True)
    tools = await list_tools(baobab, "/mcp?toolsets=all", by=by, era=era)
    assert "kv_get" in tools
    assert all(name.startswith("kv_") and tool["annotations"]["readOnlyHint"] for name, tool in tools.items())
    put = {"name": "kv_put", "arguments": {"app_id": app_id, "key": "a", "value": 1}}
    # Which tools there are is no secret; why this key has one not, its person must learn.
    refusal = read_refusal((await send_message(baobab, "tools/call", put, by=by, era=era)).result)
    assert refusal["code"] == "AUTH_KEY_LIMITED"
    assert refusal["message"] == "This key cannot call kv_put: the key only reads."
    elsewhere = {"name": "call_tool", "arguments": {"name": "apps_list"}}
    assert (await send_message(baobab, "tools/call", elsewhere, by=by, era=era)).error["code"] == -32602
    over_rest = await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=by)
    assert over_rest.status_code == 403
    assert "only reads" in over_rest.json()["message"]


async def test_a_caller_is_listed_only_what_it_could_use(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    await give_tools(baobab, app_id, ["kv_get"])
    names = set(await list_tools(baobab, by=await baobab.user_headers(app_id, USER)))
    assert "kv_get" in names
    assert not names & {"kv_flush", "apps_init", "config_get", "api_keys_create"}


async def test_models_are_not_offered_what_takes_a_password(baobab: Baobab) -> None:
    names = set(await list_tools(baobab, "/mcp?toolsets=all"))
    assert not names & {"platform_signup", "platform_login", "platform_refresh", "oauth_register"}
    refusal = await send_message(baobab, "tools/call", {"name": "platform_login", "arguments": {}})
    assert refusal.error["code"] == -32602


@each_era
async def test_a_tool_is_found_by_what_it_does_and_called_through_another(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    tools = await list_tools(baobab, era=era)
    result = await call_tool(baobab, "search_tools", {"query": "which web origins may call my app"}, era=era)
    best = result["structuredContent"]["tools"][0]
    assert best["name"] == "config_cors"
    assert best["name"] not in tools
    assert "allowed_origins" in best["inputSchema"]["properties"]
    arguments = {"app_id": app_id, "allowed_origins": ["https://a.example"]}
    call_result = await call_tool(baobab, "call_tool", {"name": best["name"], "arguments": arguments}, era=era)
    assert not call_result.get("isError"), call_result
    config = await baobab.client.get(f"/v1/{app_id}/config", headers=baobab.owner)
    assert "https://a.example" in config.text


@pytest.mark.parametrize(
    ("query", "expected_name"),
    [
        ("increase a counter atomically", "kv_incr"),
        ("invite a colleague", "organisations_invite"),
        ("make a new api key", "api_keys_create"),
        ("how long do tokens of my users live", "config_jwt"),
        ("when does a key expire", "kv_ttl"),
        ("report a bug", "suggestions_create"),
        ("delete every key", "kv_flush"),
        ("what was done to the app, by whom", "audit_logs_list"),
    ],
)
async def test_what_is_sought_is_among_the_first_five(baobab: Baobab, query: str, expected_name: str) -> None:
    result = await call_tool(baobab, "search_tools", {"query": query})
    assert expected_name in [tool["name"] for tool in result["structuredContent"]["tools"]]


async def test_a_search_finds_nothing_that_the_caller_may_not_use(baobab: Baobab) -> None:
    app_key = await create_key(baobab, key_scope="app", target_app_id=await baobab.create_app())
    everything = await list_tools(baobab, "/mcp?toolsets=all", by=app_key)
    for query in ("delete", "make an organisation", "create an app", "revoke a key"):
        result = await call_tool(baobab, "search_tools", {"query": query, "limit": 20}, by=app_key)
        assert {tool["name"] for tool in result["structuredContent"]["tools"]} <= everything.keys()


@each_era
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("search_tools", {}, "VALIDATION_MISSING_FIELD"),
        ("search_tools", {"query": 7}, "VALIDATION_INVALID_TYPE"),
        ("search_tools", {"query": "a", "limit": True}, "VALIDATION_INVALID_TYPE"),
        ("search_tools", {"query": "a", "limit": 0}, "VALIDATION_INVALID_INPUT"),
        ("search_tools", {"query": "a" * 401}, "VALIDATION_INVALID_INPUT"),
        ("search_tools", {"query": "a", "colour": 1}, "VALIDATION_INVALID_SCHEMA"),
        ("call_tool", {"arguments": {}}, "VALIDATION_MISSING_FIELD"),
        ("call_tool", {"name": ["kv_get"]}, "VALIDATION_INVALID_TYPE"),
        ("call_tool", {"name": "kv_get", "arguments": "{}"}, "VALIDATION_INVALID_TYPE"),
        ("call_tool", {"name": "kv_get", "key": "a"}, "VALIDATION_INVALID_SCHEMA"),
    ],
)
async def test_search_and_call_say_what_is_wrong_with_their_arguments(
    baobab: Baobab, era: str, tool: str, arguments: dict[str, Any], code: str
) -> None:
    refusal = await call_tool(baobab, tool, arguments, era=era)
    assert refusal["isError"] is True
    assert read_refusal(refusal)["code"] == code


async def test_a_call_cannot_go_round_in_circles(baobab: Baobab) -> None:
    inner = {"name": "call_tool", "arguments": {"name": "kv_get", "arguments": {}}}
    assert (await send_message(baobab, "tools/call", {"name": "call_tool", "arguments": inner})).result["isError"]


@pytest.mark.own_installation
async def test_a_long_list_comes_in_pages(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baobab.mcp_server.catalogue.PAGE", 10)
    path = "/mcp?toolsets=all"
    first = (await send_message(baobab, "tools/list", path=path)).result
    assert len(first["tools"]) == 10
    assert len(await list_tools(baobab, path)) > 40
    assert await list_tools(baobab, path, era=EARLIER) == await list_tools(baobab, path, era=MODERN)


@each_era
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("toolsets=kv,nonsense", "nonsense"),
        ("toolsets=", "toolset"),
        ("app_id=app_%00", "app_id"),
        ("read_only=yes", "read_only"),
        ("results=xml", "results"),
        ("colour=red", "colour"),
        ("read_only=true&read_only=false", "twice"),
    ],
)
async def test_an_address_that_asks_for_an_unknown_view_is_refused(
    baobab: Baobab, era: str, query: str, text: str
) -> None:
    refusal = await send_message(baobab, "tools/list", path=f"/mcp?{query}", era=era)
    assert refusal.status == 400
    assert text in refusal.error["message"]
    assert refusal.error["data"]["remediation"]


async def test_a_list_is_for_its_caller_alone_and_stays_fresh_for_a_while(baobab: Baobab) -> None:
    result = (await send_message(baobab, "tools/list", era=MODERN)).result
    assert result["cacheScope"] == "private"
    assert result["ttlMs"] > 0


def find_routes(text: str, registry: Registry) -> list[str]:
    """Method and path, or the beginning of a path of ours: what no model can call."""
    first = {tool.rest.path.split("/")[1] for tool in registry.tools.values() if tool.rest}
    ours = "|".join(sorted(re.escape(segment) for segment in first if segment and not segment.startswith("{")))
    return re.findall(rf"\b(?:GET|POST|PUT|PATCH|DELETE)\b|(?<![\w.:/])/(?:{ours})\b", text)


async def test_nothing_that_a_model_reads_of_tools_names_a_route(baobab: Baobab) -> None:
    registry = baobab.application.registry
    for tool in (await list_tools(baobab, "/mcp?toolsets=all")).values():
        # `DELETE` is also a command of SQL, which a policy is about; and functions are called with any method.
        text = re.sub('"(GET|POST|PUT|PATCH|DELETE)"', "", json.dumps(tool).replace("ending in /v1", ""))
        assert not find_routes(text, registry), tool
        assert not re.search(r"\bop:[a-z]", json.dumps(tool))
    result = await call_tool(baobab, "search_tools", {"query": "move an app to another region", "limit": 20})
    assert "source_replicas_delete" in json.dumps(result["structuredContent"])
    assert not find_routes(result["content"][0]["text"].replace("ending in /v1", ""), registry)


def test_no_error_of_a_tool_tells_a_model_of_a_route_where_there_is_a_tool(baobab: Baobab) -> None:
    registry = baobab.application.registry
    texts = {kind.summary for tool in registry.tools.values() if tool.mcp for kind in errors_of(tool)}
    texts |= {kind.remediation for tool in registry.tools.values() if tool.mcp for kind in errors_of(tool)}
    texts |= {text for room in ("tools", "runtime", "storage") for text in find_remedies(ROOT / room)}
    assert len(texts) > 150
    for text in texts:
        # What models are not offered has no other name than its route: a person does it.
        assert not find_routes(name_operations(text), registry), text


def find_remedies(folder: Path) -> Iterator[str]:
    """Yields the remedies that code in a folder gives to single errors."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "remediation":
                constants = (part for part in ast.walk(node.value) if isinstance(part, ast.Constant))
                yield from (part.value for part in constants if isinstance(part.value, str))


async def test_every_tool_has_a_title_for_people_and_every_argument_a_description(baobab: Baobab) -> None:
    for tool in (await list_tools(baobab, "/mcp?toolsets=all")).values():
        assert tool["title"].lower().replace(" ", "_") != tool["name"]
        assert len(tool["title"]) <= 80
        for name, argument in tool["inputSchema"]["properties"].items():
            choices = [argument, *argument.get("anyOf", ())]
            assert any(choice.get("description") for choice in choices), f"{tool['name']}: {name}"
    assert (await list_tools(baobab, "/mcp?toolsets=kv"))["kv_delete"]["title"] == "Delete a key"
    # What is answered by one name and asked by another says so.
    run = (await list_tools(baobab, "/mcp?toolsets=agents"))["agents_runs_get"]["inputSchema"]["properties"]["id"]
    assert "`run_id` that its start returned" in run["description"]


@each_era
async def test_the_server_has_an_icon_that_a_client_can_show(baobab: Baobab, era: str) -> None:
    method = "server/discover" if era == MODERN else "initialize"
    client = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    answer = (await send_message(baobab, method, {} if era == MODERN else client, era=era)).result
    server_info = answer.get("serverInfo") or answer["_meta"][SERVER_INFO_META_KEY]
    (icon,) = server_info["icons"]
    response = await baobab.client.get(icon["src"])
    assert response.status_code == 200
    assert response.headers["content-type"] == icon["mimeType"]


async def test_lists_of_many_views_push_out_no_other_organisations_lists(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers: list[object] = []

    class Counted(catalogue.Offer):
        def __init__(self, *arguments: Any) -> None:
            offers.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(catalogue, "Offer", Counted)
    monkeypatch.setattr(catalogue, "_REMEMBERED", 6)
    neighbour = (await create_person(baobab, "neighbour")).headers
    paths = ("/mcp?toolsets=kv", "/mcp?toolsets=apps", "/mcp")
    tools = [await list_tools(baobab, path, by=neighbour) for path in paths]
    families = sorted(toolset.name for toolset in baobab.application.registry.toolsets)
    for first, second in itertools.islice(itertools.combinations(families, 2), 20):
        await list_tools(baobab, f"/mcp?toolsets={first},{second}")
    offers.clear()
    assert [await list_tools(baobab, path, by=neighbour) for path in paths] == tools
    assert offers == []


@each_era
async def test_lists_are_taken_from_the_callers_requests(baobab: Baobab, era: str) -> None:
    headers = (await create_person(baobab, "hurried")).headers
    for _ in range(590):
        assert (await baobab.client.get("/platform/me", headers=headers)).status_code == 200
    for method in ("tools/list", "prompts/list", "resources/list", "tools/list", "resources/templates/list"):
        assert (await send_message(baobab, method, era=era, by=headers)).status == 200
    answers = [await send_message(baobab, "tools/list", era=era, by=headers) for _ in range(6)]
    refusal = answers[-1]
    assert [answer.status for answer in answers] == [200] * 5 + [429]
    assert refusal.message["id"] == 1
    assert refusal.error["data"]["code"] == "QUOTA_RATE_LIMIT"
    assert int(refusal.headers["retry-after"]) > 0
    assert (await send_message(baobab, "tools/list", era=era)).status == 200


async def test_a_long_schema_is_shown_in_one_tool_and_the_others_point_to_it(baobab: Baobab) -> None:
    tools = await list_tools(baobab, "/mcp?toolsets=agents")
    whole = tools["agents_validate"]["inputSchema"]["properties"]["graph_spec"]
    assert {"entry", "nodes", "edges", "tools"} <= whole["properties"].keys()
    for name in ("agents_create", "agents_update"):
        pointer = tools[name]["inputSchema"]["properties"]["graph_spec"]
        assert "properties" not in pointer
        assert "docs_read" in pointer["description"]
        assert "agents_validate" in pointer["description"]


def test_the_example_of_a_tool_is_one_that_it_takes(baobab: Baobab) -> None:
    examples = [(tool, build_example(tool)) for tool in baobab.application.registry.tools.values() if tool.mcp]
    assert sum(bool(example) for _, example in examples) > 60
    for tool, example in examples:
        if example:
            app = {tool.app_parameter: "app_1a2b3c4d5e6f"} if tool.app_parameter else {}
            tool.arguments.model_validate({**app, **example})
            assert len(json.dumps(example)) < 700


async def test_a_tool_that_is_only_for_rest_says_so_when_it_is_called(baobab: Baobab) -> None:
    for tool in baobab.application.registry.tools.values():
        if not tool.mcp:
            refusal = await send_message(baobab, "tools/call", {"name": tool.name, "arguments": {}})
            assert refusal.error["code"] == -32602
            assert f"{tool.name} is not called over MCP" in refusal.error["message"]
            assert tool.rest is None or f"{tool.rest.method} {tool.rest.path}" in refusal.error["message"]


async def test_a_tool_that_takes_an_object_shows_an_example(baobab: Baobab) -> None:
    tools = await list_tools(baobab, "/mcp?toolsets=all")
    for name in ("schema_apply", "data_insert", "data_list", "data_update", "kv_batch", "agents_create", "data_batch"):
        assert "Example (beside app_id): {" in tools[name]["description"]
    bound_tools = await list_tools(baobab, f"/mcp?app_id={await baobab.create_app()}")
    assert 'Example: {"table":"posts"' in bound_tools["data_insert"]["description"]
