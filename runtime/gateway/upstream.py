"""An upstream: one provider's way to serve one model."""

from dataclasses import dataclass, field

from baobab.runtime.gateway.model import Model


@dataclass(frozen=True, slots=True)
class Upstream:
    """id: the deployment's, as the router knows it. model: the provider's own name of the model."""

    id: str
    provider: str
    model: str
    api_base: str
    api_key: str = field(default="", repr=False)
    served: Model | None = None
    relayed: bool = True
    """Whether it speaks the OpenAI wire, so that bytes can be passed on; otherwise LiteLLM translates."""
