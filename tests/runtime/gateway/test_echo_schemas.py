"""The built-in model writes JSON of the schema that it is given."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from baobab.runtime.gateway.builtin.echo import BadParameter, complete_chat
from baobab.runtime.work_budget import OverBudget
from tests.runtime.gateway.echo import QUIETLY, answer_text, ask_echo, run_agent


def answer_json(prompt: str, schema: Any, **request: Any) -> Any:
    response_format = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
    value = json.loads(answer_text(ask_echo(prompt, response_format=response_format, **request)))
    Draft202012Validator(schema).validate(value)
    return value


def test_json_object_is_the_object_of_the_prompt() -> None:
    response_format = {"type": "json_object"}
    assert json.loads(
        answer_text(ask_echo('Take {"a": [1, {}]} please, {not this}', response_format=response_format))
    ) == {"a": [1, {}]}
    assert json.loads(answer_text(ask_echo("hi", response_format=response_format))) == {
        "model": "baobab/echo",
        "text": "hi",
    }


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 18},
        "role": {"enum": ["reader", "writer"]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["name", "age", "role", "tags"],
    "additionalProperties": False,
}


def test_a_schema_is_satisfied() -> None:
    assert answer_json("hi", PERSON) == {"name": "name", "age": 18, "role": "reader", "tags": ["tags"]}


def test_values_that_fit_are_taken_from_the_prompt() -> None:
    ada = {"name": "Ada", "age": 36, "role": "writer", "tags": ["first"]}
    assert answer_json(f"ignore {{}} and take {json.dumps(ada)}", PERSON) == ada
    partly = {"name": "Ada", "age": 7, "role": "queen", "tags": [], "extra": True}
    assert answer_json(json.dumps(partly), PERSON) == {"name": "Ada", "age": 18, "role": "reader", "tags": ["tags"]}


def test_an_agent_ends_with_json_made_of_results() -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    ada = {"name": "Ada", "age": 36, "role": "writer", "tags": ["first"]}
    _, text = run_agent('/call kv_get {"key": "ada"}', {"kv_get": json.dumps(ada)}, response_format=response_format)
    assert json.loads(text) == ada


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 12, "maxLength": 13},
        {"type": "string", "maxLength": 0},
        {"type": "string", "format": "date-time"},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": 0.5},
        {"type": "number", "exclusiveMinimum": -2.5, "maximum": -2},
        {"type": "integer", "minimum": 10, "multipleOf": 7},
        {"type": "integer", "exclusiveMaximum": 0},
        {"type": "integer", "minimum": -9, "maximum": -3, "multipleOf": 4},
        {"type": ["null", "string"]},
        {"const": {"a": 1}},
        {"enum": [True, 1, "a"], "type": "string"},
        {"properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": {"type": "boolean"}},
        {"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "minItems": 3, "items": {"type": "boolean"}},
        {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"type": "integer", "minimum": 5}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"type": "string", "maxLength": 1, "minLength": 2}, {"not": {}}, {"type": "null"}]},
        {"not": {"type": "string"}, "type": "integer"},
        {"anyOf": [False, {"type": "string", "const": 1}, {"const": 2}]},
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"allOf": [{"minimum": 3}, {"minimum": 5, "type": "integer"}, {"maximum": 5}]},
        {
            "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}}}],
            "required": ["a"],
        },
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}},
        {"$ref": "#/definitions/tree", "definitions": {"tree": {"enum": [[]]}}},
    ],
    ids=json.dumps,
)
def test_each_keyword_is_understood(schema: Any) -> None:
    object_schema = {**{key: schema[key] for key in schema if key in {"$defs", "definitions"}}, "type": "object"}
    value = answer_json("hi", {**object_schema, "properties": {"it": schema}, "required": ["it"]})
    assert "it" in value


def test_a_pattern_is_not_honoured_and_costs_nothing() -> None:
    schema = {"type": "object", "properties": {"it": {"type": "string", "pattern": "^((a*)*)*b$"}}, "required": ["it"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    assert json.loads(answer_text(ask_echo("hi", response_format=response_format))) == {"it": "it"}
    told_so = json.dumps({"it": "a" * 250})
    assert answer_text(ask_echo(told_so, response_format=response_format)) == told_so.replace(" ", "")


def test_what_goes_on_for_ever_is_ended_as_early_as_it_may_be() -> None:
    chain = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    assert answer_json("hi", chain) == {"value": 0, "next": None}
    longer = {"value": 1, "next": {"value": 2, "next": None}}
    assert answer_json(json.dumps(longer), chain) == longer


ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
BUSHY = {
    "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/y"}] * 9}, "y": {"allOf": [{"$ref": "#/$defs/x"}] * 9}},
    "$ref": "#/$defs/x",
}


@pytest.mark.parametrize(
    "schema",
    [
        ENDLESS,
        BUSHY,
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/none"},
        {"type": "text"},
        {"type": {}},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "integer", "minimum": "2"},
        {"type": "number", "multipleOf": 1e-300, "minimum": 1},
        {"anyOf": []},
        {"required": "name"},
        {"not": {"type": "string"}},
        {"$dynamicRef": "#node"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"},
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9},
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_a_schema_that_cannot_be_satisfied_is_refused(schema: Any) -> None:
    with pytest.raises((BadParameter, OverBudget)):
        answer_json("hi", {"type": "object", "properties": {"it": schema}, "required": ["it"]} | _keep_defs(schema))


def _keep_defs(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"$defs": schema["$defs"]} if "$defs" in schema else {}


_KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "string", "integer", "number", ["null", "boolean"]]),
        "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
        "minItems": st.integers(0, 3),
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.booleans(),
        "minimum": st.integers(-6, 6),
        "exclusiveMaximum": st.sampled_from([-2, 0.5, 7]),
        "multipleOf": st.sampled_from([2, 3, 0.5]),
        "maxLength": st.integers(0, 4),
        "enum": st.lists(st.sampled_from([None, True, 1, "a", [], {}]), min_size=1, max_size=3),
    },
)
_SCHEMAS = st.recursive(
    _KEYWORDS,
    lambda inner: st.builds(
        lambda own, more: {**own, **more},
        _KEYWORDS,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "additionalProperties": inner | st.sampled_from([False]),
                "items": inner,
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "oneOf": st.lists(inner, min_size=1, max_size=2),
                "allOf": st.lists(inner, min_size=1, max_size=2),
            },
        ),
    ),
    max_leaves=4,
)


@QUIETLY
@given(_SCHEMAS, st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, 1, "aa", ["b"], {"a": 1}]), max_size=3))
def test_what_is_written_satisfies_any_schema_or_nothing_is(schema: Any, offered_value: Any) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    request = {"messages": [{"role": "user", "content": json.dumps(offered_value)}], "response_format": response_format}
    with contextlib.suppress(BadParameter, OverBudget):
        answer = complete_chat(request, completion_id="x", created=0)
        payload = json.loads(answer["choices"][0]["message"]["content"])
        assert Draft202012Validator(schema).is_valid(payload)
