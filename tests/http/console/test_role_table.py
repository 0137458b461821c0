"""The table of roles, on the page Team and in the docs, says what the registry lets each role do."""

from fnmatch import fnmatchcase

import pytest

from baobab.http.console.roles import ROLE_NAMES, ROLE_TABLE, RoleRow
from baobab.tools import toolsets
from baobab.tools.core.auth.access import AnyAccount, least_role
from baobab.tools.core.auth.roles import rank
from baobab.tools.core.registry import Registry
from tests.docs.generate import ROOT
from tests.tools.access import CALLERS, load_policy

TOOLS = {name: tool for name, tool in Registry(toolsets()).tools.items() if tool.access.credential}
POLICY = load_policy()


def find_tools(row: RoleRow) -> list[str]:
    return [name for name in TOOLS if any(fnmatchcase(name, pattern) for pattern in row.tools)]


@pytest.mark.parametrize("row", ROLE_TABLE, ids=lambda row: row.words)
def test_a_row_names_the_lowest_role_that_the_registry_lets_do_it(row: RoleRow) -> None:
    assert {least_role(TOOLS[name].access) for name in find_tools(row)} == {row.role}
    for pattern in row.tools:
        assert any(fnmatchcase(name, pattern) for name in TOOLS), f"no tool is called {pattern}"


@pytest.mark.parametrize("row", [row for row in ROLE_TABLE if row.role != "approver"], ids=lambda row: row.words)
def test_a_row_agrees_with_what_the_calls_of_every_tool_by_every_role_were_answered(row: RoleRow) -> None:
    for name in find_tools(row):
        words = dict(zip(CALLERS, POLICY[name].split(), strict=True))
        for role in ("member", "admin", "owner"):
            if rank(role) >= rank(row.role):
                assert words[role] != "403", f"{name} as {role}"
            elif not isinstance(TOOLS[name].access, AnyAccount):
                # Those of accounts are asked about the caller's own organisation there, in which everybody is owner.
                assert words[role] != "ok", f"{name} as {role}"


def test_no_tool_that_needs_a_higher_role_or_is_open_to_approvers_is_left_out() -> None:
    covered_tools = {name for row in ROLE_TABLE for name in find_tools(row)}
    missing = [
        name for name, tool in TOOLS.items() if least_role(tool.access) != "member" and name not in covered_tools
    ]
    assert missing == []


def test_the_page_of_the_docs_has_the_same_table() -> None:
    lines = [f"| | {' | '.join(ROLE_NAMES.values())} |", "|---|---|---|---|---|"]
    for row in ROLE_TABLE:
        marks = ("yes" if rank(role) >= rank(row.role) else "" for role in ROLE_NAMES)
        lines.append(f"| {row.words} | {' | '.join(marks)} |".replace("|  |", "| |").replace("|  |", "| |"))
    table = "\n".join(lines)
    assert table in (ROOT / "docs/team.md").read_text(), f"docs/team.md has not this table:\n{table}"
