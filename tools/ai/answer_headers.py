"""The headers and log lines that accompany a model's answer."""

import logging

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reason import ProviderRefusal
from baobab.tools.core import Call

_log = logging.getLogger(__name__)


def set_answer_headers(call: Call, model: Model, *, cost: int | None = None, cache: str | None = None) -> None:
    """Sets the answer's cost in nano-dollars, if known, and the headers with its model and the state of the cache."""
    call.headers = [*(call.headers or ()), (b"x-baobab-model", model.id.encode())]
    call.cost = cost
    if cache is not None:
        call.headers.append((b"x-baobab-cache", cache.encode()))
    call.audit.resource_id = model.id


def set_dropped_header(call: Call, *names: str) -> None:
    """Sets a header, and logs a line, with what was left out of a request, such as `seed` or `tools.web_search`."""
    call.headers = [*(call.headers or ()), (b"x-baobab-dropped", ", ".join(names).encode())]
    _log.info("left out of a request to a model", extra={"request_id": call.context.request_id, "dropped": list(names)})


def log_refusal(call: Call, model: Model, error: BaseException) -> None:
    """Logs a provider's own words about its refusal, for the operator. Does nothing for other errors."""
    cause = error.__cause__
    if isinstance(cause, ProviderRefusal):
        fields = {
            "request_id": call.context.request_id,
            "model": model.id,
            "status": cause.status,
            "reason": cause.words,
        }
        _log.warning("a model's provider refused a request", extra=fields)
