"""The tool with which a graph asks a person: it does nothing but wait for the approval."""

from typing import Annotated

from baobab.tools.agents.schemas.agents import Answered
from baobab.tools.agents.toolset import agents
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Mcp
from baobab.tools.core.types import AppId, JsonObject, Text


@agents.tool(
    access=EVERYBODY,
    effect="write",
    audit=Audit("agent.interrupt", category="agents"),
    limit=None,
    mcp=Mcp(offered=False),
)
async def interrupt(
    call: Call,
    app_id: AppId,
    reason: Annotated[str, Text(2000, min_length=1)],
    data: JsonObject | None = None,
) -> Answered:
    """Ask a person before going on. What they change in `data` is in the answer.

    reason: what the person is asked.
    data: what they look at, and may change.
    """
    return {"approved": True, "reason": reason, "data": data}
