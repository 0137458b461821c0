"""Filters against a plain reading of what they say; any filter either compiles or is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.tools.core.errors import BadRequest
from baobab.tools.rag.filters import compile_filter

DOCUMENT = {"lang": "en", "year": 2022, "tags": ["a", "b"], "deep": {"x": 1, "y": 2}, "flag": True, "none": None}


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({}, True),
        ({"lang": "en"}, True),
        ({"lang": "de"}, False),
        ({"lang": "en", "year": 2022}, True),
        ({"lang": "en", "year": 2021}, False),
        ({"year": 2022.0}, True),
        ({"flag": 1}, False),
        ({"flag": True}, True),
        ({"none": None}, True),
        ({"missing": None}, False),
        ({"tags": "a"}, True),
        ({"tags": ["a", "b"]}, True),
        ({"tags": ["a", "c"]}, False),
        ({"deep": {"x": 1}}, True),
        ({"deep": {"x": 2}}, False),
        ({"year": {"$gte": 2022, "$lt": 2023}}, True),
        ({"year": {"$gt": 2022}}, False),
        ({"year": {"$lte": "2022"}}, False),
        ({"lang": {"$gt": "de"}}, True),
        ({"lang": {"$ne": "de"}}, True),
        ({"missing": {"$ne": "de"}}, True),
        ({"lang": {"$in": ["de", "en"]}}, True),
        ({"tags": {"$nin": ["a"]}}, False),
        ({"missing": {"$exists": False}}, True),
        ({"none": {"$exists": True}}, True),
        ({"$or": [{"lang": "de"}, {"year": 2022}]}, True),
        ({"$and": [{"lang": "en"}, {"year": 2021}]}, False),
        ({"$not": {"lang": "en"}}, False),
    ],
)
def test_a_filter_chooses_what_it_says(condition: dict[str, Any], matches: bool) -> None:
    assert compile_filter(condition)(DOCUMENT) is matches


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "$gt", "$in", "$or"]), inner)
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "$and", "$or", "$not", "$eq"]), _VALUES),
    st.dictionaries(st.sampled_from(["a", "b"]), _VALUES),
)
def test_any_filter_is_refused_or_decides(condition: dict[str, Any], document: dict[str, Any]) -> None:
    try:
        matches = compile_filter(condition)
    except BadRequest:
        return
    assert matches(document) in (True, False)


def contains(value: Any, part: Any) -> bool:
    """Whether JSON contains JSON, read plainly: each wanted value is compared with each that is there."""
    if isinstance(value, list):
        each = part if isinstance(part, list) else [part]
        return all(any(contains(item, one) for item in value) for one in each)
    if isinstance(value, dict):
        return isinstance(part, dict) and all(name in value and contains(value[name], part[name]) for name in part)
    return isinstance(value, bool) == isinstance(part, bool) and bool(value == part)


_CONTAINED = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0, "0", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)


@given(_CONTAINED, _CONTAINED, st.lists(_CONTAINED, max_size=3))
def test_values_are_contained_as_json_contains_json(value: Any, part: Any, others: list[Any]) -> None:
    assert compile_filter({"x": {"$eq": part}})({"x": value}) == contains(value, part)
    is_in = any(contains(value, one) for one in others)
    assert compile_filter({"x": {"$in": others}})({"x": value}) == is_in
    assert compile_filter({"x": {"$nin": others}})({"x": value}) != is_in


def test_a_filter_with_too_many_lists_is_refused() -> None:
    """Each of them may be looked for in each list of a document."""
    assert compile_filter({"x": [[1]] * 98})({"x": [[1]]})
    with pytest.raises(BadRequest, match="more than 100 conditions"):
        compile_filter({"x": [[1]] * 99})


@given(st.dictionaries(st.sampled_from(["a", "b"]), _VALUES), _VALUES)
def test_what_equals_and_what_does_not_are_opposites(document: dict[str, Any], value: Any) -> None:
    equal, different = compile_filter({"a": {"$eq": value}}), compile_filter({"a": {"$ne": value}})
    assert equal(document) != different(document)
