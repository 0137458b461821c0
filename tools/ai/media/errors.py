"""What generation jobs refuse, and how this family words it: flat, with codes in capitals (documents 2 and 4)."""

from typing import Any

from baobab.runtime.gateway.errors import (
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from baobab.tools.core.credits import CreditsExhausted
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.errors import AppNotFound, BadRequest, BaobabError, Conflict, Forbidden, NotFound


class UnsupportedParameter(BadRequest):
    """Names what the model does not take, and all that it does."""

    code = "UNSUPPORTED_PARAM"
    summary = "The model does not take this parameter."
    remediation = "Leave it out; supported_top_level and supported_provider are all that this model takes."


class BadReference(BadRequest):
    summary = "A reference to an image is not a URL that may be fetched."
    remediation = "Send https URLs of public hosts, as texts or as `{url}`."

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"`{field}`: {problem}", details={"fields": [{"field": field, "problem": problem}]})


class InvalidIndex(BadRequest):
    code = "INVALID_INDEX"
    summary = "`index` is not a whole number of 0 or more."
    remediation = "Use a number below that of the job's files, as in its content_urls."


class IndexOutOfRange(NotFound):
    code = "INDEX_OUT_OF_RANGE"
    summary = "The job has no file of this number."
    remediation = "Use a number below that of the job's files; the first has 0."


class JobNotFound(NotFound):
    code = "JOB_NOT_FOUND"
    summary = "There is no such job, or it is not yours."
    remediation = "Ask for it with the credential that submitted it (op:images_job, op:videos_job)."


class NotSubmitter(Forbidden):
    code = "FORBIDDEN"
    summary = "Only whoever submitted the job may have its files."
    remediation = "Use the credential that submitted the job."


class JobNotCompleted(Conflict):
    code = "JOB_NOT_COMPLETED"
    summary = "The job has no files, or not yet."
    remediation = "Read the job (op:images_job, op:videos_job) until it is `completed`; current_status says what it is."


class ContentUnavailable(BaobabError):
    code = "CONTENT_UNAVAILABLE"
    status = 502
    summary = "The file is not kept any more."
    remediation = "Files are kept for 30 days; submit the request again."


class MediaEnvelope(Envelope):
    """`{error: <message>, code, remediation, ...details}`; what pydantic found stands in `details`, a list."""

    name = "MediaError"

    def __init__(self) -> None:
        unavailable = (UpstreamFailed, UpstreamMalformed, UpstreamDenied, UpstreamTimeout)
        super().__init__(
            {
                ModelNotFound: "MODEL_NOT_FOUND",
                RequestRefused: BadRequest.code,
                UpstreamBusy: "UPSTREAM_RATE_LIMIT",
                **dict.fromkeys(unavailable, "MODEL_UNAVAILABLE"),
            }
        )

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        told = {"code": self.code(type(error)), "remediation": self.place_details(error.remedy)}
        if isinstance(error, AppNotFound):
            return {**told, "error": "app_not_found", "message": error.message}
        if type(error) is Forbidden or isinstance(error, NotSubmitter):
            return {**told, "error": "forbidden", "code": "FORBIDDEN", "message": error.message}
        details = dict(error.details)
        if "fields" in details:
            details["details"] = details.pop("fields")
        if isinstance(error, CreditsExhausted):
            # There is no refilling by itself here.
            details |= {"auto_refill_enabled": False, "auto_refill_amount_usd": None, "auto_refill_last_failure": None}
        return {**details, **told, "error": error.message}

    def schema(self) -> Schema:
        text = {"type": "string"}
        told = {"error": text, "code": text, "remediation": text, "details": {"type": "array"}}
        return {"type": "object", "properties": told, "required": ["error", "code"]}


MEDIA_ENVELOPE = MediaEnvelope()
