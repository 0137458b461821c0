"""The functions of SQL that apps' files have: each ends at the deadline, and answers what SQLite or Postgres would."""

import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.data import patterns
from baobab.storage.data.functions import FUNCTIONS, add_to
from baobab.storage.data.json_sets import JsonSets
from baobab.storage.data.patterns import is_like
from baobab.storage.sql.deadline import Deadline, DeadlinePassed

LARGE: dict[str, tuple[Any, ...]] = {
    "like": ("%" + "aab_" * 50 + "c%", "aab" * 300_000, "\\"),
    "english_search": (" ".join(f"w{number}x" for number in range(30_000)), '["word", "w", true]'),
    "json_contains": ("[" + ",".join(['{"a":1}'] * 9000) + "]", "[" + ",".join(['{"b":2}'] * 9000) + "]"),
    "json_contained": ("[" + ",".join(['{"b":2}'] * 9000) + "]", "[" + ",".join(['{"a":1}'] * 9000) + "]"),
    "json_overlaps": ("[" + ",".join(['{"a":1}'] * 9000) + "]", "[" + ",".join(['{"b":2}'] * 9000) + "]"),
}


class Counted(Exception):
    """A function has looked at the deadline often enough."""


@pytest.mark.parametrize("name", LARGE)
def test_a_long_call_of_a_function_looks_at_the_deadline_again_and_again(name: str) -> None:
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise Counted

    with pytest.raises(Counted):
        FUNCTIONS[name][1](check, *LARGE[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_begins_after_the_deadline(name: str) -> None:
    deadline = Deadline()
    connection = sqlite3.connect(":memory:")
    add_to(connection, deadline)
    deadline.set(-1)
    arguments = ", ".join(["'1'"] * FUNCTIONS[name][0])
    with pytest.raises(sqlite3.OperationalError, match="user-defined function raised exception"):
        connection.execute(f"SELECT {name}({arguments})").fetchall()
    assert deadline.has_stopped_a_call
    with pytest.raises(DeadlinePassed):
        deadline.check()
    connection.close()


@given(st.text("ab_%\\", max_size=12), st.text("ab%", max_size=12), st.sampled_from([1, 256]))
@settings(deadline=None)
def test_our_like_is_that_of_sqlite(pattern: str, text: str, tries: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like=ON")
    [(is_expected,)] = connection.execute("SELECT ? LIKE ? ESCAPE '\\'", (text, pattern))
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "_MOST_TRIES", tries)
        assert is_like(lambda: None, pattern, text, "\\") == bool(is_expected)


def test_a_pattern_that_nearly_fits_everywhere_is_tried_at_few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_at, tried_places = patterns._stands_at, list[int]()

    def count(segment: Any, text: str, place: int) -> bool:
        tried_places.append(place)
        return stands_at(segment, text, place)

    monkeypatch.setattr(patterns, "_stands_at", count)
    assert is_like(lambda: None, f"%{'a_' * 300}b%", f"{'a' * 100_000}b", "\\") is True
    assert is_like(lambda: None, f"%{'a_' * 300}b%", "a" * 100_000, "\\") is False
    assert len(tried_places) < 1000


SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, "a", "b", ""])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)


@given(JSON, JSON)
@settings(deadline=None)
def test_sets_of_json_are_compared_as_pairs_would_be(whole: Any, part: Any) -> None:
    sets = JsonSets(lambda: None)
    assert sets.contains(whole, part) == _contains(whole, part)
    if isinstance(whole, list) and isinstance(part, list):
        assert sets.overlaps(whole, part) == any(_is_same(a, b) for a in whole if a is not None for b in part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and _contains_below(whole[name], value) for name, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains_below(item, element) for item in whole) for element in part)
    if isinstance(whole, list) and not isinstance(part, dict):
        return any(_is_same(item, part) for item in whole)
    return _is_same(whole, part)


def _contains_below(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict | list) and type(whole) is type(part):
        return _contains(whole, part)
    return _is_same(whole, part)


def _is_same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
