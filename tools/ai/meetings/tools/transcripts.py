"""The tools that say what becomes of an app's finished transcripts."""

from datetime import datetime
from typing import Any

from baobab.tools.ai.meetings.forwarding import find_settings, save_settings
from baobab.tools.ai.meetings.outcomes import act_in
from baobab.tools.ai.meetings.schemas import AgentName, CollectionName, TranscriptSettings
from baobab.tools.ai.meetings.toolset import meeting_accounts
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard
from baobab.tools.core.auth import proposers


@meeting_accounts.tool("GET /{app_id}/ai/meetings/transcripts", access=AppOwner(), effect="read")
async def meetings_transcripts_get(call: Call, app_id: AppId) -> TranscriptSettings:
    """Read what becomes of an app's finished transcripts, and what failed last."""
    payer = payer_of(call)
    async with call.services.database.reading() as connection:
        settings = await find_settings(connection.execute, payer.organisation_id, app_id)
    return _describe(None if settings is None else settings.transcripts)


@meeting_accounts.tool(
    "PUT /{app_id}/ai/meetings/transcripts",
    access=AppOwner("admin"),
    effect="write",
    audit=Audit("ai_meetings.transcripts", category="ai", action="update", resource="meeting_settings"),
    guard=Guard(grants=True),
)
async def meetings_transcripts_set(
    call: Call,
    app_id: AppId,
    collection: CollectionName | None = None,
    agent: AgentName | None = None,
    substrate: bool = False,
) -> TranscriptSettings:
    """Say what becomes of an app's finished transcripts: a document in a collection, a source artifact in your
    organisation's substrate, a run of an agent, or several of them.

    All are made with the caller's right, for at most 200 transcripts a day. A run is tainted from its start: what it
    writes waits for a person. Without arguments, it is switched off.

    collection: the collection in which each becomes a document; null for none.
    agent: the agent that is started once with each; null for none. Its input has `transcript`, `participants`,
        `metadata`, `bot_id` and, where there is one, `document_id` and `artifact_id`.
    substrate: whether each becomes a source artifact, from which commitments and decisions can be recorded. It needs an
        account that is signed in: keys of an app or an account do not open the substrate.
    """
    app = {"app_id": app_id}
    await _require(call, "rag_collections_get", collection and {**app, "name": collection})
    await _require(call, "agents_get", agent and {**app, "name": agent})
    await _require(call, "substrate_settings", {} if substrate else None)
    payer = payer_of(call)
    settings = await find_settings(call.execute, payer.organisation_id, app_id)
    row_id = call.services.ids.uuid() if settings is None else settings.id
    transcripts: dict[str, Any] | None = None
    if collection is not None or agent is not None or substrate:
        outcomes = {"collection": collection, "agent": agent, "substrate": substrate}
        transcripts = {**outcomes, "caller": proposers.encode_caller(call.caller)}
    await save_settings(call, payer, row_id, {"transcripts": transcripts})
    call.audit.resource_id = app_id
    call.audit.data |= {"collection": collection, "agent": agent, "substrate": substrate}
    return _describe(transcripts)


async def _require(call: Call, reader: str, arguments: dict[str, Any] | str | None) -> None:
    """Raises the error of the tool that reads it if there is no such thing, or the caller may not use it."""
    if isinstance(arguments, dict):
        caller = act_in(call.caller, call.require_app().organisation_id)
        await call.registry.run(call.registry.find(reader), arguments, caller, call.context, unit=call.unit)


def _describe(transcripts: dict[str, Any] | None) -> TranscriptSettings:
    values = transcripts or {}
    failure = values.get("failure")
    if failure is not None:
        failure = failure | {"at": datetime.fromisoformat(failure["at"])}
    return {
        "collection": values.get("collection"),
        "agent": values.get("agent"),
        "substrate": values.get("substrate", False),
        "failure": failure,
    }
