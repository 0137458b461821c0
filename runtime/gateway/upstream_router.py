"""Routes: which upstream serves a call, chosen by LiteLLM's router among those that have not failed of late."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from baobab.runtime.gateway.errors import UpstreamFailed
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.upstream import Upstream

COOLDOWN_SECONDS = 5.0
_LONGEST_REST_SECONDS = 300.0
_FAILURES_A_MINUTE = 3


class UpstreamRouter:
    """The router learns of deployments when their model is first called. A model with one needs no choice: then
    LiteLLM is not even loaded.
    """

    def __init__(self) -> None:
        self._router: Any = None
        self._registered: set[str] = set()

    async def pick_upstream(
        self, model: str, upstreams: Sequence[Upstream], tried: Collection[str] = ()
    ) -> Upstream | None:
        """One that was not tried yet, of those awake while there is one; None where all were tried."""
        left = [upstream for upstream in upstreams if upstream.id not in tried]
        if len(upstreams) == 1 or not left:
            return left[0] if left else None
        library = await load_litellm()
        router = self._register_upstreams(library, model, upstreams)
        try:
            deployment = await router.async_get_available_deployment(model=model, request_kwargs={})
        except library.types.router.RouterRateLimitError:
            # All rest: to ask one of them is better than to ask nobody.
            return left[0]
        # It also knows those whose provider is gone by now.
        picked = deployment["model_info"]["id"]
        return next((upstream for upstream in left if upstream.id == picked), left[0])

    def record_failure(self, upstream: Upstream, error: UpstreamFailed) -> None:
        """Count a failure: an upstream that is busy, or fails some times within a minute, rests for a while.

        That is as long as it has said itself, five minutes at most, or five seconds.
        """
        if self._router is None or upstream.id not in self._registered:
            return
        now = datetime.now(UTC)
        rest = min(max(COOLDOWN_SECONDS, _requested_rest(error)), _LONGEST_REST_SECONDS)
        blamed = {"model_info": {"id": upstream.id}, "cooldown_time": rest}
        failure = {"exception": _RouterFailure(error.status), "litellm_params": blamed}
        self._router.deployment_callback_on_failure(failure, None, now, now)

    def _register_upstreams(self, library: Any, model: str, upstreams: Sequence[Upstream]) -> Any:
        if self._router is None:
            self._router = library.Router(
                model_list=[],
                num_retries=0,
                allowed_fails=_FAILURES_A_MINUTE,
                cooldown_time=COOLDOWN_SECONDS,
                routing_strategy="simple-shuffle",
            )
        types = library.types.router
        for upstream in upstreams:
            if upstream.id not in self._registered:
                self._registered.add(upstream.id)
                # It chooses and never calls, so it need not know the provider: who calls has address and key.
                served = types.LiteLLM_Params(model=f"openai/{upstream.model}", api_key="not used")
                made = types.Deployment(model_name=model, litellm_params=served, model_info={"id": upstream.id})
                self._router.add_deployment(made)
        return self._router


def _requested_rest(error: UpstreamFailed) -> float:
    """How long a provider wants to be left alone, by its `Retry-After`."""
    wait = error.headers.get("retry-after", "")
    return float(wait) if wait.isascii() and wait.isdigit() else 0.0


class _RouterFailure(Exception):
    """A failure as LiteLLM reads it."""

    def __init__(self, status_code: int) -> None:
        super().__init__("upstream failed")
        self.status_code = status_code
