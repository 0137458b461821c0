"""What a clone of an app has of its key-value store: the rules that expose keys, and no key."""

from collections.abc import Iterable
from typing import Any

from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone
from baobab.tools.core.guard.own_prefixes import list_abilities
from baobab.tools.kv.tables import own_prefixes, rules_table


def _copy_rule(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    del cloning
    return row


def _list_abilities(row: Row) -> Iterable[Ability]:
    verbs = [verb for verb in ("read", "write") if row[verb] == "public"]
    if verbs:
        says = f"Anyone without signing in may {' and '.join(verbs)} the keys `{row['pattern']}`."
        yield Ability("open_keys", row["pattern"], says)


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        rules_table,
        "replaying_config",
        "the rules that expose keys",
        _copy_rule,
        list_abilities=_list_abilities,
        is_home=True,
    ),
    *never_clone("keys are data", "keys", "kv_outside_keys"),
    *never_clone(
        "marks of the app's own texts: a copy's texts are a stranger's",
        "kv_own_prefixes",
        list_abilities=list_abilities(own_prefixes, "keys", "kv_own_text"),
    ),
)
