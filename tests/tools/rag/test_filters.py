"""Filters against a plain reading of what they say; any filter either compiles or is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.tools.core.errors import BadRequest
from baobab.tools.rag.filters import compile_filter

DOCUMENT = {"lang": "en", "year": 2022, "tags": ["a", "b"], "deep": {"x": 1, "y": 2}, "flag": True, "none": None}


@pytest.mark.parametrize(
    ("wanted", "matches"),
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
def test_a_filter_chooses_what_it_says(wanted: dict[str, Any], matches: bool) -> None:
    assert compile_filter(wanted)(DOCUMENT) is matches


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
def test_any_filter_is_refused_or_decides(wanted: dict[str, Any], document: dict[str, Any]) -> None:
    try:
        matches = compile_filter(wanted)
    except BadRequest:
        return
    assert matches(document) in (True, False)


@given(st.dictionaries(st.sampled_from(["a", "b"]), _VALUES), _VALUES)
def test_what_equals_and_what_does_not_are_opposites(document: dict[str, Any], value: Any) -> None:
    equal, different = compile_filter({"a": {"$eq": value}}), compile_filter({"a": {"$ne": value}})
    assert equal(document) != different(document)
