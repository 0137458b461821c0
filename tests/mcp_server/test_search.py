"""What people look for in their own words is found among the tools."""

import asyncio
import tomllib
from pathlib import Path

import pytest

from baobab.mcp_server.search import LANGUAGES, ToolIndex, get_name, read_search_words
from baobab.tools import toolsets
from baobab.tools.core.call import Tool
from baobab.tools.core.registry import Registry
from baobab.tools.system.unbuilt import UNBUILT
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool

NONE = "none"
"""Stands in the lists of questions for the answer that no tool does this."""


def list_offered_tools() -> list[Tool]:
    return [tool for tool in Registry(toolsets()).tools.values() if tool.mcp]


def read_questions(name: str) -> dict[str, list[tuple[str, list[str]]]]:
    """The questions of a file by section, each with the names that answer it."""
    text = (Path(__file__).parent / name).read_text()
    return {section: list(pairs.items()) for section, pairs in tomllib.loads(text).items()}


async def find_names(baobab: Baobab, question: str) -> list[str]:
    """The names that an owner's key finds, with NONE where the answer says that no tool does this."""
    answer = (await call_tool(baobab, "search_tools", {"query": question}))["structuredContent"]
    names = [tool["name"] for tool in answer["tools"]]
    return [NONE, *names] if answer.get("hint", "").startswith("No tool") else names


async def find_share(baobab: Baobab, questions: list[tuple[str, list[str]]], most: int) -> tuple[float, list[str]]:
    """The share of questions whose answer is among the first, and the others."""
    missed_questions = [
        question for question, names in questions if not set(names) & set((await find_names(baobab, question))[:most])
    ]
    return 1 - len(missed_questions) / len(questions), missed_questions


@pytest.mark.parametrize("half", [0, 1], ids=["tuned", "held back"])
async def test_questions_in_five_kinds_find_their_tool(baobab: Baobab, half: int) -> None:
    sections = read_questions("questions_in_five_kinds.toml")
    questions = [pair for pairs in sections.values() for pair in pairs[half::2]]
    assert len(questions) == 75
    first, missed_questions = await find_share(baobab, questions, 1)
    assert first >= 0.9, missed_questions
    among_three, missed_questions = await find_share(baobab, questions, 3)
    assert among_three >= 0.95, missed_questions


async def test_earlier_questions_and_other_words_still_find_their_tool(baobab: Baobab) -> None:
    questions = [pair for pairs in read_questions("questions.toml").values() for pair in pairs]
    assert len(questions) == 245
    first, missed_questions = await find_share(baobab, questions, 1)
    assert first >= 0.88, missed_questions
    among_three, missed_questions = await find_share(baobab, questions, 3)
    assert among_three >= 0.94, missed_questions


async def test_questions_in_few_words_find_their_tool(baobab: Baobab) -> None:
    questions = [pair for pairs in read_questions("questions_in_few_words.toml").values() for pair in pairs]
    assert len(questions) == 294
    first, missed_questions = await find_share(baobab, questions, 1)
    assert first >= 0.9, missed_questions
    among_three, missed_questions = await find_share(baobab, questions, 3)
    assert among_three >= 0.95, missed_questions


@pytest.mark.parametrize(
    ("question", "expected_name"),
    [
        ("create users", "users_import"),
        ("supprimer la clé d'API", "api_keys_revoke"),
        ("sign up users", "users_import"),
        ("ask my documents", "rag_query"),
        ("frag meine Dokumente", "rag_query"),
        ("delete every night", "triggers_set"),
        ("jede Nacht löschen", "triggers_set"),
    ],
)
async def test_what_two_words_ask_for_is_found_first(baobab: Baobab, question: str, expected_name: str) -> None:
    first, *others = await find_names(baobab, question)
    assert first == expected_name
    assert "kv_flush" not in others[:1]


