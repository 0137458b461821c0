"""Rules mean what the public suite of JSON-Logic says, and hostile ones end early."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.json_logic.context import RuleError, RuleFailed, RuleInvalid
from baobab.runtime.json_logic.rule import Rule

# The compatibility suite of json-logic/compat-tables (Apache-2.0), unchanged; texts in the list are headings.
SUITE = json.loads((Path(__file__).parent / "compatible.json").read_text())
CASES = [case for case in SUITE if isinstance(case, dict)]


def test_all_cases_of_the_public_suite_hold() -> None:
    wrong = []
    for case in CASES:
        result = Rule(case["rule"]).evaluate(case.get("data"))
        if json.dumps(result) != json.dumps(case["result"]):
            wrong.append((case, result))
    assert (len(CASES), wrong) == (278, [])


def nest(levels: int, inner: Any) -> Any:
    rule = inner
    for _ in range(levels):
        rule = {"map": [[0] * 10, rule]}
    return rule


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (nest(12, 1), "visit more than 250000 values"),
        (nest(6, {"cat": ["x" * 100]}), "make more than 16000000 bytes|visit more than 250000 values"),
        (
            {"reduce": [{"var": ""}, {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "x"]},
            "more than 100000 characters",
        ),
        (
            {"reduce": [{"var": ""}, {"merge": [{"var": "accumulator"}, {"var": "accumulator"}]}, [1]]},
            "more than 10000 items",
        ),
        (
            {"reduce": [{"var": ""}, [{"var": "accumulator"}, {"var": "accumulator"}], 1]},
            "visit more than 250000 values",
        ),
        ({"map": [{"var": ""}, {"cat": ["y" * 60_000]}]}, "make more than 16000000 bytes"),
        ({"missing": [[["x"]]]}, "a name is text or a number"),
        ({"missing_some": ["x", []]}, "arithmetic needs numbers"),
        ({"substr": ["text", "x"]}, "arithmetic needs numbers"),
        ({"var": [[1]]}, "a name is text or a number"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_a_rule_that_would_not_end_fails_early_and_says_why(rule: Any, message: str) -> None:
    with pytest.raises(RuleFailed, match=message):
        Rule(rule).evaluate([0] * 200)


def test_a_rule_that_is_too_deep_is_refused() -> None:
    with pytest.raises(RuleInvalid, match="at most 32 deep"):
        Rule(nest(40, 1))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.sampled_from(["a", "a.0", "current"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=8,
)
OPERATORS = sorted({next(iter(case["rule"])) for case in CASES if isinstance(case["rule"], dict)})
RULES = st.recursive(
    VALUES | st.builds(lambda name: {"var": name}, st.sampled_from(["", "a", "a.0", "accumulator", "current"])),
    lambda inner: st.builds(
        lambda name, operands: {name: operands}, st.sampled_from(OPERATORS), st.lists(inner, max_size=4)
    ),
    max_leaves=12,
)


@given(RULES, VALUES)
def test_any_rule_has_a_value_or_says_why_not_and_changes_nothing(rule: Any, data: Any) -> None:
    before = json.dumps([rule, data])
    try:
        result = Rule(rule).evaluate(data)
    except RuleError as exc:
        result = str(exc)
    assert json.loads(json.dumps(result)) == result
    assert json.dumps([rule, data]) == before
