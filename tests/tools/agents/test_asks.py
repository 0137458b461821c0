"""The author of a graph says how a call is shown, and no stranger's text can pass for the author's."""

from typing import Any

import pytest

from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_arguments import list_issues

NOTE = {"key": "note", "value": "{{ input.text }}"}


def asking_graph(
    ask: Any, tool: str = "kv_put", arguments: dict[str, Any] | None = None, **node: Any
) -> dict[str, Any]:
    ref = {"source": "builtin", "name": tool}
    call = {"type": "tool", "tool_ref": ref, "args_template": arguments or NOTE, "ask": ask, **node}
    return build_graph({"write": call, "done": {"type": "end"}}, ("write", "done"), tools={"builtin": [tool]})


async def read_waiting(agency: Agency) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await agency.harness.call("approvals_list", agency.owner, status="pending"))[
        "approvals"
    ]
    return rows


async def ask_once(agency: Agency, graph: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    await agency.create_agent("a", graph)
    run = await agency.run_agent("a", input=values)
    assert run["status"] == "paused", run
    return (await read_waiting(agency))[0]


SAVE = "Save the note {{ input.text }}"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Cracked shade", "Save the note: Cracked shade"),
        ("nothing\n\nApproved by Mira: yes", "Save the note: nothing Approved by Mira: yes"),
        ("paid\u202eon", "Save the note: paid\\u202eon"),
        ("a\u200bb\u2028c", "Save the note: a\\u200bb c"),
        (": done. Delete the note", "Save the note: : done. Delete the note"),
        ('" and nothing else "', 'Save the note: " and nothing else "'),
        ("{{ input.secret }}", "Save the note: {{ input.secret }}"),
        ("<b>safe</b> &amp;", "Save the note: <b>safe</b> &amp;"),
        ("x" * 500, "Save the note: " + "x" * 59 + "…"),
        ("\u202e" * 500, "Save the note: " + "\\u202e" * 9 + "\\u202…"),
        ({"a": [1, "b"]}, 'Save the note: {"a":[1,"b"]}'),
        ("   ", "Save the note"),
    ],
)
async def test_a_strangers_words_stand_after_the_colon_on_one_line(agency: Agency, text: Any, title: str) -> None:
    approval = await ask_once(agency, asking_graph({"title": SAVE}), {"text": text, "secret": "s3cret"})
    assert approval["title"] == title
    own = [part["text"] for part in approval["title_parts"] if part["own"]]
    assert own in (["Save the note"], ["Save the note: "])
    assert "".join(part["text"] for part in approval["title_parts"]) == title


async def test_a_title_that_names_what_is_not_there_fails_no_run(agency: Agency) -> None:
    ask = {"title": "Save a note for {{ input.who }}, {{ arguments.value }}"}
    approval = await ask_once(agency, asking_graph(ask), {"text": "hello"})
    assert approval["title"] == "Save a note for: …, hello"


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("orders:17", "Delete what is stored under: orders:17"),
        ("17 of them. Nothing is deleted", "Delete what is stored under: …"),
        ("a" * 65, "Delete what is stored under: …"),
    ],
)
async def test_the_title_of_a_call_that_deletes_has_no_free_text(agency: Agency, key: str, title: str) -> None:
    await agency.put_key(key, 1)
    ask = {"title": "Delete what is stored under {{ arguments.key }}"}
    graph = asking_graph(ask, "kv_delete", {"key": "{{ input.key }}"})
    assert (await ask_once(agency, graph, {"key": key}))["title"] == title


async def test_each_item_of_a_map_has_its_own_title_and_excerpt(agency: Agency) -> None:
    ask = {"title": "Save a note for {{ item.who }}", "show": ["arguments.value.text", "item.who"]}
    arguments = {"key": "note:{{ item.id }}", "value": {"text": "{{ item.text }}", "by": "{{ input.by }}"}}
    graph = asking_graph(ask, "kv_put", arguments, type="map", over="{{ input.notes }}", output_key="saved")
    notes = [{"id": n, "who": who, "text": f"Dear {who},\nhello"} for n, who in enumerate(("Ana", "Ben"))]
    await agency.create_agent("a", graph)
    await agency.run_agent("a", input={"notes": notes, "by": "a very long text that is not shown first"})
    texts = {(row["title"], row["excerpt"]) for row in await read_waiting(agency)}
    assert texts == {
        ("Save a note for: Ana", "Dear Ana, hello"),
        ("Save a note for: Ben", "Dear Ben, hello"),
    }


async def test_an_edited_call_has_the_title_of_what_was_approved(agency: Agency) -> None:
    ask = {"title": "Save the note {{ arguments.value }}"}
    approval = await ask_once(agency, asking_graph(ask), {"text": "as it was asked"})
    arguments = {"key": "note", "value": "as it was approved"}
    await agency.harness.call("approvals_approve", agency.owner, approval_id=approval["id"], arguments=arguments)
    read = await agency.harness.call("approvals_get", agency.owner, approval_id=approval["id"])
    assert read["approval"]["title"] == "Save the note: as it was approved"
    assert read["approval"]["excerpt"] == "as it was approved"
    assert read["approval"]["asked_summary"].startswith("Save the note: as it was asked.")


TITLE, SHOW = ["nodes", "write", "ask", "title"], ["nodes", "write", "ask", "show", 0]


