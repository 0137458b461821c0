"""What is told beside a model's answer."""

import logging

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reason import ProviderRefusal
from baobab.tools.core.call import Call

_log = logging.getLogger(__name__)


def set_answer_headers(call: Call, model: Model, *, cost: int | None = None, cache: str | None = None) -> None:
    """The headers of an answer: which model it was, what it cost and whether it was kept, where that is known."""
    call.headers = [*(call.headers or ()), (b"x-baobab-model", model.id.encode())]
    if cost is not None:
        call.cost = cost
        call.headers.append((b"x-baobab-cost-usd", f"{cost / 10**9:.9f}".encode()))
    if cache is not None:
        call.headers.append((b"x-baobab-cache", cache.encode()))
    call.audit.resource_id = model.id


def set_dropped_header(call: Call, *names: str) -> None:
    """What was left out of a request, such as `seed` or `tools.web_search`: a header, and a line of the log."""
    call.headers = [*(call.headers or ()), (b"x-baobab-dropped", ", ".join(names).encode())]
    _log.info("left out of a request to a model", extra={"request_id": call.context.request_id, "dropped": list(names)})


def log_refusal(call: Call, model: Model, error: BaseException) -> None:
    """What a provider has said of its refusal, for the operator; nothing where none has refused."""
    refused = error.__cause__
    if isinstance(refused, ProviderRefusal):
        told = {
            "request_id": call.context.request_id,
            "model": model.id,
            "status": refused.status,
            "reason": refused.words,
        }
        _log.warning("a model's provider refused a request", extra=told)
