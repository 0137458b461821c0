"""Answers of models, held against the JSON Schema that was asked for."""

from typing import Any

import pytest

from baobab.runtime.agents.spec.answer_schema import find_mismatch, find_schema_error

MOOD = {
    "type": "object",
    "properties": {"mood": {"enum": ["glad", "angry"]}, "notes": {"type": "array", "items": {"$ref": "#/$defs/note"}}},
    "required": ["mood"],
    "additionalProperties": False,
    "$defs": {"note": {"type": "string", "maxLength": 5}},
}


@pytest.mark.parametrize("answer", [{"mood": "glad"}, {"mood": "angry", "notes": ["a", "abcde"]}])
def test_an_answer_that_is_of_its_schema(answer: Any) -> None:
    assert find_mismatch(MOOD, answer) is None


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        ([], "$"),
        ({}, "$"),
        ({"mood": "sad"}, "$.mood"),
        ({"mood": "glad", "why": 1}, "$"),
        ({"mood": "glad", "notes": ["a", 1]}, "$.notes[1]"),
        ({"mood": "glad", "notes": ["abcdef"]}, "$.notes[0]"),
    ],
)
def test_one_that_is_not_is_told_where(answer: Any, where: str) -> None:
    mismatch = find_mismatch(MOOD, answer)
    assert mismatch is not None
    assert mismatch.startswith(f"{where}: ")
    assert len(mismatch) <= 200


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        # Each would take longer than anybody waits, or for ever.
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 40 + "!"),
        ({"$ref": "#"}, {}),
        (
            {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}},
            [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]],
        ),
        ({"items": {"enum": list(range(9000))}}, [8999] * 9000),
        ({"$ref": "#/$defs/nowhere"}, {}),
        ({"uniqueItems": True}, [{"a": number} for number in range(5000)] * 2),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": {"type": "null"}}, {"a" * 40 + "!": 1}),
    ],
)
def test_what_cannot_be_told_within_bounds_is_not_held_against_it(schema: Any, answer: Any) -> None:
    assert find_mismatch(schema, answer) is None


@pytest.mark.parametrize(
    ("schema", "path"),
    [({"type": "text"}, ["type"]), ({"properties": {"a": {"required": "b"}}}, ["properties", "a", "required"])],
)
def test_what_is_no_schema_is_told_where(schema: Any, path: list[str]) -> None:
    wrong = find_schema_error(schema)
    assert wrong is not None
    assert wrong[0] == path


def test_what_is_one() -> None:
    assert find_schema_error(MOOD) is None
