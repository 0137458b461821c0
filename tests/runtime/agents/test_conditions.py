"""Conditions say what JSON-Logic says, in bounded time and memory, and run nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.runtime.agents.spec.conditions import Condition
from baobab.runtime.json_logic.context import EvaluationContext, RuleError, RuleFailed, RuleInvalid

PAGE = (Path(__file__).parents[3] / "docs/graph-spec.md").read_text()

DATA = {
    "state": {
        "n": 5,
        "zero": 0,
        "text": "5",
        "word": "tree",
        "empty": "",
        "none": None,
        "list": [1, "b", None, {"id": 7}],
        "object": {"a": 1},
        "large": 9_007_199_254_740_993,
    },
    "input": {"yes": True, "no": False, "ratio": 0.5},
}


def evaluate(rule: Any) -> Any:
    return Condition(rule).evaluate(DATA)


N, TEXT, WORD, NONE = ({"var": f"state.{name}"} for name in ("n", "text", "word", "none"))
GONE, LIST, OBJECT, LARGE = ({"var": f"state.{name}"} for name in ("gone", "list", "object", "large"))


@pytest.mark.parametrize(
    ("rule", "expected_value"),
    [
        (N, 5),
        ({"var": ["state.n"]}, 5),
        ({"var": "state.list.3.id"}, 7),
        ({"var": "state.list.9"}, None),
        ({"var": "state.list.-1"}, None),
        ({"var": "state.word.0"}, None),
        ({"var": "state.__class__"}, None),
        ({"var": ["state.gone", 3]}, 3),
        ({"var": ["state.gone", {"+": [1, 1]}]}, 2),
        ({"var": ["state.none", 3]}, None),
        ({"var": ["state.none.x", 3]}, 3),
        ({"var": ""}, DATA),
        ({"missing": ["state.n", "state.none", "state.empty", "state.zero"]}, ["state.none", "state.empty"]),
        ({"missing": "input.yes"}, []),
        ({"missing": [["input.x", "input.yes"]]}, ["input.x"]),
        ({"==": [N, TEXT]}, True),
        ({"==": [N, " 5.0 "]}, True),
        ({"==": [N, "five"]}, False),
        ({"==": ["", 0]}, True),
        ({"==": [None, 0]}, False),
        ({"==": [NONE, GONE]}, True),
        ({"==": [True, "1"]}, True),
        ({"==": [True, 2]}, False),
        ({"==": [LIST, "1,b"]}, False),
        ({"==": [[1, 2], [1, 2]]}, True),
        ({"==": [[1], [True]]}, False),
        ({"==": [OBJECT, OBJECT]}, True),
        ({"==": [OBJECT, LIST]}, False),
        ({"!=": [N, TEXT]}, False),
        ({"===": [N, TEXT]}, False),
        ({"===": [N, 5.0]}, True),
        ({"===": [True, 1]}, False),
        ({"===": [LARGE, 9_007_199_254_740_992]}, False),
        ({"!==": [N, TEXT]}, True),
        ({">": [N, 4]}, True),
        ({">": ["b", "a"]}, True),
        ({">": ["10", "9"]}, False),
        ({">": ["10", 9]}, True),
        ({">=": [N, TEXT]}, True),
        ({"<": [GONE, 1]}, True),
        ({"<": ["x", 1]}, False),
        ({">": ["x", 1]}, False),
        ({"<": [LIST, 1]}, False),
        ({"<": [1, N, 9]}, True),
        ({"<": [1, N, 5]}, False),
        ({"<=": [1, N, 5]}, True),
        ({"!": [[]]}, True),
        ({"!": N}, False),
        ({"!!": "0"}, True),
        ({"!!": [""]}, False),
        ({"!!": [0]}, False),
        ({"!!": [OBJECT]}, True),
        ({"!!": [{"var": "input.no"}]}, False),
        ({"and": [1, "", 3]}, ""),
        ({"and": [1, 2]}, 2),
        ({"or": [0, [], "x", 1]}, "x"),
        ({"or": [0, None]}, None),
        ({"if": [GONE, 1, N, 2, 3]}, 2),
        ({"if": [GONE, 1, 3]}, 3),
        ({"if": [GONE, 1]}, None),
        ({"in": ["re", WORD]}, True),
        ({"in": [5, {"cat": ["4", N]}]}, True),
        ({"in": ["b", LIST]}, True),
        ({"in": [1.0, LIST]}, True),
        ({"in": [True, LIST]}, False),
        ({"in": ["a", OBJECT]}, False),
        ({"in": ["a", GONE]}, False),
        ({"+": [N, TEXT, "-1.5e1"]}, -5),
        ({"+": "3"}, 3),
        ({"+": [0.25, {"var": "input.ratio"}]}, 0.75),
        ({"-": [N]}, -5),
        ({"-": [N, 7]}, -2),
        ({"*": [N, N, 2]}, 50),
        ({"/": [N, 2]}, 2.5),
        ({"/": [6, 3]}, 2),
        ({"%": [-7, 3]}, -1),
        ({"min": [3, N, "1"]}, 1),
        ({"max": [3, N, True]}, 5),
        ({"cat": [WORD, "-", N, None, True, 1.5, [1], OBJECT]}, 'tree-5true1.5[1]{"a":1}'),
        ({"merge": [1, [2, [3]], GONE]}, [1, 2, [3], None]),
        ({"merge": []}, []),
        ({"missing_some": [1, ["state.gone", "state.n"]]}, []),
        ({"missing_some": [{"+": [1, 1]}, ["state.gone", "state.n"]]}, ["state.gone"]),
        ({"?:": [N, "yes", "no"]}, "yes"),
        ({"substr": [WORD, -2]}, "ee"),
        ({"substr": [WORD, 1, -1]}, "re"),
        ({"map": [LIST, {"var": "id"}]}, [None, None, None, 7]),
        ({"map": [LIST, {"==": [{"var": {"cat": ["i", "d"]}}, 7]}]}, [False, False, False, True]),
        ({"filter": [[1, 2, 3], {">": [{"var": ""}, 1]}]}, [2, 3]),
        ({"filter": [GONE, True]}, []),
        ({"reduce": [[1, 2, 3], {"+": [{"var": "accumulator"}, {"var": "current"}]}, N]}, 11),
        ({"all": [[1, 2], {"<": [{"var": ""}, 3]}]}, True),
        ({"all": [[], True]}, False),
        ({"some": [LIST, {"==": [{"var": ""}, "b"]}]}, True),
        ({"none": [GONE, True]}, True),
    ],
    ids=json.dumps,
)
def test_an_operation_means_what_the_page_says(rule: Any, expected_value: Any) -> None:
    result = evaluate(rule)
    assert (result, type(result)) == (expected_value, type(expected_value))


def test_the_page_names_the_operations_that_there_are() -> None:
    table = PAGE.partition("## Conditions")[2].partition("\n\n|")[2].partition("\n\n")[0]
    on_page = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}
    with pytest.raises(RuleInvalid) as refusal:
        Condition({"no": 1})
    assert on_page == set(str(refusal.value).partition("there are ")[2].split(", "))


@pytest.mark.parametrize(
    ("rule", "holds"),
    [({"or": [{"<": [N, 3]}, {"in": ["b", LIST]}]}, True), ({"and": [{"!": N}, 1]}, False), ({"merge": []}, False)],
)
def test_a_condition_holds_when_its_value_counts_as_true(rule: Any, holds: bool) -> None:
    assert Condition(rule).is_met(DATA) is holds


def test_what_an_operation_does_not_need_is_not_worked_out() -> None:
    fails = {"/": [1, 0]}
    assert evaluate({"if": [True, 1, fails]}) == 1
    assert evaluate({"and": [0, fails]}) == 0
    assert evaluate({"or": [1, fails]}) == 1
    assert evaluate({"var": ["state.n", fails]}) == 5


def test_a_condition_tells_what_it_asks_for() -> None:
    rule = {"and": [{"missing": ["input.a"]}, {"var": ["state.b.0", {"var": "state.c"}]}, {"var": ""}]}
    assert Condition(rule).names == (("input", "a"), ("state", "b", "0"), ("state", "c"), ())


@pytest.mark.parametrize(
    ("rule", "path", "message"),
    [
        (True, (), "must be an object with one operation"),
        ([N], (), "must be an object with one operation"),
        ({}, (), "an operation is an object with one key"),
        ({"==": [1, {"a": 1, "b": 2}]}, ("==", 1), "an operation is an object with one key"),
        ({"!": [[{"fold": []}]]}, ("!", 0, 0, "fold"), "there is no such operation"),
        ({"log": "x"}, ("log",), "there is no such operation"),
        ({"__import__": "os"}, ("__import__",), "there is no such operation"),
        ({"!": []}, ("!",), "takes 1 argument, not 0"),
        ({"==": [1]}, ("==",), "takes 2 arguments, not 1"),
        ({"<": [1]}, ("<",), "takes at least 2 arguments"),
        ({"<": [1, 2, 3, 4]}, ("<",), "takes at most 3 arguments"),
        ({"and": []}, ("and",), "takes at least 1 argument"),
        ({"var": []}, ("var",), "takes a name"),
        ({"var": 0}, ("var",), "takes names as text"),
        ({"var": {"cat": ["state.", "x"]}}, ("var",), "takes names as text"),
        ({"var": "secrets.x"}, ("var",), 'a name begins with "state" or "input"'),
        ({"missing": [{"merge": []}]}, ("missing",), "takes names as text"),
        ({"or": [1] * 1000}, (), "must have at most 1000 values"),
        ({"missing": ["state.x"] * 1000}, (), "must have at most 1000 values"),
        ({"map": [LIST]}, ("map",), "takes 2 arguments, not 1"),
        ({"missing_some": [1, "state.x"]}, ("missing_some",), "takes a number and a list of names"),
        ({"missing_some": [1, ["x"]]}, ("missing_some", 1), 'a name begins with "state" or "input"'),
    ],
)
def test_what_is_no_rule_is_refused_before_it_is_needed(rule: Any, path: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RuleInvalid) as refusal:
        Condition(rule)
    assert refusal.value.path == path
    assert str(refusal.value).startswith(message)


def test_a_rule_has_a_depth() -> None:
    rule: Any = N
    for _ in range(5000):
        rule = {"!": [rule]}
    with pytest.raises(RuleInvalid, match="at most 32 deep"):
        Condition(rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"/": [1, 0]}, "division by zero"),
        ({"%": [1, 0]}, "division by zero"),
        ({"+": [1, WORD]}, "arithmetic needs numbers, and got text that is not a number"),
        ({"+": [1, GONE]}, "arithmetic needs numbers, and got null"),
        ({"max": [LIST]}, "arithmetic needs numbers, and got a list or an object"),
        ({"*": [1e300, 1e300]}, "a number is too large"),
        ({"+": [1e308, 1e308]}, "a number is too large"),
        ({"+": ["1e999"]}, "a number is too large"),
        ({"+": [10**400]}, "a number is too large"),
    ],
)
def test_what_cannot_be_worked_out_fails_and_says_why(rule: Any, message: str) -> None:
    with pytest.raises(RuleFailed, match=f"^{message}$"):
        evaluate(rule)


def test_results_have_a_bound() -> None:
    data = {"state": {"text": "x" * 60_000, "list": [0] * 6000}, "input": {}}
    with pytest.raises(RuleFailed, match="more than 100000 characters"):
        Condition({"cat": [{"var": "state.text"}] * 2}).evaluate(data)
    with pytest.raises(RuleFailed, match="more than 10000 items"):
        Condition({"merge": [{"var": "state.list"}] * 2}).evaluate(data)


@pytest.mark.parametrize(
    ("operation", "data"),
    [
        ({"in": ["x", {"var": "state.rows"}]}, [1] * 50_000),
        ({"in": ["x", {"var": "state.rows"}]}, [[["y"] * 100] * 100] * 5),
        ({"==": [{"var": "state.rows"}, {"var": "input.rows"}]}, {str(n): n for n in range(50_000)}),
        ({"cat": [{"var": "state.rows"}]}, [1] * 45_000),
        ({"in": ["x", {"var": "state.rows"}]}, "y" * 4_000_000),
    ],
    ids=["list", "lists", "objects", "written", "text"],
)
def test_rules_that_see_the_same_go_through_a_bounded_part_of_it(operation: Any, data: Any) -> None:
    values = {"state": {"rows": data}, "input": {"rows": data}}
    assert Condition({"!": [operation]}).evaluate(values) in (True, False)
    with pytest.raises(RuleFailed, match="more than 250000 values"):
        Condition({"!": [[operation] * 8]}).evaluate(values)
    sight, most = EvaluationContext(values), Condition({"!": [[operation] * 2]})
    most.evaluate(sight)
    with pytest.raises(RuleFailed, match="more than 250000 values"):
        Condition({"!": [[operation] * 4]}).evaluate(sight)


def test_values_that_are_nested_too_deeply_fail() -> None:
    def deep() -> Any:
        value: Any = []
        for _ in range(50_000):
            value = [value]
        return value

    with pytest.raises(RuleFailed, match="nested too deeply"):
        Condition({"==": [{"var": "state.a"}, {"var": "state.b"}]}).evaluate({"state": {"a": deep(), "b": deep()}})


OPERATIONS = [
    "==",
    "!==",
    "<",
    ">=",
    "!",
    "!!",
    "and",
    "or",
    "if",
    "in",
    "+",
    "-",
    "*",
    "/",
    "%",
    "min",
    "cat",
    "merge",
    "substr",
    "map",
    "filter",
    "reduce",
    "all",
    "some",
    "none",
]
RULES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from([N, TEXT, WORD, NONE, GONE, LIST, OBJECT, LARGE, {"missing": ["state.x"]}]),
    lambda inner: st.dictionaries(st.sampled_from(OPERATIONS), st.lists(inner, max_size=3), min_size=1, max_size=1),
    max_leaves=10,
).filter(lambda rule: isinstance(rule, dict))


@given(RULES)
@settings(max_examples=300)
def test_any_rule_has_a_value_or_says_why_not(rule: Any) -> None:
    before = json.dumps(DATA)
    try:
        result = Condition(rule).evaluate(DATA)
    except RuleError as exc:
        result = str(exc)
        if not result:
            raise
    assert json.loads(json.dumps(result)) == result
    assert json.dumps(DATA) == before


@given(RULES)
def test_a_rule_and_its_double_negation_agree(rule: Any) -> None:
    try:
        holds = Condition(rule).is_met(DATA)
    except RuleError:
        return
    assert evaluate({"!!": [rule]}) is holds
    assert evaluate({"!": [{"!": [rule]}]}) is holds
    assert evaluate({"if": [rule, "yes", "no"]}) == ("yes" if holds else "no")
