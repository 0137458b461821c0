"""One call to LiteLLM for images or a video."""

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused, UpstreamTimeout
from baobab.runtime.gateway.library_errors import translate_error
from baobab.runtime.gateway.upstream import Upstream


async def call_library(
    library: ModuleType, upstream: Upstream, seconds: float, call: Callable[..., Awaitable[Any]], /, **arguments: Any
) -> dict[str, Any]:
    """Calls the library with a limit of `seconds` and returns its answer. Its errors become the gateway's own."""
    try:
        # The library's own timeout starts again with each piece of an answer.
        async with asyncio.timeout(seconds):
            answer = await call(api_key=upstream.api_key, num_retries=0, timeout=seconds, **arguments)
        payload: dict[str, Any] = answer.model_dump(mode="json")
    except library.exceptions.ContentPolicyViolationError as exc:
        raise RequestRefused("The model's provider refused the request by its content policy.") from exc
    except (TimeoutError, library.exceptions.Timeout) as exc:
        raise UpstreamTimeout from exc
    except Exception as exc:  # the library raises its providers' errors, of many kinds
        raise translate_error(library, exc) from exc
    return payload
