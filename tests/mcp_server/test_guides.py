"""The documentation is there for models: as resources, and through a tool that reads it piece by piece."""

import json
import re
from pathlib import Path

import pytest

from baobab.tools.core.guides import find_guide
from baobab.tools.system.example_calls import list_example_calls
from tests.conftest import Baobab
from tests.installation import reset_rate_limits
from tests.mcp_server.mcp_requests import ERAS, call_tool, send_message
from tests.people import create_key

DOCS = Path(__file__).parents[2] / "docs"
NAMES = {path.stem for path in DOCS.glob("*.md")}
MOST_CHARACTERS = 6000
LONG = {"data", "errors", "tools"}
"""Pages that are too long for one resource."""

each_era = pytest.mark.parametrize("era", ERAS)


@each_era
async def test_every_page_is_a_resource_with_its_size(baobab: Baobab, era: str) -> None:
    resources = (await send_message(baobab, "resources/list", era=era)).result["resources"]
    pages = {one["uri"].removeprefix("baobab://docs/"): one for one in resources if "://docs/" in one["uri"]}
    assert pages.keys() == NAMES
    for name, page in pages.items():
        assert page["title"]
        assert page["description"], name
        (content,) = (await send_message(baobab, "resources/read", {"uri": page["uri"]}, era=era)).result["contents"]
        assert content["mimeType"] == "text/markdown"
        assert len(content["text"].encode()) == page["size"]


@pytest.fixture(autouse=True)
def reset_limits(baobab: Baobab) -> None:
    """Together, these tests read more pages than anybody may in a minute."""
    reset_rate_limits(baobab.application.services)


async def test_links_between_pages_lead_to_resources(baobab: Baobab) -> None:
    for name in sorted(NAMES):
        (content,) = (await send_message(baobab, "resources/read", {"uri": f"baobab://docs/{name}"})).result["contents"]
        for target in re.findall(r"\]\(([^)#\s]+)", content["text"]):
            if "://" not in target:
                await send_message(baobab, "resources/read", {"uri": f"baobab://docs/{target}"})
                assert target.removesuffix(".md") in NAMES


async def test_every_link_to_a_section_is_read_with_the_name_of_that_section(baobab: Baobab) -> None:
    links = set()
    for name in sorted(NAMES):
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", find_guide(name).text):
            if "://" not in target:
                links.add((target.removesuffix(".md") or name, anchor))
    assert len(links) > 100
    for page, anchor in sorted(links):
        read = (await call_tool(baobab, "docs_read", {"name": page, "section": anchor}))["structuredContent"]
        assert read.get("text"), (page, anchor, read)


async def test_a_search_shows_the_sentences_that_match(baobab: Baobab) -> None:
    answer = await call_tool(baobab, "docs_read", {"query": "how long does a counter live", "name": "kv"})
    first = answer["structuredContent"]["found"][0]
    assert "counter" in first["excerpt"]
    assert len(first["excerpt"]) <= 300


async def test_a_page_that_is_not_there_is_no_resource(baobab: Baobab) -> None:
    refusal = (await send_message(baobab, "resources/read", {"uri": "baobab://docs/../README"})).error
    assert refusal["code"] == -32602


async def test_the_tool_is_shown_first_and_lists_the_pages(baobab: Baobab) -> None:
    tools = (await send_message(baobab, "tools/list")).result["tools"]
    assert "docs_read" in {tool["name"] for tool in tools}
    pages = (await call_tool(baobab, "docs_read", {}))["structuredContent"]["pages"]
    assert {page["name"] for page in pages} == NAMES
    assert pages[0]["name"] == "index"


async def test_every_page_can_be_read_to_its_end_in_bounded_pieces(baobab: Baobab) -> None:
    for name in sorted(NAMES):
        whole = (await send_message(baobab, "resources/read", {"uri": f"baobab://docs/{name}"})).result["contents"][0][
            "text"
        ]
        read, section, calls = "", None, 0
        while calls == 0 or section is not None:
            arguments = {"name": name, **({"section": section} if section else {})}
            answer = (await call_tool(baobab, "docs_read", arguments))["structuredContent"]
            assert len(answer["text"]) <= MOST_CHARACTERS
            read, section, calls = read + answer["text"], answer["next"], calls + 1
        assert read == (find_guide(name).text if name in LONG else whole), name


