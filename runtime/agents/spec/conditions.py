"""Conditions of edges: rules of JSON-Logic about the state and the input of a run."""

from typing import Any

from baobab.runtime.json_logic.context import RuleInvalid
from baobab.runtime.json_logic.rule import Rule


class Condition(Rule):
    """A rule whose names begin with `state` or `input`."""

    def __init__(self, rule: Any) -> None:
        """`rule` is an object with one operation. Raises RuleInvalid."""
        if not isinstance(rule, dict):
            raise RuleInvalid((), "must be an object with one operation")
        super().__init__(rule, roots=("state", "input"))
