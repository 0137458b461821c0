"""The errors of calls to models. Providers' own messages are not passed on, because they leak hosts and keys."""

from typing import Any, ClassVar, Self

from baobab.tools.core.errors import BadRequest, BaobabError, NotFound


class ModelNotFound(NotFound):
    code = "model_not_found"
    summary = "There is no such model here."
    remediation = "op:gateway_models lists the models that can be called."


class ProviderLacksModel(ModelNotFound):
    """The model is in the catalogue, but its provider does not have it."""

    summary = "The model's provider does not have it."


class NoModel(BadRequest):
    code = "NO_MODEL"
    summary = "The request names no model, and there is no default."
    remediation = "Name a model of op:gateway_models, or set the app's defaultModel."


class WrongEndpoint(BadRequest):
    code = "WRONG_MODALITY"
    summary = "The model is not for this endpoint."
    remediation = "Use a model of the modality that the endpoint is for; op:gateway_models lists them."


class UseVideoEndpoint(WrongEndpoint):
    code = "USE_VIDEO_ENDPOINT"
    summary = "The model makes videos; it does not chat."
    remediation = "Use op:videos_generate."


class RequestRefused(BadRequest):
    """The provider refused the request."""

    code = "invalid_request"
    summary = "The model's provider refused the request."
    remediation = "Check the fields that this model takes."


class ParameterRefused(RequestRefused):
    """The model does not take a parameter of the request. parameter: the name of the field."""

    summary = "The model does not take a parameter of the request."
    remediation = "Leave it out, or send `drop_params: true` to have such parameters left out."

    def __init__(self, parameter: str, message: str | None = None) -> None:
        super().__init__(message or f"The model does not take `{parameter}`.", details={"param": parameter})
        self.parameter = parameter


class ContentRefused(RequestRefused):
    code = "content_policy_violation"
    summary = "The model's provider refused the request by its content policy."
    remediation = "Change the request, or use another model."


class ContentFiltered(ContentRefused):
    code = "content_filter"
    summary = "The provider's content filter stopped the request."


class ThreadUnsupported(RequestRefused):
    """Refuses a thread in the form that Anthropic's clients look for in `error.details`, to go on without one."""

    summary = "Threads of messages are not stored here."
    remediation = "Leave `thread` out, and send the whole conversation in `messages`."

    def __init__(self) -> None:
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        super().__init__(details={"param": "thread", "details": details})


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"
    # The vendors' words: clients look for them, to go on with a model that has a longer window.
    summary = "This model's maximum context length is less than the request has."
    remediation = "Send fewer or shorter messages, or use a model with a longer window."


class UpstreamFailed(BaobabError):
    """A failure of the provider, or of the operator's account there.

    The provider may have worked on the request and charged for it, so the request is not sent again, and clients are
    told not to repeat it by themselves. `mark_unbilled` marks a failure that cost nothing.
    """

    code = "upstream_error"
    status = 502
    summary = "The model's provider failed."
    remediation = "Try again in a moment, or use another model."
    is_lasting: ClassVar[bool] = False
    """Whether the same request will fail again."""

    def __init__(self, message: str | None = None, **options: Any) -> None:
        super().__init__(message, **options)
        self.is_unbilled = False
        self.headers.setdefault("x-should-retry", "false")

    def mark_unbilled(self) -> Self:
        """Marks the request as not sent, or refused before it cost anything, and returns the error."""
        self.is_unbilled = True
        if not self.is_lasting:
            self.headers.pop("x-should-retry", None)
        return self


class UpstreamMalformed(UpstreamFailed):
    code = "upstream_malformed"
    summary = "The model's provider sent an invalid answer."


class UpstreamDenied(UpstreamFailed):
    code = "upstream_denied"
    summary = "The model's provider does not accept this server's key."
    is_lasting = True
    remediation = "The operator must set a valid key for the provider."


class UpstreamUnpaid(UpstreamDenied):
    code = "upstream_unpaid"
    summary = "The operator's account at the model's provider must be paid first."
    remediation = "Use another model. The operator must top up the account at the provider."


class UpstreamTimeout(UpstreamFailed):
    code = "upstream_timeout"
    status = 504
    summary = "The model's provider did not answer in time."


class UpstreamBusy(UpstreamFailed):
    code = "rate_limit_exceeded"
    status = 429
    summary = "The model's provider takes no more requests for now."
    remediation = "Wait as long as Retry-After says, or use another model."
