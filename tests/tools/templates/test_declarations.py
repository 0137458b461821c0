"""What clones have is declared for everything that an app has, and docs/templates.md says the same."""

import re
from pathlib import Path

from sqlalchemy import Table

from baobab import tools
from baobab.storage.sql.tables import metadata
from baobab.tools.core.app_clones import ClonedStore, NeverCloned
from baobab.tools.core.auth.tables import apps
from baobab.tools.templates.new_copy import COPIED, WITHHELD

PAGE = Path(__file__).parents[3] / "docs" / "templates.md"


def read_list(heading: str) -> set[str]:
    """The names in the first column of the table below a heading."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


COPIED_NAMES, NEVER_NAMES = read_list("What a clone has"), read_list("What a clone never has")


def test_the_page_lists_what_each_toolset_declares() -> None:
    copied_names, never = {f"apps.{name}" for name in COPIED}, {f"apps.{name}" for name in WITHHELD}
    for toolset in tools.toolsets():
        for rule in toolset.clones:
            names = rule.tables if isinstance(rule, ClonedStore) and rule.tables else (rule.name,)
            (never if isinstance(rule, NeverCloned) else copied_names).update(names)
    assert copied_names == COPIED_NAMES
    never |= {f"apps.{column.name}" for column in apps.columns if f"apps.{column.name}" not in copied_names}
    assert never == NEVER_NAMES


def find_tables_of_apps() -> dict[str, Table]:
    """The tables that name an app, or whose rows go with the row of one."""
    return {
        table.name: table
        for table in metadata.tables.values()
        if table.name != "apps"
        and any(
            "app_id" in column.name or any(key.target_fullname == "apps.id" for key in column.foreign_keys)
            for column in table.columns
        )
    }


def test_every_table_that_names_an_app_says_whether_clones_have_it() -> None:
    declared_names: list[str] = []
    for toolset in tools.toolsets():
        for rule in toolset.clones:
            declared_names += rule.tables if isinstance(rule, ClonedStore) else [rule.name]
    assert find_tables_of_apps().keys() - set(declared_names) == set()
    assert len(declared_names) == len(set(declared_names))


def test_what_keeps_data_outside_of_tables_says_whether_clones_have_it() -> None:
    silent = [toolset.name for toolset in tools.toolsets() if toolset.app_data and not toolset.clones]
    assert silent == []
