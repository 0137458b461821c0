"""Every tool answers every caller as the tables of the domains say (tests/tools/access.py): the policy of record."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.backends import ACTIVE_BACKEND, SqliteBackend
from tests.conftest import Baobab
from tests.tools.access import CALLERS, KV_UNEXPOSED, World, find_domain, load_policies, load_policy, open_world

pytestmark = pytest.mark.own_installation

_POLICIES, POLICY = load_policies(), load_policy()


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.fixture
async def world(baobab: Baobab) -> AsyncIterator[World]:
    async with open_world(baobab) as created_world:
        yield created_world


def choose_callers(row: str) -> dict[str, str]:
    """The callers to ask, with the word of each. Postgres need not see all of them, for who may call a tool is decided
    before it reads or writes a row: the first who gets an answer of each kind is enough there.
    """
    words = dict(zip(CALLERS, row.split(), strict=True))
    if isinstance(ACTIVE_BACKEND[0], SqliteBackend):
        return words
    first = {word: name for name, word in reversed(words.items())}
    return {name: word for name, word in words.items() if first[word] == name}


def test_every_tool_has_a_row_beside_the_tests_of_its_domain_and_every_row_a_tool(baobab: Baobab) -> None:
    tools = baobab.application.registry.tools
    missing = [
        f"{name}: add a row to POLICY in tests/tools/{find_domain(tool)}/access_policy.py"
        for name, tool in tools.items()
        if name not in _POLICIES.get(find_domain(tool), {})
    ]
    assert missing == []
    assert [name for name in POLICY if name not in tools] == []


@pytest.mark.parametrize("row", sorted(set(POLICY.values())))
def test_every_row_has_a_word_for_every_caller(row: Any) -> None:
    assert len(row.split()) == len(CALLERS)
    assert set(row.split()) <= {"ok", "401", "403", "404"}


@pytest.mark.parametrize("domain", sorted(_POLICIES))
async def test_every_tool_answers_every_caller_as_the_table_says(world: Any, domain: str) -> None:
    wrong = []
    for tool, row in _POLICIES[domain].items():
        # A quick machine asks more of one app in a minute than an app may be asked; that is not what this is about.
        world.baobab.application.services.limits._windows.clear()
        for name, expected_answer in choose_callers(row).items():
            result = await world.call_tool(tool, world.callers[name], expected_answer)
            if result != expected_answer:
                wrong.append(f"{tool} for {name}: {result}, not {expected_answer}")
    assert wrong == []


async def test_lists_of_tools_hold_no_tool_that_the_table_refuses_to_that_kind_of_caller(world: Any) -> None:
    """What MCP shows to a caller it may at least try: nobody is shown a tool that no one of their kind can use."""
    registry, credentials = world.baobab.application.registry, world.baobab.application.services.credentials
    for name in ("user", "app key", "function key", "owner", "owner's key"):
        header = world.callers[name].headers["authorization"].encode()
        names = {tool.name for tool in registry.visible_to(await credentials.caller(header))}
        words = {tool: row.split()[CALLERS.index(name)] for tool, row in POLICY.items()}
        assert {tool for tool, word in words.items() if word == "ok" and registry.find(tool).mcp} <= names, name
        refused_tools = {tool for tool in names if words[tool] in ("401", "403")}
        # Rules may open keys to a user; by default none does.
        exposable_tools = {tool for tool, row in POLICY.items() if row == KV_UNEXPOSED}
        assert refused_tools <= (exposable_tools if name == "user" else set()), name
