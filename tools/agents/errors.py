"""The errors of agents and runs, and their envelope (documents 3 and 4, F3)."""

from typing import Any

from baobab.tools.core import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Conflict,
    Forbidden,
    NotFound,
    RateLimited,
    Unavailable,
)
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import AlreadyExists

_NO_APP = "App not found"


def _path(field: str) -> list[str | int]:
    """Returns the path of a field as text; empty for the body itself."""
    return [int(part) if part.isdigit() else part for part in field.split(".")] if field != "body" else []


class AgentsEnvelope(Envelope):
    """`{error, message, code, remediation, ...details}`: `error` is a sentence where the contract has one, as for what
    is not there and for graphs; else the code.
    """

    name = "AgentsError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        code = self.code(type(error))
        remedy = self.place_details(error.remedy)
        text = error.message if isinstance(error, _WITH_SENTENCE) else code
        if isinstance(error, AppNotFound):
            text = _NO_APP
        body = {"error": text, "message": error.message, "code": code, "remediation": remedy}
        if isinstance(error, BadRequest) and "fields" in error.details:
            issues = [{"path": _path(each["field"]), "message": each["problem"]} for each in error.details["fields"]]
            return {**body, "error": "Invalid body", "issues": issues}
        return {**error.details, **body}

    def schema(self) -> Schema:
        text = {"type": "string"}
        properties = {"error": text, "message": text, "code": text, "remediation": text}
        return {"type": "object", "properties": properties, "required": ["error", "message"]}


ENVELOPE = AgentsEnvelope({RateLimited: "rate_limit_exceeded", Forbidden: "forbidden"})


class AgentNotFound(NotFound):
    code = "agent_not_found"
    summary = "The app has no agent with this name."
    remediation = "List the agents with op:agents_list."


class RunNotFound(NotFound):
    code = "run_not_found"
    summary = "There is no such run."
    remediation = "List the runs with op:agents_runs_list."


class AgentExists(AlreadyExists):
    code = "agent_exists"
    summary = "The app already has an agent with this name."
    remediation = "Choose another name, or change the agent (op:agents_update)."


class InvalidGraph(BadRequest):
    code = "invalid_graph_spec"
    summary = "The graph is not valid."
    remediation = "Correct what `issues` names; op:agents_validate checks a graph without saving it."


class NoGraph(BaobabError):
    code = "validation_error"
    status = 422
    summary = "`graph_spec` is not a JSON object."
    remediation = "Send the graph as an object in `graph_spec`; problems inside it are listed in `issues`."


class AgentDisabled(BadRequest):
    code = "agent_disabled"
    summary = "Agent is disabled"
    remediation = "Set its `status` to `active` (op:agents_update)."


_WITH_SENTENCE = (NotFound, InvalidGraph, NoGraph, AgentDisabled)


class UnsafePublic(Conflict):
    code = "unsafe_public_visibility"
    summary = "Anybody can run a public agent, so a person must review what it can do first."
    remediation = "Review `offending_tools`, then send `safety_acknowledged: true`."


class RunConflict(Conflict):
    code = "conflict"
    summary = "Another run of this agent was started a moment ago, with another input."
    remediation = (
        "Send the same input to get that run, wait for the agent's dedupe_window_seconds, or send an `idempotency_key`."
    )


class StepNotFound(NotFound):
    code = "run_step_not_found"
    summary = "The run cannot continue from this step."
    remediation = (
        "Take a step of one of its node_start events (op:agents_runs_events_list), or 0, where something follows it; "
        "or leave it out."
    )


class KeyReused(Conflict):
    code = "idempotency_key_reuse"
    summary = "This idempotency key was used for a run with another input."
    remediation = "Use a new key for a new run."


class RunEnded(Conflict):
    code = "run_ended"
    summary = "The run has ended."
    remediation = "Start a new one (op:agents_run)."


class RunUnderWay(Conflict):
    code = "run_under_way"
    summary = "The run, or one that it is a step of, has not ended."
    remediation = (
        "Wait until it has ended, or cancel it (op:agents_runs_cancel) if nobody waits for it; then delete it."
    )


class NoWebhook(Conflict):
    code = "run_without_webhook"
    summary = "The run was started without a `webhook_url`."
    remediation = "Read the run, or its events, to see what came of it."


class NotPaused(Conflict):
    code = "run_not_paused"
    summary = "The run is not waiting for a person."
    remediation = "Read the run (op:agents_runs_get); only a paused run can be resumed."


class TokenInvalid(Conflict):
    code = "approval_token_invalid"
    summary = "The run is not waiting for a decision with this token."
    remediation = (
        "Take the token from the latest run_paused event (op:agents_runs_events_list); each works for one decision."
    )


class StreamTokenInvalid(BaobabError):
    code = "stream_token_invalid"
    status = 401
    summary = "The stream token is unknown, used or too old."
    remediation = "Ask for a new one (op:agents_public_stream_token): each opens one stream, within 15 minutes."


class NotYourRun(Forbidden):
    summary = "This agent is private."
    remediation = "Ask whoever runs the app to make it `authenticated` or `public`."


class LimitExceeded(BaobabError):
    """A limit of an agent is reached: `limit` names it, the other details say its value and what was counted."""

    code = "rate_limit_exceeded"
    status = 429
    summary = "The agent has reached a limit and starts no more runs for now."
    remediation = "Try again at `reset_at`, or when other runs have ended."


class Overloaded(Unavailable):
    code = "agent_runtime_overloaded"
    summary = "Too many runs are waiting to start."
    remediation = "Try again later, with exponential backoff."

    def __init__(self) -> None:
        super().__init__(self.summary)
        self.retry_after = 10


class ToolServerExists(AlreadyExists):
    code = "tool_server_exists"
    summary = "The app already has a tool server with this name."
    remediation = "Choose another name; op:mcp_servers_list shows the other server."
