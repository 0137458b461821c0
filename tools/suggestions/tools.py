"""Tools that send a suggestion, with or without an account: POST /suggestions and /public/suggestions."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic_core import to_json
from sqlalchemy import insert
from typing_extensions import TypedDict

from baobab.tools.core import (
    EVERYBODY,
    AnyAccount,
    AppId,
    AppNotFound,
    Audit,
    Call,
    Forbidden,
    JsonObject,
    Mcp,
    PerAddress,
    Rest,
    Text,
)
from baobab.tools.core.auth.access import owner_role
from baobab.tools.core.limits.limits import PerOrganisation
from baobab.tools.suggestions.tables import table
from baobab.tools.suggestions.toolset import suggestions

_NOBODY = "anonymous"
"""The `user_id` of suggestions that came without an account."""

Category = Literal["bug_report", "feature_request", "improvement", "documentation"]
Severity = Literal["low", "medium", "high", "critical"]
Source = Literal["agent", "human_prompted"]
Description = Annotated[str, Text(10_000, min_length=10)]
Solution = Annotated[str, Text(10_000)]
ToolName = Annotated[str, Text(128)]

_MOST_A_DAY = 100
_LARGEST_CONTEXT = 16 * 1024


def _small(context: dict[str, Any]) -> dict[str, Any]:
    if len(to_json(context)) > _LARGEST_CONTEXT:
        raise ValueError(f"must have at most {_LARGEST_CONTEXT} bytes as JSON")
    return context


Context = Annotated[JsonObject, AfterValidator(_small)]


class Suggestion(TypedDict):
    id: str
    category: Category
    severity: Severity | None
    description: str
    affected_tool: str | None
    proposed_solution: str | None
    source: Source
    status: str
    api_key_id: str | None
    user_id: str
    app_id: str | None
    created_at: datetime


class SuggestionTaken(TypedDict):
    suggestion: Suggestion


@suggestions.tool(
    "POST /suggestions",
    access=AnyAccount(),
    effect="write",
    limit=PerOrganisation(_MOST_A_DAY, 86_400),
    raises=(AppNotFound, Forbidden),
    audit=Audit("suggestion.create", action="create", resource="suggestion"),
    rest=Rest(
        status=201, examples={"category": "documentation", "description": "Say in the tour how to delete a key."}
    ),
)
async def suggestions_create(
    call: Call,
    category: Category,
    description: Description,
    severity: Severity | None = None,
    affected_tool: ToolName | None = None,
    proposed_solution: Solution | None = None,
    source: Source = "agent",
    app_id: AppId | None = None,
    agent_context: Context | None = None,
) -> SuggestionTaken:
    """Suggest an improvement, or report a fault, to those who run this installation: 100 a day of an organisation.

    category: which kind of suggestion it is.
    description: what happened or what is wished for, and why.
    severity: how serious it is.
    affected_tool: the name of the tool that it is about.
    proposed_solution: what would help.
    source: whether an agent thought of it, or a person asked for it.
    app_id: the app of yours that it is about.
    agent_context: anything that helps to understand it, up to 16 KB; no secrets.
    """
    caller = call.account
    if app_id is not None:
        call.app = await call.services.directory.app(app_id)
        call.role = await owner_role(call)
    row: Suggestion = {
        "id": call.services.ids.uuid(),
        "category": category,
        "severity": severity,
        "description": description,
        "affected_tool": affected_tool,
        "proposed_solution": proposed_solution,
        "source": source,
        "status": "new",
        "api_key_id": caller.key_id,
        "user_id": caller.account_id,
        "app_id": app_id,
        "created_at": call.now,
    }
    await call.execute(insert(table), {**row, "agent_context": agent_context})
    call.audit.resource_id = row["id"]
    return {"suggestion": row}


class SuggestionNoted(TypedDict):
    id: str
    status: str


@suggestions.tool(
    "POST /public/suggestions",
    access=EVERYBODY,
    effect="write",
    limit=PerAddress(10, 3600),
    audit=Audit("suggestion.create", action="create", resource="suggestion"),
    rest=Rest(
        status=201, examples={"category": "documentation", "description": "Say in the tour how to delete a key."}
    ),
    mcp=Mcp(offered=False),
)
async def suggestions_public_create(
    call: Call,
    category: Category,
    description: Description,
    severity: Severity | None = None,
    affected_tool: ToolName | None = None,
    proposed_solution: Solution | None = None,
    source: Source = "human_prompted",
) -> SuggestionNoted:
    """Suggest an improvement, or report a fault, without an account: ten an hour from one address.

    category: which kind of suggestion it is.
    description: what happened or what is wished for, and why.
    severity: how serious it is.
    affected_tool: the name of the tool that it is about.
    proposed_solution: what would help.
    source: whether an agent thought of it, or a person asked for it.
    """
    suggestion_id, status = call.services.ids.uuid(), "new"
    row = {
        "id": suggestion_id,
        "category": category,
        "severity": severity,
        "description": description,
        "affected_tool": affected_tool,
        "proposed_solution": proposed_solution,
        "source": source,
        "status": status,
        "user_id": _NOBODY,
        "created_at": call.now,
    }
    await call.execute(insert(table), row)
    call.audit.resource_id = suggestion_id
    return {"id": suggestion_id, "status": status}