@pytest.mark.parametrize(
    "question", ["a customer must not see other customers' invoices", "mark all unpaid invoices as overdue"]
)
async def test_a_search_does_not_send_elsewhere_who_can_do_it_here(baobab: Baobab, question: str) -> None:
    assert "elsewhere" not in (await call_tool(baobab, "search_tools", {"query": question}))["structuredContent"]


async def test_a_search_is_short(baobab: Baobab) -> None:
    sections = read_questions("questions_in_five_kinds.toml")
    questions = [question for pairs in sections.values() for question, _ in pairs]
    lengths = [
        len((await call_tool(baobab, "search_tools", {"query": question}))["content"][0]["text"])
        for question in questions
    ]
    assert sum(lengths) / len(lengths) < 2500
    assert max(lengths) < 6000


async def test_the_first_answer_after_a_start_is_the_same_as_later_ones() -> None:
    tools = list_offered_tools()
    index, names = ToolIndex(tools), {tool.name for tool in tools}
    first, *others = await asyncio.gather(*(index.rank("let users read some keys", names) for _ in range(4)))
    assert get_name(first[0].candidate) == "kv_expose"
    for other in (*others, await ToolIndex(tools).rank("let users read some keys", names)):
        assert other == first


@pytest.mark.parametrize(
    ("question", "what", "where"),
    [
        ("sign up form for my customers", "auth_signup", "only over REST: POST /auth/{app_id}/signup"),
        ("a test copy of the app for staging", "staging and previews", "Not built yet"),
        ("search the organisation's memory", "substrate_search_memory", "a key with the scope `substrate`"),
        ("visitors run an agent without an account", "agents_public_run", "only over REST"),
    ],
)
async def test_a_search_says_that_no_tool_does_this_and_what_does(
    baobab: Baobab, question: str, what: str, where: str
) -> None:
    answer = (await call_tool(baobab, "search_tools", {"query": question}))["structuredContent"]
    assert answer["hint"].startswith("No tool of this connection does this")
    (first, *_) = answer["elsewhere"]
    assert first["what"].startswith(what)
    assert where in first["where"]


async def test_a_search_shows_the_first_schema_and_the_others_on_request(baobab: Baobab) -> None:
    short = (await call_tool(baobab, "search_tools", {"query": "set when a key expires"}))["structuredContent"]
    best, *others = short["tools"]
    assert best["name"] == "kv_expire"
    assert best["inputSchema"]["required"] == ["app_id", "key", "ttl"]
    assert others
    assert all("inputSchema" not in tool for tool in others)
    put = next(tool for tool in others if tool["name"] == "kv_put")
    assert put["call"] == "kv_put(app_id, key, value, ttl?, ephemeral?)"
    assert "Store a value under a key" in put["does"]
    wish = {"query": "agents_validate", "detail": True, "limit": 1}
    (whole,) = (await call_tool(baobab, "search_tools", wish))["structuredContent"]["tools"]
    assert whole["name"] == "agents_validate"
    assert "nodes" in whole["inputSchema"]["properties"]["graph_spec"]["properties"]
    bound_path = f"/mcp?app_id={await baobab.create_app()}"
    tools = (await call_tool(baobab, "search_tools", {"query": "a key"}, path=bound_path))["structuredContent"]["tools"]
    assert not any("app_id," in tool.get("call", "") for tool in tools)


@pytest.mark.parametrize("tool", list_offered_tools(), ids=lambda tool: tool.name)
def test_every_tool_says_what_people_call_it(tool: Tool) -> None:
    words = read_search_words()[tool.name]
    assert list(words) == list(LANGUAGES), "search_words.toml of its domain holds the words of each tool by language"
    assert all(words.values())


def test_no_words_are_left_of_a_tool_that_is_gone() -> None:
    missing_features = {unbuilt.what for unbuilt in UNBUILT}
    assert read_search_words().keys() <= Registry(toolsets()).tools.keys() | missing_features
    assert missing_features <= read_search_words().keys()


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
