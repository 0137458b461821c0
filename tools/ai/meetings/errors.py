"""The errors of meeting bots, and their envelopes: the gateway's form, and a flat one for usage and webhooks."""

from typing import Any

from baobab.tools.ai.errors import AiEnvelope
from baobab.tools.core import AppNotFound, BadRequest, BaobabError, Conflict, Forbidden, NotFound, Unauthenticated
from baobab.tools.core.envelopes import Envelope, Schema


class ProviderUnavailable(BaobabError):
    code = "provider_unavailable"
    status = 501
    summary = "This server has no provider of meeting bots."
    remediation = (
        "Ask the operator to set BAOBAB_MEETINGS_PROVIDER. Until then, record the call yourself, and ingest its"
        " transcript with op:rag_ingest."
    )


class UnsupportedMeeting(BadRequest):
    code = "invalid_request"
    summary = "`meetingUrl` is not the address of a meeting that the provider's bots can join."
    remediation = "Send the full https link of the meeting, as its invitation has it."


class ReservedMetadata(BadRequest):
    code = "invalid_request"
    summary = "Keys of `metadata` that begin with `bb_` are reserved."
    remediation = "Rename the key."


class NothingToDo(BadRequest):
    code = "invalid_request"
    summary = "The bot would neither record nor transcribe."
    remediation = "Leave `transcript` or `recording` out, or set one of them."


class TooManySimulated(BaobabError):
    code = "too_many_simulated_bots"
    status = 429
    summary = "Your organisation has as many simulated bots that are not over as it may have at once."
    remediation = (
        "Wait until one of details.limit bots is over, or stop one with op:meetings_stop or op:gateway_meetings_stop."
        " Bots of a real provider have no such limit."
    )


class BotNotFound(NotFound):
    code = "bot_not_found"
    summary = "There is no such bot here."
    remediation = "op:meetings_list and op:gateway_meetings_list list your bots."


class NotKept(Conflict):
    code = "file_not_ready"
    summary = "The bot has no such file now."
    remediation = (
        "Read the bot: wait for the status `done`, then while `chargedUsd` is null. Its files go after 7 days."
    )


class DeliveryNotFound(NotFound):
    code = "delivery_not_found"
    summary = "There is no such delivery here."
    remediation = "op:meetings_deliveries and op:gateway_meetings_deliveries list them."


class NoForwardUrl(Conflict):
    code = "no_forward_url"
    summary = "There is no address to which events are sent."
    remediation = "Set one with op:meetings_webhook_set or op:gateway_meetings_webhook_set."


class ForwardUrlRefused(BadRequest):
    code = "invalid_request"
    summary = "`forward_url` is not an address to which this server may send."
    remediation = "Send an https address of a public host."


class CalendarNotFound(NotFound):
    code = "calendar_not_found"
    summary = "There is no such calendar here."
    remediation = "op:meetings_calendars_list lists those by which this app sends bots."


class CalendarNotConnected(Conflict):
    code = "calendar_not_connected"
    summary = "The user has no connected account at this service."
    remediation = (
        "Have the user connect it (op:integrations_connect), or name a user of op:integrations_connections, and send"
        " this again."
    )


class TooManyCalendars(Conflict):
    code = "too_many_calendars"
    summary = "The app has as many calendars as it may have."
    remediation = (
        "Ask the app's owner which one of op:meetings_calendars_list is not needed, and remove it with"
        " op:meetings_calendars_delete."
    )


class HookUnsigned(Unauthenticated):
    code = "invalid_signature"
    summary = "The provider has not signed this webhook, or not with the secret that this server has, or too long ago."
    remediation = "Set BAOBAB_MEETINGS_WEBHOOK_SECRET to the signing secret that the provider shows."


class HookNotRead(BaobabError):
    code = "webhook_too_involved"
    status = 413
    summary = "The webhook has more parts than the provider needs to tell what became of a bot, so it was not read."
    remediation = "Do nothing: this server asks the provider about each bot itself, about every 20 seconds."


_CODES: dict[type[BaobabError], str] = {
    NotFound: "not_found",
    AppNotFound: "app_not_found",
    Forbidden: "not_authorized",
    Conflict: "conflict",
}


class MeetingsEnvelope(AiEnvelope):
    """The gateway's envelope with the codes of meetings; the faults of a request are in `error.details`."""

    name = "MeetingsError"

    def __init__(self) -> None:
        super().__init__()
        self._codes |= _CODES

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        body = super().render(error, docs)
        if "fields" in body["error"]:
            body["error"]["details"] = body["error"].pop("fields")
        return body


class GatewayMeetingsEnvelope(MeetingsEnvelope):
    """The same for bots that belong to no app: whom the gateway refuses lacks a scope, and not an app."""

    name = "GatewayMeetingsError"

    def __init__(self) -> None:
        super().__init__()
        self._codes[Forbidden] = "insufficient_scope"


class FlatMeetingsEnvelope(Envelope):
    """`{error: <text>, details?, code, message, remediation}` of usage and webhooks."""

    name = "MeetingsFlatError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        texts: dict[type[BaobabError], str] = {
            AppNotFound: "App not found",
            Forbidden: "Not authorized",
            BadRequest: "Invalid request",
        }
        text = next((words for kind, words in texts.items() if isinstance(error, kind)), error.summary)
        body = {
            "error": text,
            "code": self.code(type(error)),
            "message": error.message,
            "remediation": self.place_details(error.remedy),
        }
        details = dict(error.details)
        fields = details.pop("fields", None)
        return {**details, **body, **({} if fields is None else {"details": fields})}

    def schema(self) -> Schema:
        text = {"type": "string"}
        properties = {"error": text, "code": text, "message": text, "remediation": text, "details": {"type": "array"}}
        return {"type": "object", "properties": properties, "required": ["error", "code"]}


MEETINGS_ENVELOPE, GATEWAY_MEETINGS_ENVELOPE = MeetingsEnvelope(), GatewayMeetingsEnvelope()
FLAT_MEETINGS_ENVELOPE = FlatMeetingsEnvelope()
