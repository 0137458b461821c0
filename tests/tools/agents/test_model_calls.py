"""What a run asked its models is kept for those who run the app, bounded, and as long as the run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baobab.runtime.agents.model_calls import MOST_CHARACTERS, bound_prompt
from baobab.tools.agents.errors import RunNotFound
from tests.tools.agents.conftest import Agency, build_graph


def build_saying(text: str) -> dict[str, Any]:
    return build_graph(
        {
            "say": {"type": "llm", "system_prompt": "Be brief.", "input_template": text, "output_key": "answer"},
            "done": {"type": "end", "output_template": "{{ state.answer }}"},
        },
        ("say", "done"),
    )


async def read_model_calls(agency: Agency, agent: str, run_id: str, **more: Any) -> list[dict[str, Any]]:
    arguments = {"app_id": agency.app_id, "name": agent, "id": run_id, **more}
    calls: list[dict[str, Any]] = (await agency.harness.call("agents_runs_model_calls", agency.owner, **arguments))[
        "model_calls"
    ]
    return calls


async def test_a_run_shows_what_its_model_was_asked_and_answered(agency: Agency) -> None:
    await agency.create_agent("say", build_saying("/say Hello."))
    run = await agency.run_agent("say")
    (call,) = await read_model_calls(agency, "say", run["id"])
    assert [message["content"] for message in call["prompt"]][-1] == "/say Hello."
    assert call["answer"]["content"] == run["output"]
    assert (call["node_id"], call["error"], call["left_out"]) == ("say", None, 0)
    assert (call["input_tokens"], call["output_tokens"]) == (
        run["usage"]["input_tokens"],
        run["usage"]["output_tokens"],
    )
    assert await read_model_calls(agency, "say", run["id"], after_step=call["step"]) == []


async def test_a_prompt_that_is_too_long_is_cut_and_says_so(agency: Agency) -> None:
    await agency.create_agent("long", build_saying("/say " + "x" * 50_000))
    run = await agency.run_agent("long")
    (call,) = await read_model_calls(agency, "long", run["id"])
    assert (len(call["prompt"][-1]["content"]), call["prompt"][-1]["content_characters"]) == (4000, 50_005)


async def test_a_run_that_is_deleted_takes_its_prompts_along(agency: Agency) -> None:
    await agency.create_agent("say", build_saying("/say Hello."))
    run = await agency.run_agent("say")
    await agency.harness.call("agents_runs_delete", agency.owner, app_id=agency.app_id, name="say", id=run["id"])
    with pytest.raises(RunNotFound):
        await read_model_calls(agency, "say", run["id"])


MESSAGES = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "tool"]), "content": st.text(max_size=9)})


@given(st.lists(MESSAGES, max_size=60), st.integers(1, 3000))
def test_a_prompt_keeps_its_first_message_and_its_newest(messages: list[dict[str, Any]], times: int) -> None:
    long = [{**message, "content": message["content"] * times} for message in messages]
    kept_messages, left_out = bound_prompt(long)
    assert len(kept_messages) + left_out == len(long)
    assert sum(len(message["content"]) for message in kept_messages) <= MOST_CHARACTERS
    clean = [message["content"].replace("\0", "\ufffd").replace("\\u0000", "\ufffd")[:4000] for message in long]
    if long:
        assert kept_messages[0]["content"] == clean[0]
        newest = [message["content"] for message in kept_messages[1:]]
        assert newest == clean[len(clean) - len(newest) :]
