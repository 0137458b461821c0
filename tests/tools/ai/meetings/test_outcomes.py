"""What becomes of finished transcripts: a document of a collection, and a run of an agent."""

import re
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.tools.ai.meetings import outcomes
from baobab.tools.core import RetryLater
from baobab.tools.substrate.tables import source_artifacts
from tests.people import create_person, get_first_organisation
from tests.tools.agents.conftest import build_graph
from tests.tools.ai.meetings.conftest import MeetingBaobab

UNSET = {"collection": None, "agent": None, "substrate": False, "failure": None}
_DAY = 86_400


async def make_collection(meetings: MeetingBaobab, app: str, **options: Any) -> None:
    answer = await meetings.request("POST", f"/v1/{app}/rag/collections", json={"name": "calls", **options})
    assert answer.status_code == 201, answer.text


async def make_agent(meetings: MeetingBaobab, app: str, **options: Any) -> None:
    """Makes an agent that keeps the transcript in a key."""
    node = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_put"}}
    node["args_template"] = {"key": "last-call", "value": "{{input.transcript}}"}
    spec = build_graph({"keep": node, "done": {"type": "end"}}, ("keep", "done"), tools={"builtin": ["kv_put"]})
    body = {"name": "scribe", "graph_spec": spec, **options}
    answer = await meetings.request("POST", f"/v1/{app}/agents", json=body)
    assert answer.status_code == 201, answer.text


async def set_outcome(meetings: MeetingBaobab, app: str, headers: dict[str, str] | None = None, **body: Any) -> None:
    path = meetings.path(app, "transcripts")
    answer = await meetings.request("PUT", path, json=body, headers=headers or meetings.owner)
    assert (answer.status_code, answer.json()) == (200, UNSET | body)


async def hold_call(meetings: MeetingBaobab, app: str) -> str:
    bot = await meetings.start(app)
    for _ in range(40):
        await meetings.advance(1)
    bot_id: str = bot["id"]
    return bot_id


async def list_documents(meetings: MeetingBaobab, app: str) -> list[Any]:
    documents: list[Any] = (await meetings.request("GET", f"/v1/{app}/rag/collections/calls/documents")).json()
    return documents


async def list_runs(meetings: MeetingBaobab, app: str) -> list[Any]:
    runs: list[Any] = (await meetings.request("GET", f"/v1/{app}/agents/scribe/runs")).json()["runs"]
    return runs


async def list_events(meetings: MeetingBaobab, path: str, kind: str) -> list[Any]:
    """What a run, which its path names, has told about events of a kind."""
    events = (await meetings.request("GET", f"{path}/events.json")).json()["events"]
    return [event["payload"] for event in events if event["type"] == kind]


async def read_failure(meetings: MeetingBaobab, app: str) -> Any:
    return (await meetings.request("GET", meetings.path(app, "transcripts"))).json()["failure"]


async def test_a_transcript_becomes_a_document_in_which_a_search_finds_who_spoke_and_when(
    meetings: MeetingBaobab, app: str
) -> None:
    await make_collection(meetings, app)
    await set_outcome(meetings, app, collection="calls")
    bot_id = await hold_call(meetings, app)
    [document] = await list_documents(meetings, app)
    assert (document["status"], document["metadata"]) == ("ready", {"bot_id": bot_id})
    answer = await meetings.request(
        "POST", f"/v1/{app}/rag/collections/calls/query", json={"query": "When do the cards arrive?"}
    )
    assert "[00:03] Charles Babbage: Yes. The new cards arrive on Monday" in answer.text
    assert await read_failure(meetings, app) is None


async def test_whatever_part_of_a_long_speech_is_found_says_who_spoke_and_when(
    meetings: MeetingBaobab, app: str
) -> None:
    words: list[Any] = [{"text": f"card-{index}", "start": float(index), "end": index + 0.5} for index in range(900)]
    speech: Any = {"participant": {"id": "1", "name": "Ada Lovelace"}, "words": words}
    await make_collection(meetings, app)
    body = {"text": outcomes.write_transcript([speech], None), "filename": "meeting.md"}
    answer = await meetings.request("POST", f"/v1/{app}/rag/collections/calls/ingest", json=body)
    assert answer.status_code < 300, answer.text
    await meetings.advance(1)
    answer = await meetings.request(
        "POST", f"/v1/{app}/rag/collections/calls/query", json={"query": "card-850", "topK": 50}
    )
    chunks = answer.json()["chunks"]
    assert len(chunks) > 5
    for chunk in chunks:
        stamps = re.findall(r"\[(\d\d):(\d\d)\] Ada Lovelace: card-(\d+)", chunk["text"])
        assert stamps, chunk["text"]
        assert all(60 * int(minute) + int(second) == int(card) for minute, second, card in stamps)


