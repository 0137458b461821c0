"""Lifecycle of a server process: which parts are loaded, and whether it is shutting down."""

from dataclasses import dataclass, field
from typing import Literal

PartState = Literal["starting", "ok", "failed"]


@dataclass(slots=True)
class Lifecycle:
    """The state of the process that `/health/ready` reports beside the state of the stores."""

    parts: dict[str, PartState] = field(default_factory=dict)
    """By name. A request for a part that is `starting` waits for it; one that is `failed` answers 503."""
    missing: dict[str, str] = field(default_factory=dict)
    """By the name of a part that failed, the Python module that is not installed."""
    draining: bool = False
    """Whether the process has been told to stop: balancers send nothing more, and what comes is still answered."""
