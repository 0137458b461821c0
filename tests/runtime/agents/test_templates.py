"""Templates write down what they name, and do nothing else. Examples come from docs/graph-spec.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.runtime.agents.spec.templates import (
    MAX_CHARACTERS,
    Template,
    TemplateInvalid,
    TemplateMissing,
    TemplateTooLarge,
    fill_each,
    fill_tree,
    parse_names,
)

PAGE = (Path(__file__).parents[3] / "docs/graph-spec.md").read_text()
ROWS = re.findall(r"^\| `(.*?)` \| `(.*?)` \| `(.*?)` \|$", PAGE.partition("## Templates")[2], re.MULTILINE)

VALUES = {
    "state": {
        "name": "Amina",
        "rows": [{"id": 7}, {"id": 8}],
        "0": "zero",
        "ключ": "да",
        "@x:a/b-c": {"$ref": "#"},
        "none": None,
        "no": False,
    },
    "input": {"nested": {"a": {"b": 1.5}}, "list": [1, "b", None], "code": "{{ state.name }} {{ 7 * 7 }} {% x %} ${y}"},
    "item": "one",
}


@pytest.mark.parametrize(("template", "values", "result"), ROWS)
def test_the_table_of_the_page_is_so(template: str, values: str, result: str) -> None:
    assert fill_tree(template, json.loads(values)) == json.loads(result)


def test_the_page_has_a_table() -> None:
    assert len(ROWS) == 8


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("no placeholder } }} { %}", "no placeholder } }} { %}"),
        ("{{state.name}}{{ item }}{{\tstate.name\n}}", "AminaoneAmina"),
        ("{{ state.rows.1.id }}, {{ state.0 }}, {{ state.ключ }}, {{ state.@x:a/b-c.$ref }}", "8, zero, да, #"),
        ("{{ state.rows }}", '[{"id":7},{"id":8}]'),
        ("{{ input.nested.a }}", '{"b":1.5}'),
        ("{{ state.none }} {{ state.no }} {{ input.list.2 }}", "null false null"),
        ('{"a":{"b":{{ input.nested.a.b }}}}', '{"a":{"b":1.5}}'),
        ("{{ input.code }}", "{{ state.name }} {{ 7 * 7 }} {% x %} ${y}"),
        ('{{ "{{" }} state.name }}', "{{ state.name }}"),
        ('{{"{{"}}', "{{"),
    ],
)
def test_text_gets_strings_as_they_are_and_the_rest_as_json(text: str, result: str) -> None:
    assert Template(text).render(VALUES) == result


def test_a_template_can_be_rendered_many_times() -> None:
    template = Template("{{ item.n }}")
    assert [template.render({"item": {"n": n}}) for n in range(3)] == ["0", "1", "2"]


def test_in_a_tree_one_placeholder_keeps_the_type_of_its_value() -> None:
    tree = {"a": ["{{ state.rows }}", " {{ state.no }}"], "{{ item }}": "{{ state.none }}", "n": 1, "t": True}
    assert fill_tree(tree, VALUES) == {
        "a": [[{"id": 7}, {"id": 8}], " false"],
        "{{ item }}": None,
        "n": 1,
        "t": True,
    }


def test_names_tells_all_that_a_text_asks_for() -> None:
    assert parse_names('{{ state.a.0 }} and {{input}}, {{ item.x }}{{ "{{" }}') == (
        ("state", "a", "0"),
        ("input",),
        ("item", "x"),
    )
    assert Template("{{ state.a }}").sole == ("state", "a")
    assert Template("{{ state.a }} ").sole is None
    assert Template("state.a").sole is None


@pytest.mark.parametrize(
    "text",
    [
        "{{",
        "{{ }}",
        "{{ state.x",
        "{{ state.x }",
        "{{ states }}",
        "{{ state. }}",
        "{{ state..x }}",
        "{{ .state }}",
        "{{ state.x | upper }}",
        "{{ state['x'] }}",
        "{{ state.x() }}",
        "{{ state.x + 1 }}",
        "{{ state.x+1 }}",
        "{{ 7 * 7 }}",
        "{{ self.__init__ }}",
        "{{{ state.x }}}",
        "{{ state.{{ input.x }} }}",
        '{{ "x" }}',
        "{{% raw %}}",
    ],
)
def test_braces_that_begin_no_placeholder_are_no_template(text: str) -> None:
    with pytest.raises(TemplateInvalid, match="at character 5 does not begin a placeholder"):
        Template(f"abc {text}")


@pytest.mark.parametrize(
    "name",
    [
        "state.gone",
        "state.name.x",
        "state.name.0",
        "state.none.x",
        "state.rows.2",
        "state.rows.-1",
        "state.rows.1_0",
        "state.rows.٣",
        "state.rows.id",
        "state.rows.99999999999999999999",
        "state.rows.__class__",
        "state.__class__",
        "input.nested.a.b.c",
    ],
)
def test_what_is_not_there_is_named(name: str) -> None:
    with pytest.raises(TemplateMissing) as missing:
        Template(f"{{{{ {name} }}}}").render(VALUES)
    assert missing.value.name == name
    with pytest.raises(TemplateMissing):
        fill_tree([f"{{{{ {name} }}}}"], VALUES)


def test_item_is_missing_where_there_is_none() -> None:
    with pytest.raises(TemplateMissing):
        Template("{{ item }}").render({"state": {}, "input": {}})


@pytest.mark.parametrize("tree", ["{{ item }}{{ item }}", ["{{ item }}", "{{ item }}"], {"a": "{{ item }}b{{ item }}"}])
def test_a_result_has_a_bound_however_it_is_put_together(tree: Any) -> None:
    half = "x" * (MAX_CHARACTERS // 2)
    with pytest.raises(TemplateTooLarge):
        fill_tree(tree, {"item": f"{half}x"})
    assert fill_tree("{{ item }}{{ item }}", {"item": half}) == half * 2


@pytest.mark.parametrize("tree", ["{{ input.text }}", "{{ item }}{{ input.text }}", {"a": ["{{ input.text }}"]}])
def test_what_becomes_of_a_tree_for_each_item_has_a_bound_together(tree: Any) -> None:
    values = {"input": {"text": "x" * 500_000}}
    assert len(fill_each(tree, values, range(15))) == 15
    with pytest.raises(TemplateTooLarge):
        fill_each(tree, values, range(17))


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TemplateTooLarge):
        fill_tree("{{ item }}", {"item": deep})


PLACEHOLDER = st.sampled_from(["{{ state.a }}", "{{input.b}}", '{{ "{{" }}', "{{ item.0 }}"])
# Whatever people and other programs might write, placeholders of this and other languages among it.
PROSE = st.text(alphabet="{}% $.ab\"'", max_size=6) | st.sampled_from(
    ["{{ state.a }}", "{{ state.__class__.__mro__ }}", "{% for x in y %}", "${7*7}", "{{ 7*7 }}", "}}", "{{"]
)


@given(st.lists(PLACEHOLDER | st.text(alphabet="ab} %$", max_size=5), max_size=6), PROSE, PROSE, PROSE)
@settings(max_examples=200)
def test_values_stand_in_the_result_letter_for_letter(pieces: list[str], a: str, b: str, item: str) -> None:
    values = {"state": {"a": a}, "input": {"b": b}, "item": [item]}
    stand = {"{{ state.a }}": a, "{{input.b}}": b, '{{ "{{" }}': "{{", "{{ item.0 }}": item}
    assert Template("".join(pieces)).render(values) == "".join(stand.get(piece, piece) for piece in pieces)


@given(st.text(alphabet="{}.% \nstaeinpum0\"'\\", max_size=40))
@settings(max_examples=300)
def test_any_text_is_a_template_or_none_and_an_accepted_one_keeps_no_placeholder(text: str) -> None:
    try:
        template = Template(text)
    except TemplateInvalid:
        assert "{{" in text
        return
    values = {"state": "S", "input": "S", "item": "S"}
    if all(len(name) == 1 for name in template.names):
        result = template.render(values)
        assert result.count("{{") == len(re.findall(r'\{\{\s*"\{\{"\s*\}\}', text))