async def test_the_run_that_a_transcript_starts_is_tainted_and_writes_only_after_a_person_has_agreed(
    meetings: MeetingBaobab, app: str
) -> None:
    await make_collection(meetings, app)
    await make_agent(meetings, app)
    await set_outcome(meetings, app, collection="calls", agent="scribe")
    await hold_call(meetings, app)
    [run] = await list_runs(meetings, app)
    assert run["status"] == "paused", run
    path = f"/v1/{app}/agents/scribe/runs/{run['id']}"
    [pause] = await list_events(meetings, path, "run_paused")
    assert pause["tainted"] is True
    approval = (await meetings.request("GET", f"/v1/approvals/{pause['approval_id']}")).json()["approval"]
    assert approval["read"] == [{"text": "what the run was started with", "own": False}]
    decision = {"approval_token": pause["approval_token"], "approved": True}
    assert (await meetings.request("POST", f"{path}/resume", json=decision)).status_code == 200
    await meetings.advance(1)
    [run] = await list_runs(meetings, app)
    assert run["status"] == "completed", run
    kept_text = (await meetings.request("GET", f"/v1/{app}/kv/last-call")).json()["value"]
    assert kept_text.startswith("# Meeting of 2027-01-15 08:00 UTC\n\n[00:00] Ada Lovelace: Good morning.")


async def test_a_transcript_is_text_from_outside_in_a_collection_of_the_apps_own_texts_too(
    meetings: MeetingBaobab, app: str
) -> None:
    await make_collection(meetings, app, ownText=True)
    await set_outcome(meetings, app, collection="calls")
    await hold_call(meetings, app)
    node = {"type": "tool", "tool_ref": {"source": "builtin", "name": "rag_query"}}
    node["args_template"] = {"name": "calls", "query": "cards"}
    spec = build_graph({"find": node, "done": {"type": "end"}}, ("find", "done"), tools={"builtin": ["rag_query"]})
    await meetings.request("POST", f"/v1/{app}/agents", json={"name": "finder", "graph_spec": spec})
    answer = await meetings.request("POST", f"/v1/{app}/agents/finder/runs", json={"input": {}})
    await meetings.advance(1)
    path = f"/v1/{app}/agents/finder/runs/{answer.json()['run_id']}"
    [call] = await list_events(meetings, path, "tool_call_end")
    assert (call["status"], call.get("tainted")) == ("ok", True)


async def test_a_transcript_becomes_a_source_artifact_of_the_substrate_and_its_agent_knows_which(
    meetings: MeetingBaobab, app: str
) -> None:
    person = await create_person(meetings, "lead", role="admin")
    await make_agent(meetings, app)
    refusal = await meetings.request("PUT", meetings.path(app, "transcripts"), json={"substrate": True})
    assert refusal.status_code == 403, "a key of an account has opened the substrate"
    await set_outcome(meetings, app, person.headers, substrate=True, agent="scribe")
    bot_id = await hold_call(meetings, app)
    home = {**person.headers, "x-organization-id": await get_first_organisation(meetings)}
    artifacts = (await meetings.request("GET", "/v1/me/substrate/source-artifacts", headers=home)).json()
    [artifact] = artifacts["artifacts"]
    assert (artifact["kind"], artifact["external_id"]) == ("meeting_transcript", bot_id)
    assert artifact["title"] == "Meeting of 2027-01-15 08:00 UTC"
    path = f"/v1/me/substrate/source-artifacts/{artifact['id']}"
    content = (await meetings.request("GET", path, headers=home)).json()
    assert "[00:03] Charles Babbage: Yes. The new cards arrive on Monday" in str(content)
    [run] = await list_runs(meetings, app)
    assert run["input"]["artifact_id"] == artifact["id"]


