"""The errors of generation jobs, and their flat envelope with codes in capitals."""

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
from baobab.tools.core import AppNotFound, BadRequest, BaobabError, Conflict, Forbidden, NotFound
from baobab.tools.core.envelopes import Envelope, Schema
from baobab.tools.core.limits.credits import CreditsExhausted


class UnsupportedParameter(BadRequest):
    """Names the fields that the model does not take, and all that it takes."""

    code = "UNSUPPORTED_PARAM"
    summary = "The model does not take this parameter."
    remediation = "Leave it out. supported_top_level and supported_provider list all fields that this model takes."


class BadReference(BadRequest):
    summary = "A reference to an image is not a URL that may be fetched."
    remediation = "Send https URLs of public hosts, as strings or as `{url}`."

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"`{field}`: {problem}", details={"fields": [{"field": field, "problem": problem}]})


class InvalidIndex(BadRequest):
    code = "INVALID_INDEX"
    summary = "`index` is not a whole number from 0."
    remediation = "Use the index of an address in the job's content_urls: the first is 0."


class IndexOutOfRange(NotFound):
    code = "INDEX_OUT_OF_RANGE"
    summary = "The job has no file with this index."
    remediation = "Use the index of an address in the job's content_urls: the first is 0."


class JobNotFound(NotFound):
    code = "JOB_NOT_FOUND"
    summary = "There is no such job, or it is not yours."
    remediation = "Read it with the credential that submitted it (op:images_job, op:videos_job)."


class NotSubmitter(Forbidden):
    code = "FORBIDDEN"
    summary = "Only the caller that submitted the job can download its files."
    remediation = "Use the credential that submitted the job."


class JobNotCompleted(Conflict):
    code = "JOB_NOT_COMPLETED"
    summary = "The job is not completed, so it has no files."
    remediation = "Read the job (op:images_job, op:videos_job) until it is `completed`. See current_status."


class ContentUnavailable(BaobabError):
    code = "CONTENT_UNAVAILABLE"
    status = 502
    summary = "The file is no longer stored."
    remediation = "Files are kept for 30 days. Submit the request again."


class MediaEnvelope(Envelope):
    """`{error: <message>, code, remediation, ...details}`; the invalid fields are in `details`, a list."""

    name = "MediaError"

    def __init__(self) -> None:
        unavailable_errors = (UpstreamFailed, UpstreamMalformed, UpstreamDenied, UpstreamTimeout)
        super().__init__(
            {
                ModelNotFound: "MODEL_NOT_FOUND",
                RequestRefused: BadRequest.code,
                UpstreamBusy: "UPSTREAM_RATE_LIMIT",
                **dict.fromkeys(unavailable_errors, "MODEL_UNAVAILABLE"),
            }
        )

    def render(self, error: BaobabError, docs: str) -> dict[str, Any]:
        fields = {"code": self.code(type(error)), "remediation": self.place_details(error.remedy)}
        if isinstance(error, AppNotFound):
            return {**fields, "error": "app_not_found", "message": error.message}
        if type(error) is Forbidden or isinstance(error, NotSubmitter):
            return {**fields, "error": "forbidden", "code": "FORBIDDEN", "message": error.message}
        details = dict(error.details)
        if "fields" in details:
            details["details"] = details.pop("fields")
        if isinstance(error, CreditsExhausted):
            # Automatic refills do not exist here.
            details |= {"auto_refill_enabled": False, "auto_refill_amount_usd": None, "auto_refill_last_failure": None}
        return {**details, **fields, "error": error.message}

    def schema(self) -> Schema:
        text = {"type": "string"}
        properties = {"error": text, "code": text, "remediation": text, "details": {"type": "array"}}
        return {"type": "object", "properties": properties, "required": ["error", "code"]}


MEDIA_ENVELOPE = MediaEnvelope()
