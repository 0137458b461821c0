"""The errors of people, and their envelope (documents 2 and 4, E7)."""

from typing import Any

from baobab.tools.core import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Forbidden,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import InvalidType, MalformedBody, MissingField, UnknownField
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted


class PeopleEnvelope(Envelope):
    """`{error: <code>, message, remediation, ...details}`, such as the `slot` without a provider. Of a provider's own
    errors, `error` is a sentence and `code` the code.
    """

    name = "PeopleError"

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        words = {"message": error.message, "remediation": self.place_details(error.remedy)}
        code = self.code(type(error))
        if isinstance(error, ProviderError):
            return {"error": error.message, "code": code, **words}
        return {**error.details, "error": code, **words}

    def schema(self) -> Schema:
        text = {"type": "string"}
        names = ("error", "message", "remediation", "slot", "code")
        return {"type": "object", "properties": dict.fromkeys(names, text), "required": ["error"]}


ENVELOPE = PeopleEnvelope(
    {
        AppNotFound: "app_not_found",
        BadRequest: "invalid_request",
        BudgetExhausted: "insufficient_credits",
        CreditsExhausted: "insufficient_credits",
        Forbidden: "forbidden",
        InvalidType: "invalid_request",
        MalformedBody: "invalid_request",
        MissingField: "invalid_request",
        RateLimited: "rate_limit_exceeded",
        Unauthenticated: "unauthorized",
        Unavailable: "service_unavailable",
        UnknownField: "invalid_request",
    }
)


class PeopleDisabled(BaobabError):
    code = "people_disabled"
    status = 503
    summary = "The operator has not allowed this server to look up real people."
    remediation = "The operator reads docs/people.md about lawful use, and then sets BAOBAB_PEOPLE_LIVE=true."


class PeopleUnavailable(BaobabError):
    code = "people_unavailable"
    status = 503
    summary = "This server has no provider of people, and its simulator is off."
    remediation = "The operator sets BAOBAB_PEOPLE_PRIMARY and its key, or BAOBAB_SIMULATORS=on to try it without one."


class SlotError(BaobabError):
    """An error of the slot to which the operator's settings lead an action."""

    def __init__(self, slot: str, message: str) -> None:
        super().__init__(message, details={"slot": slot})


class ProviderNotRegistered(SlotError):
    code = "provider_not_registered"
    status = 503
    summary = "The slot to which this action is routed has no provider."
    remediation = "The operator sets the provider of details.slot, or routes the action by BAOBAB_PEOPLE_ROUTES."


class ActionUnsupported(SlotError):
    code = "provider_action_unsupported"
    status = 503
    summary = "The provider of the slot cannot do this."
    remediation = "The operator routes the action to the other slot by BAOBAB_PEOPLE_ROUTES."


class EmailsDisabled(BaobabError):
    code = "email_lookups_disabled"
    status = 503
    summary = "E-mail lookups are not enabled: providers cannot reach this server with what they find."
    remediation = "The operator sets BAOBAB_BASE_URL to the public address of this server."


class ProviderError(BaobabError):
    """An error of the provider: with its status below 500, else 502. Nothing is charged for it."""


class ProviderFailed(ProviderError):
    """Raised for 5xx, timeouts and answers that cannot be read. It is transient."""

    code = "provider_failed"
    status = 502
    summary = "The provider of people has failed."
    remediation = "Try again in a moment. Nothing was charged."


class ProviderRefused(ProviderError):
    code = "provider_refused"
    status = 400
    summary = "The provider of people refused the request."
    remediation = "Correct the request as the message says. Nothing was charged."


class ProviderUnauthorized(ProviderError):
    code = "provider_unauthorized"
    status = 401
    summary = "The provider of people does not accept the operator's key."
    remediation = "Your own credential is fine. The operator sets a key that the provider accepts. Nothing was charged."


class ProviderUnpaid(ProviderError):
    code = "provider_unpaid"
    status = 402
    summary = "The operator's account at the provider of people has no credits left."
    remediation = "Your own balance is fine. The operator tops the account at the provider up. Nothing was charged."


class ProviderForbidden(ProviderError):
    code = "provider_forbidden"
    status = 403
    summary = "The operator's account at the provider of people may not do this."
    remediation = "Your own credential is fine. The operator asks the provider for the right. Nothing was charged."


class ProviderNotFound(ProviderError):
    code = "provider_not_found"
    status = 404
    summary = "The provider of people does not have what was asked for."
    remediation = "Check the request. Nothing was charged."


class ProviderUnprocessable(ProviderRefused):
    code = "provider_unprocessable"
    status = 422
    summary = "The provider of people cannot process the request."


class ProviderBusy(ProviderError):
    code = "provider_busy"
    status = 429
    summary = "The provider of people takes no more requests at the moment."
    remediation = "Wait for the seconds in Retry-After and try again. Nothing was charged."


PROVIDER_ERRORS = (
    ProviderFailed,
    ProviderRefused,
    ProviderUnauthorized,
    ProviderUnpaid,
    ProviderForbidden,
    ProviderNotFound,
    ProviderUnprocessable,
    ProviderBusy,
)


class TokenInvalid(BadRequest):
    summary = "nextToken is not one that this app was given for this search, or its provider has changed since."
    remediation = "Send the search without nextToken, and take the token from the nextPage of its answer."


class AddressInvalid(BadRequest):
    summary = "networkProfileUrl is not the https address of a profile."
    remediation = "Send a whole address, such as https://network.example/in/ada."


class LookupNotFound(NotFound):
    code = "lookup_not_found"
    summary = "This app has no e-mail lookup with this id."
    remediation = "Use the lookupId that op:people_email_queue has answered."
