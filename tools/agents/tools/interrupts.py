"""The tool with which a graph asks a person: it does nothing but wait for the approval."""

from typing import Annotated, Any

from pydantic import AfterValidator

from baobab.runtime.agents.spec.answer_schema import find_schema_error
from baobab.tools.agents.schemas.agents import Answered
from baobab.tools.agents.toolset import agents
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, Guard, JsonObject, Mcp, Text


def _require_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if (fault := find_schema_error(schema)) is not None:
        raise ValueError(f"must be a JSON Schema: {fault[1]}")
    return schema


AnswerSchema = Annotated[JsonObject, AfterValidator(_require_schema)]


@agents.tool(
    access=EVERYBODY,
    effect="write",
    audit=Audit("agent.interrupt", category="agents"),
    limit=None,
    mcp=Mcp(offered=False),
    guard=Guard(consequence="The run goes on with the answer, and makes the call that the question announces, if any."),
)
async def interrupt(
    call: Call,
    app_id: AppId,
    reason: Annotated[str, Text(2000, min_length=1)],
    data: JsonObject | None = None,
    answer_schema: AnswerSchema | None = None,
) -> Answered:
    """Ask a person before going on. What they change in `data` is in the answer.

    reason: what the person is asked.
    data: what they look at, and may change.
    answer_schema: a JSON Schema that `data` must match once they have changed it. The console makes a form of it.
    """
    return {"approved": True, "reason": reason, "data": data}
