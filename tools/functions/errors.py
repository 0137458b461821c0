"""The errors of functions, and the form that those of a public call have."""

from typing import Any, ClassVar

from baobab.tools.core import BadRequest, BaobabError, Conflict, Forbidden, NotFound, Unauthenticated
from baobab.tools.core.envelopes import STRUCTURED, Envelope, Schema
from baobab.tools.core.limits.plan_room import PlanLimitReached


class FunctionNotFound(NotFound):
    summary = "There is no function of this name."
    remediation = "op:functions_list lists those of the app; names are exact."


class VersionNotFound(NotFound):
    summary = "The function has no such version."
    remediation = "op:functions_versions lists them; the last 50 are kept."


class FunctionInvalid(BadRequest):
    summary = "The function cannot be deployed."
    remediation = "Correct what the message names and deploy it again; nothing has changed."


class EnvInvalid(BadRequest):
    summary = "The environment is not valid."
    remediation = "Names are letters, digits and underscores, and do not begin with `PLATFORM_`; values are texts."


class NameTaken(Conflict):
    code = "RESOURCE_ALREADY_EXISTS"
    summary = "The app has a function whose name differs only in the case of its letters."
    remediation = "Deploy it under the name that there is, which details.name has, or choose another one."


class TooManyFunctions(Conflict):
    code = "FUNCTIONS_FULL"
    summary = "The app has reached its limit of functions."
    remediation = "Let one function do the work of several, or ask whether one may go (op:functions_delete)."


class NothingToChange(BadRequest):
    code = "VALIDATION_MISSING_FIELD"
    summary = "The request names nothing that is to be changed."
    remediation = "Send at least one setting."


class InvocationsExhausted(PlanLimitReached):
    summary = "The app's functions have been called as often as its plan allows in a month."
    remediation = "Wait for the next month, or ask the operator for another plan (`baobab plan`)."


class ImpersonationDisabled(Forbidden):
    code = "AUTH_IMPERSONATION_DISABLED"
    summary = "This function takes no `X-Platform-As-User`."
    remediation = "Call it without this header, or with the user's own token."


class SignInRequired(Unauthenticated):
    summary = "This function needs a credential."
    remediation = "Send the token of a user of the app, or a key of the app, as `Authorization: Bearer ...`."


class NoHandler(BadRequest):
    summary = "No function handles this event."
    remediation = "Deploy a function with a `websocket` trigger, or correct the event's name."


class NotATool(NotFound):
    code = "FUNCTION_NOT_A_TOOL"
    summary = "There is no function of this name that agents may call for you."
    remediation = "op:functions_tools lists those that you may call."


class ToolCallFailed(BaobabError):
    code = "FUNCTION_FAILED"
    status = 502
    summary = "The function failed."
    remediation = (
        "Correct the arguments if the message says so. Those who run the app find more with op:functions_logs."
    )


class ReadOnlyRefused(Forbidden):
    summary = "A function whose `agent_tool_mode` is `read_only` changes nothing when an agent calls it."
    remediation = "Set `agent_tool_mode` to `read_write` and deploy it again: a person then approves each of its calls."


class SqlMissing(BaobabError):
    code = "FUNCTION_SQL_MISSING"
    status = 501
    summary = "This server has no SQL for functions yet."
    remediation = "Read and write rows with fetch to PLATFORM_API_URL/v1/{app_id}/{table}."


class SubstrateUnlinked(Forbidden):
    summary = "The app is not linked to a substrate."
    remediation = "An admin of the organisation links it with op:apps_link_substrate."


class OwnServerRefused(Forbidden):
    code = "FUNCTION_FETCH_REFUSED"
    summary = "Functions reach only the paths of their own app at this server."
    remediation = "Use PLATFORM_API_URL with a path of the app, such as /v1/{app_id}/TABLE."


class HostNotAllowed(Forbidden):
    code = "FUNCTION_FETCH_REFUSED"
    summary = "The function names the hosts that its fetch reaches, and this is none of them."
    remediation = (
        "If the function should reach it, add it with op:functions_settings_update; keep the others in the list."
    )


class CallFailed(BaobabError):
    """What ends a public call before or instead of an answer of the function. Its body is flat."""

    status = 500
    slug: ClassVar[str]


class PublicNotFound(CallFailed):
    code = "RESOURCE_NOT_FOUND"
    status = 404
    slug = "Function not found"
    summary = "There is no function of this name with a trigger for this."
    remediation = "op:functions_list lists the functions of the app with their triggers; names are exact."


class MethodRefused(CallFailed):
    code = "METHOD_NOT_ALLOWED"
    status = 405
    slug = "method_not_allowed"
    summary = "The function's http trigger takes another method."
    remediation = "Use the method that the Allow header names."


class SignatureRefused(CallFailed):
    code = "AUTH_INVALID_SIGNATURE"
    status = 401
    slug = "signature verification failed"
    summary = "The signature of this webhook is missing, wrong or too old."
    remediation = "Give the sender the secret of the function's webhook trigger; its clock must be right, too."


class FunctionsFull(CallFailed):
    code = "FUNCTIONS_BUSY"
    status = 429
    slug = "too_many_invocations"
    summary = "As many functions run as can run at once."
    remediation = "Wait for the seconds in Retry-After and call again."


class RuntimeAway(CallFailed):
    code = "FUNCTIONS_UNAVAILABLE"
    status = 502
    slug = "function_runtime_unavailable"
    summary = "The part of the server that runs functions does not answer."
    remediation = "Try again later. If it stays so, tell the operator, whose log says why."


class TooDeep(CallFailed):
    code = "FUNCTION_TOO_DEEP"
    status = 508
    slug = "function_too_deep"
    summary = "Functions call each other at most four deep."
    remediation = "Let one function do the work of several."


class AnswerBroken(CallFailed):
    code = "FUNCTION_ANSWER_BROKEN"
    slug = "function_answer_broken"
    summary = "The function failed while it answered."
    remediation = "The log of the function says why (op:functions_logs)."


class DeliveryRunning(CallFailed):
    code = "FUNCTION_DELIVERY_RUNNING"
    status = 503
    slug = "delivery_running"
    summary = "The same delivery is being worked on still."
    remediation = "Send it again later."


class CallEnvelope(Envelope):
    """`{error: <slug>, message, code, remediation, ...}` for what becomes of a public call, else the usual form."""

    name = "FunctionError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        if not isinstance(error, CallFailed):
            return STRUCTURED.render(error, docs)
        words = {"error": error.slug, "code": error.code, "message": error.message, "remediation": error.remedy}
        return {**words, **error.details}

    def schema(self) -> Schema:
        text = {"type": "string"}
        flat = {
            "type": "object",
            "properties": {"error": text, "code": text, "message": text, "remediation": text},
            "required": ["error", "code", "message", "remediation"],
        }
        return {"anyOf": [flat, STRUCTURED.schema()]}
