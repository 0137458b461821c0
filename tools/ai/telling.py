"""What is told beside a model's answer."""

from baobab.runtime.gateway.model import Model
from baobab.tools.call import Call


def tell(call: Call, model: Model, *, cost: int | None = None, cache: str | None = None) -> None:
    """The headers of an answer: which model it was, what it cost and whether it was kept, where that is known."""
    call.headers = [(b"x-baobab-model", model.id.encode())]
    if cost is not None:
        call.headers.append((b"x-baobab-cost-usd", f"{cost / 10**9:.9f}".encode()))
    if cache is not None:
        call.headers.append((b"x-baobab-cache", cache.encode()))
    call.audit.resource_id = model.id