@pytest.mark.parametrize("step", ["rag_ingest", "substrate_propose", "agents_run"])
async def test_an_attempt_that_ends_after_any_step_is_made_again_and_makes_nothing_twice(
    meetings: MeetingBaobab, app: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = await create_person(meetings, "lead", role="admin")
    await make_collection(meetings, app)
    await make_agent(meetings, app)
    await set_outcome(meetings, app, person.headers, collection="calls", agent="scribe", substrate=True)
    registry, steps = meetings.application.registry, list[str]()
    run = registry.run

    async def run_and_end(tool: Any, *arguments: Any, **options: Any) -> Any:
        result = await run(tool, *arguments, **options)
        if tool.name in ("rag_ingest", "substrate_propose", "agents_run"):
            steps.append(tool.name)
            if tool.name == step and steps.count(step) == 1:
                # What it has done is there, and what it meant to do next is not: as if the process had been killed.
                raise RetryLater(0, "killed")
        return result

    monkeypatch.setattr(registry, "run", run_and_end)
    await hold_call(meetings, app)
    assert steps.count(step) == 2
    assert len(await list_documents(meetings, app)) == 1
    assert len(await list_runs(meetings, app)) == 1
    query = select(func.count()).select_from(source_artifacts)
    async with meetings.application.services.database.reading() as connection:
        assert (await connection.execute(query)).scalar_one() == 1
    assert await read_failure(meetings, app) is None


async def test_what_is_switched_off_passes_nothing_on(meetings: MeetingBaobab, app: str) -> None:
    await make_collection(meetings, app)
    await set_outcome(meetings, app, collection="calls")
    await set_outcome(meetings, app)
    await hold_call(meetings, app)
    assert await list_documents(meetings, app) == []


async def test_transcripts_are_passed_on_with_the_right_of_who_set_it_and_no_longer_than_they_have_it(
    meetings: MeetingBaobab, app: str
) -> None:
    await make_agent(meetings, app)
    made_key = (await meetings.request("POST", "/api-keys", json={"name": "calls"})).json()
    await set_outcome(meetings, app, {"authorization": f"Bearer {made_key['key']}"}, agent="scribe")
    await meetings.request("DELETE", f"/api-keys/{made_key['key_id']}")
    bot_id = await hold_call(meetings, app)
    assert await list_runs(meetings, app) == []
    failure = await read_failure(meetings, app)
    assert failure["bot_id"] == bot_id
    assert failure["message"].startswith("The key that proposed this call has been revoked.")
    await set_outcome(meetings, app, agent="scribe")
    await hold_call(meetings, app)
    assert len(await list_runs(meetings, app)) == 1


async def test_an_agent_that_was_deleted_is_named_as_the_reason(meetings: MeetingBaobab, app: str) -> None:
    await make_agent(meetings, app)
    await set_outcome(meetings, app, agent="scribe")
    assert (await meetings.request("DELETE", f"/v1/{app}/agents/scribe")).status_code < 300
    await hold_call(meetings, app)
    failure = await read_failure(meetings, app)
    assert failure["message"].startswith("There is no agent `scribe`.")


async def test_a_day_has_a_most_of_transcripts_and_others_wait(
    meetings: MeetingBaobab, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "MOST_A_DAY", 1)
    await make_collection(meetings, app)
    await set_outcome(meetings, app, collection="calls")
    first_bot = await hold_call(meetings, app)
    second_bot = await hold_call(meetings, app)
    assert [document["metadata"]["bot_id"] for document in await list_documents(meetings, app)] == [first_bot]
    await meetings.advance(_DAY)
    bots = {document["metadata"]["bot_id"] for document in await list_documents(meetings, app)}
    assert bots == {first_bot, second_bot}


async def test_an_agent_that_has_no_room_is_started_when_it_has(meetings: MeetingBaobab, app: str) -> None:
    await make_agent(meetings, app, max_concurrent_runs=1)
    await set_outcome(meetings, app, agent="scribe")
    await hold_call(meetings, app)
    await hold_call(meetings, app)
    [waiting_run] = await list_runs(meetings, app)
    path = f"/v1/{app}/agents/scribe/runs/{waiting_run['id']}"
    assert (await meetings.request("POST", f"{path}/cancel")).status_code < 300
    await meetings.advance(60)
    assert len(await list_runs(meetings, app)) == 2


async def test_a_collection_or_an_agent_that_there_is_not_cannot_be_set(meetings: MeetingBaobab, app: str) -> None:
    for body in ({"collection": "nothing"}, {"agent": "nobody"}):
        answer = await meetings.request("PUT", meetings.path(app, "transcripts"), json=body)
        assert answer.status_code == 404, answer.text
    assert (await meetings.request("GET", meetings.path(app, "transcripts"))).json() == UNSET
