"""What a model, or whoever serves it, can refuse. Their own texts are not passed on: they leak hosts and keys."""

from baobab.tools.errors import BadRequest, BaobabError, NotFound


class ModelNotFound(NotFound):
    code = "model_not_found"
    summary = "There is no such model here."
    remediation = "GET /v1/models lists the models that can be called."


class NoModel(BadRequest):
    code = "NO_MODEL"
    summary = "The request names no model, and there is no default."
    remediation = "Name a model of GET /v1/models, or set the app's defaultModel."


class WrongEndpoint(BadRequest):
    code = "WRONG_MODALITY"
    summary = "The model is not for this endpoint."
    remediation = "Use a model of the modality that the endpoint is for; GET /v1/models lists them."


class UseVideoEndpoint(WrongEndpoint):
    code = "USE_VIDEO_ENDPOINT"
    summary = "The model makes videos; it does not chat."


class RequestRefused(BadRequest):
    """The provider refused what it was asked."""

    code = "invalid_request"
    summary = "The model's provider refused the request."
    remediation = "Check the fields that this model takes."


class ThreadUnsupported(RequestRefused):
    """The wording that Anthropic's clients go on from, without a thread: they look for it in `error.details`."""

    summary = "Threads of messages are not kept here."
    remediation = "Leave `thread` out, and send the whole conversation in `messages`."

    def __init__(self) -> None:
        told = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        super().__init__(details={"param": "thread", "details": told})


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"
    summary = "The request is longer than the model's context window."
    remediation = "Send fewer or shorter messages, or use a model with a longer window."


class UpstreamFailed(BaobabError):
    """Everything that is the provider's fault, or the operator's towards it."""

    code = "upstream_error"
    status = 502
    summary = "The model's provider failed."
    remediation = "Try again in a moment, or use another model."


class UpstreamMalformed(UpstreamFailed):
    code = "upstream_malformed"
    summary = "The model's provider answered something that is no answer."


class UpstreamDenied(UpstreamFailed):
    code = "upstream_denied"
    summary = "The model's provider does not accept this server's key."
    remediation = "The operator must set a valid key for the provider."


class UpstreamTimeout(UpstreamFailed):
    code = "upstream_timeout"
    status = 504
    summary = "The model's provider did not answer in time."


class UpstreamBusy(UpstreamFailed):
    code = "rate_limit_exceeded"
    status = 429
    summary = "The model's provider takes no more requests for now."
    remediation = "Wait as long as Retry-After says, or use another model."
