"""An upstream: one provider's way to serve one model."""

from dataclasses import dataclass, field

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts

_ANTHROPIC, _ANTHROPIC_VERSION = "https://api.anthropic.com", "2023-06-01"


@dataclass(frozen=True, slots=True)
class Upstream:
    """id: the deployment's, as the router knows it. model: the provider's own name of the model."""

    id: str
    provider: str
    model: str
    api_base: str
    api_key: str = field(default="", repr=False)
    served_model: Model | None = None
    is_relayed: bool = True
    """Whether it speaks the OpenAI wire, so that bytes can be passed on; otherwise LiteLLM translates."""
    is_guarded: bool = False
    """Whether a customer named its address, which is vetted whenever it is connected to."""
    retry_timeouts: RetryTimeouts | None = None
    """How long this call waits for it; None as long as every call."""

    def build_url(self, path: str) -> str:
        """Where it is asked, such as at `/chat/completions`."""
        if self.provider == "anthropic":
            # Its address is given without the version, and may be left out.
            return (self.api_base or _ANTHROPIC).removesuffix("/v1") + "/v1" + path
        return self.api_base + path

    @property
    def headers(self) -> dict[str, str]:
        """How it is told who asks."""
        if self.provider == "anthropic":
            return {"x-api-key": self.api_key, "anthropic-version": _ANTHROPIC_VERSION}
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
