"""The time limits for calls to models, as apps, model servers and requests set them."""

import re
from typing import Annotated

from pydantic import Field

from baobab.runtime.gateway.retry_timeouts import LONGEST_SECONDS, NO_TIMEOUTS, RetryTimeouts
from baobab.tools.ai.schemas import Timeouts
from baobab.tools.core import BadRequest, Text

_PART = re.compile(r"(first|between|total)=([0-9]{1,4}(?:\.[0-9]{1,3})?)")


TimeoutHeader = Annotated[
    str,
    Text(80, min_length=1),
    Field(description="The seconds of the whole call, such as `90`, or any of `first=30, between=20, total=90`."),
]
FROM_HEADERS = {"baobab_timeout": "x-baobab-timeout"}
"""The header that sets each parameter."""


def retry_timeouts_of(timeouts: Timeouts | None) -> RetryTimeouts:
    return RetryTimeouts(**timeouts) if timeouts else NO_TIMEOUTS


def read_timeout(text: str | None) -> RetryTimeouts:
    """Parses a request's time limits. Raises BadRequest for what is neither seconds nor a list of limits."""
    if text is None:
        return NO_TIMEOUTS
    parts = [part.strip() for part in (text if "=" in text else f"total={text.strip()}").split(",")]
    matches = [_PART.fullmatch(part) for part in parts]
    bounds = {match[1]: float(match[2]) for match in matches if match is not None}
    if len(bounds) != len(parts) or not all(0 < seconds <= LONGEST_SECONDS for seconds in bounds.values()):
        raise BadRequest(
            "`x-baobab-timeout` is neither a number of seconds nor a list of limits.",
            remediation=f"Send seconds up to {LONGEST_SECONDS:.0f}, such as `90`, or `first=30, between=20, total=90`.",
            details={"param": "x-baobab-timeout"},
        )
    return RetryTimeouts(**bounds)
