"""What people look for in their own words is found among the tools."""

import tomllib
from pathlib import Path

import pytest

from baobab.mcp_server.search import LANGUAGES, ToolIndex, read_search_words
from baobab.tools import toolsets
from baobab.tools.core.call import Tool
from baobab.tools.core.registry import Registry
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool

QUESTIONS = Path(__file__).parent / "questions.toml"


def list_offered_tools() -> list[Tool]:
    return [tool for tool in Registry(toolsets()).tools.values() if tool.mcp]


# With the model 85 and 94 of 95 were reached, by words alone 82 and 91.
@pytest.mark.parametrize(
    ("index", "first", "among_five"),
    [
        pytest.param(ToolIndex(list_offered_tools()), 84, 93, id="words and meaning"),
        pytest.param(ToolIndex(list_offered_tools(), model=None), 81, 90, id="words alone"),
    ],
)
async def test_most_questions_find_their_tool(index: ToolIndex, first: int, among_five: int) -> None:
    names = {tool.name for tool in list_offered_tools()}
    questions = [pair for section in tomllib.loads(QUESTIONS.read_text()).values() for pair in section.items()]
    places = {}
    for question, expected_names in questions:
        found_names = [tool.name for tool in await index.find_best(question, 20, names)]
        places[question] = min((found_names.index(name) for name in expected_names if name in found_names), default=99)
    assert len(places) == 95
    missed_places = {question: place + 1 for question, place in places.items() if place}
    assert sum(place == 0 for place in places.values()) >= first, missed_places
    assert sum(place < 5 for place in places.values()) >= among_five, missed_places


@pytest.mark.parametrize("tool", list_offered_tools(), ids=lambda tool: tool.name)
def test_every_tool_says_what_people_call_it(tool: Tool) -> None:
    words = read_search_words()[tool.name]
    assert list(words) == list(LANGUAGES), "search_words.toml of its domain holds the words of each tool by language"
    assert all(words.values())


def test_no_words_are_left_of_a_tool_that_is_gone() -> None:
    assert read_search_words().keys() <= Registry(toolsets()).tools.keys()


@pytest.mark.parametrize(
    ("query", "expected_name"),
    [
        ("acquire a lock", "kv_setnx"),
        ("schema_apply", "schema_apply"),
        ("rename a table", "schema_apply"),
        ("full-text index", "schema_apply"),
        ("spendig limit", "billing_set_budget"),
        ("Ausgabenlimit", "billing_set_budget"),
        ("¿cuánto espacio estoy usando?", "kv_stats"),
    ],
)
async def test_synonyms_slips_compounds_and_other_languages_are_understood(
    baobab: Baobab, query: str, expected_name: str
) -> None:
    result = await call_tool(baobab, "search_tools", {"query": query})
    assert result["structuredContent"]["tools"][0]["name"] == expected_name


async def test_a_search_that_finds_nothing_tells_which_families_there_are(baobab: Baobab) -> None:
    result = (await call_tool(baobab, "search_tools", {"query": "quantum chromodynamics"}))["structuredContent"]
    assert result["tools"] == []
    assert "other" in result["hint"]
    families = {family["name"]: family["description"] for family in result["families"]}
    assert {"kv", "apps", "agents", "billing"} <= families.keys()
    assert all(families.values())


async def test_the_families_that_are_told_are_those_of_the_connection(baobab: Baobab) -> None:
    path = "/mcp?read_only=true"
    result = (await call_tool(baobab, "search_tools", {"query": "quantum chromodynamics"}, path=path))[
        "structuredContent"
    ]
    assert "suggestions" not in {family["name"] for family in result["families"]}
