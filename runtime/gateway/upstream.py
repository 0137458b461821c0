"""An upstream: one model as one provider serves it."""

from dataclasses import dataclass, field

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts

_ANTHROPIC, _ANTHROPIC_VERSION = "https://api.anthropic.com", "2023-06-01"


@dataclass(frozen=True, slots=True)
class Upstream:
    """One provider's deployment of a model. id: the router's id of it. model: the provider's own name of the model."""

    id: str
    provider: str
    model: str
    api_base: str
    api_key: str = field(default="", repr=False)
    served_model: Model | None = None
    is_relayed: bool = True
    """Whether it speaks OpenAI's wire format, so that bytes can be passed on; otherwise LiteLLM translates."""
    is_guarded: bool = False
    """Whether a customer gave its address, which is then checked for every connection."""
    retry_timeouts: RetryTimeouts | None = None
    """The time limits of this call; None for the default ones."""

    def build_url(self, path: str) -> str:
        """Returns the URL of a path such as `/chat/completions`."""
        if self.provider == "anthropic":
            # Anthropic's base address has no version, and may be empty.
            return (self.api_base or _ANTHROPIC).removesuffix("/v1") + "/v1" + path
        return self.api_base + path

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate requests to the provider."""
        if self.provider == "anthropic":
            return {"x-api-key": self.api_key, "anthropic-version": _ANTHROPIC_VERSION}
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