@pytest.mark.parametrize("section", ["nodes", "Nodes", "#nodes"])
async def test_a_section_is_read_with_what_is_below_it(baobab: Baobab, section: str) -> None:
    answer = (await call_tool(baobab, "docs_read", {"name": "graph-spec", "section": section}))["structuredContent"]
    assert answer["text"].startswith("## Nodes")
    assert "### llm" in answer["text"]
    assert "## Edges" not in answer["text"]
    # The section may be longer than one piece.
    assert (
        answer["next"]
        in answer["sections"][answer["sections"].index("nodes") + 2 : answer["sections"].index("edges") + 1]
    )


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [({"name": "graph_spec"}, "graph-spec"), ({"name": "graph-spec", "section": "limit"}, "limits")],
)
async def test_a_name_that_is_nearly_right_is_told_the_right_one(
    baobab: Baobab, arguments: dict[str, str], nearest: str
) -> None:
    refusal = await call_tool(baobab, "docs_read", arguments)
    assert refusal["isError"] is True
    assert f"Did you mean `{nearest}`?" in refusal["content"][0]["text"]


async def test_the_key_of_an_app_may_read_the_documentation(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    by = await create_key(baobab, key_scope="app", target_app_id=app_id)
    answer = await call_tool(baobab, "docs_read", {"name": "kv"}, by=by)
    assert answer["structuredContent"]["title"] == "The key-value store"


async def test_a_page_that_would_fill_a_context_is_a_resource_of_its_sections(baobab: Baobab) -> None:
    read = (await send_message(baobab, "resources/read", {"uri": "baobab://docs/tools"})).result["contents"][0]["text"]
    assert len(read) < 10_000
    assert "- baobab://docs/tools/kv\n" in read
    section = (await send_message(baobab, "resources/read", {"uri": "baobab://docs/tools/kv"})).result["contents"][0]
    assert section["text"].startswith("## kv")
    (following,) = re.findall(r"The page goes on at (\S+)", section["text"])
    rest = (await send_message(baobab, "resources/read", {"uri": following})).result["contents"][0]
    assert "### kv_put" in rest["text"]
    refusal = (await send_message(baobab, "resources/read", {"uri": "baobab://docs/tools/nothing"})).error
    assert refusal["code"] == -32602


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("when do keys expire", "kv"),
        ("policies for rows", "data"),
        ("approvers of a node", "graph-spec"),
        ("sign up of users", "users"),
        ("webhook signature", "agents"),
        ("Budget für eine App", "credits"),
    ],
)
async def test_the_documentation_is_searched_by_words(baobab: Baobab, query: str, page: str) -> None:
    sections = (await call_tool(baobab, "docs_read", {"query": query}))["structuredContent"]["found"]
    assert 0 < len(sections) <= 8
    assert page in [section["name"] for section in sections]
    assert len(str(sections)) < 4000
    first = sections[0]
    wish = {"name": first["name"], "section": first["section"]}
    part = (await call_tool(baobab, "docs_read", wish))["structuredContent"]
    assert first["title"] in part["text"]
    here = (await call_tool(baobab, "docs_read", {"query": query, "name": page}))["structuredContent"]["found"]
    assert {section["name"] for section in here} == {page}


async def test_the_examples_of_a_page_come_as_calls_too(baobab: Baobab) -> None:
    answer = (await call_tool(baobab, "docs_read", {"name": "data"}))["structuredContent"]
    assert 'data_insert {"table":"posts","values":{"title":"Hello","public":true}}' in answer["calls"]
    wish = 'data_list {"table":"posts","select":"title,public","where":{"title":"ilike.hel*"}}'
    assert wish in answer["calls"]
    assert any(call.startswith("schema_apply {") for call in answer["calls"])


def test_every_example_of_every_page_is_a_call_that_its_tool_takes(baobab: Baobab) -> None:
    registry = baobab.application.registry
    calls = [
        call for name in NAMES for part in find_guide(name).parts for call in list_example_calls(part.text, registry)
    ]
    assert len(calls) > 100
    for call in calls:
        name, _, arguments = call.partition(" ")
        tool = registry.tools[name]
        app = {tool.app_parameter: "app_1a2b3c4d5e6f"} if tool.app_parameter else {}
        assert tool.mcp
        assert tool.names_fit({**json.loads(arguments), **app}), call


def test_a_path_that_goes_on_after_a_key_is_the_call_of_its_own_tool(baobab: Baobab) -> None:
    registry = baobab.application.registry
    text = "```sh\ncurl -X POST $BAOBAB/v1/$APP/kv/public:visits/incr\ncurl $BAOBAB/v1/$APP/kv/public:visits\n```\n"
    assert list_example_calls(text, registry) == ['kv_incr {"key":"public:visits"}', 'kv_get {"key":"public:visits"}']