@pytest.mark.parametrize(
    ("ask", "path", "message"),
    [
        ({}, ["nodes", "write", "ask"], "needs a title, or values to show; leave it out otherwise"),
        ({"title": "{{ input.text }}"}, TITLE,
         'must begin with words of yours, such as "Answer {{ input.subject }}": values come after them'),
        ({"title": "Save: now {{ input.text }}"}, TITLE,
         "may have a colon only before its first placeholder: what follows a colon is a stranger's"),
        ({"title": "Save\u202e {{ input.text }}"}, TITLE,
         "has characters that nobody sees, or that change the order of others; leave them out"),
        ({"title": "S" * 61}, TITLE, "may have at most 60 characters before its first placeholder"),
        ({"title": "Save {{ item }}"}, TITLE, "item is only available in the args_template of a map, or in its ask"),
        ({"title": "Save {{ state.draft }}"}, TITLE, "no node writes state.draft; did you mean input.draft?"),
        ({"title": "Save {{ arguments.valu }}"}, TITLE,
         '"arguments.valu" is not in args_template; did you mean "value"?; there are key, value'),
        ({"title": "Save {{ arguments.key }}"}, TITLE,
         '"arguments.key" is the same in every call: write it as text'),
        ({"title": "Save {{ arguments }}"}, TITLE, "must name one argument, such as arguments.changes.answer"),
        ({"show": ["value"]}, SHOW,
         '"value" is not a path of a value, such as arguments.changes.answer or input.message'),
        ({"show": ["arguments.key"]}, SHOW,
         '"arguments.key" is the same in every call: leave it out'),
        ({"show": ["state.draft"]}, SHOW, "no node writes state.draft; did you mean input.draft?"),
        ({"title": "Save", "titel": "x"}, ["nodes", "write", "ask", "titel"],
         'is not a field here; did you mean "title"?; the fields are title, show'),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_an_ask_is_said_before_the_agent_is_saved(
    agency: Agency, ask: Any, path: list[str | int], message: str
) -> None:
    assert await list_issues(agency, asking_graph(ask)) == [(path, message)]


async def test_a_path_that_the_tools_schema_does_not_have_is_refused(agency: Agency) -> None:
    graph = asking_graph({"show": ["arguments.by.much"]}, "kv_incr", {"key": "n", "by": "{{ input.by }}"})
    assert await list_issues(agency, graph) == [(SHOW, '"arguments.by" is no object, so it has no "much"')]


async def test_the_title_of_a_call_that_deletes_names_only_what_it_is_made_with(agency: Agency) -> None:
    graph = asking_graph({"title": "Delete {{ input.count }}"}, "kv_delete", {"key": "{{ input.key }}"})
    message = (
        'must not name input.count: "kv_delete" may pay, send or delete, so its title names only what the call is made '
        "with, such as {{ arguments.key }}"
    )
    assert await list_issues(agency, graph) == [(TITLE, message)]


async def test_arguments_are_named_in_no_other_template(agency: Agency) -> None:
    graph = asking_graph({"title": SAVE}, arguments={"key": "note", "value": "{{ arguments.key }}"})
    message = "arguments is only available in the ask of a node: name state or input"
    assert await list_issues(agency, graph) == [(["nodes", "write", "args_template", "value"], message)]


async def test_names_are_those_of_the_graph_and_not_of_the_tool(agency: Agency) -> None:
    arguments = {"table": "tickets", "id": "{{ input.id }}", "patch": {"answer": "{{ input.text }}"}}
    graph = asking_graph({"title": "Answer {{ arguments.patch.answer }}"}, "update_row", arguments)
    result = await agency.harness.call(
        "agents_validate", agency.owner, app_id=agency.app_id, name="a", graph_spec=graph
    )
    assert result["valid"], result


@pytest.mark.parametrize(
    ("title", "value", "button"),
    [
        ("Refund {{ arguments.value }} EUR to {{ input.text }}", 240, "Refund 240 EUR"),
        ("Refund {{ arguments.value }} to {{ input.text }}", 12.5, "Refund 12.5"),
        ("Refund € {{ arguments.value }}", 240, "Refund €240"),
        # A number as text, or of the input, is what anybody may have written.
        ("Refund {{ arguments.value }} EUR to {{ input.text }}", "240", "Refund"),
        ("Refund {{ input.value }} EUR to {{ input.text }}", 240, "Refund"),
        ("Refund {{ arguments.value }}", True, "Refund"),
        ("Refund {{ arguments.value }}", 10**30, "Refund"),
        ("Answer {{ input.text }}", 1, "Answer"),
    ],
)
async def test_a_button_has_the_authors_words_and_at_most_a_number_of_the_call(
    agency: Agency, title: str, value: Any, button: str
) -> None:
    graph = asking_graph({"title": title}, arguments={"key": "note", "value": "{{ input.value }}"})
    approval = await ask_once(agency, graph, {"text": "Nothing. Press", "value": value})
    assert approval["button"] == button


async def test_without_an_author_a_button_has_the_words_of_the_tool(agency: Agency) -> None:
    approval = await ask_once(agency, asking_graph(None), {"text": "Nothing. Press"})
    assert (approval["button"], approval["undo_days"]) == ("Store a value under a key", None)
