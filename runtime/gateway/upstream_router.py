"""Chooses the upstream that serves a call: LiteLLM's router picks one that has not failed recently."""

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
    """Chooses among the upstreams of a model and rests those that fail.

    Upstreams are registered when their model is first called. For a model with a single one LiteLLM is not loaded.
    """

    def __init__(self) -> None:
        self._router: Any = None
        self._registered_ids: set[str] = set()

    async def pick_upstream(
        self, model: str, upstreams: Sequence[Upstream], tried_ids: Collection[str] = ()
    ) -> Upstream | None:
        """Returns an upstream that was not tried yet, if possible one that is not resting; None if all were tried."""
        untried_upstreams = [upstream for upstream in upstreams if upstream.id not in tried_ids]
        if len(upstreams) == 1 or not untried_upstreams:
            return untried_upstreams[0] if untried_upstreams else None
        library = await load_litellm()
        router = self._register_upstreams(library, model, upstreams)
        try:
            deployment = await router.async_get_available_deployment(model=model, request_kwargs={})
        except library.types.router.RouterRateLimitError:
            # All of them are resting: calling one is better than calling none.
            return untried_upstreams[0]
        # The router also knows upstreams whose provider has been removed since.
        upstream_id = deployment["model_info"]["id"]
        return next((upstream for upstream in untried_upstreams if upstream.id == upstream_id), untried_upstreams[0])

    def record_failure(self, upstream: Upstream, error: UpstreamFailed) -> None:
        """Counts a failure. An upstream that is busy, or fails several times within a minute, rests.

        It rests for as long as it has asked to, between five seconds and five minutes.
        """
        if self._router is None or upstream.id not in self._registered_ids:
            return
        now = datetime.now(UTC)
        rest_seconds = min(max(COOLDOWN_SECONDS, _requested_rest(error)), _LONGEST_REST_SECONDS)
        parameters = {"model_info": {"id": upstream.id}, "cooldown_time": rest_seconds}
        failure = {"exception": _RouterFailure(error.status), "litellm_params": parameters}
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
            if upstream.id not in self._registered_ids:
                self._registered_ids.add(upstream.id)
                # The router only chooses; the caller has the provider's address and key.
                parameters = types.LiteLLM_Params(model=f"openai/{upstream.model}", api_key="not used")
                deployment = types.Deployment(
                    model_name=model, litellm_params=parameters, model_info={"id": upstream.id}
                )
                self._router.add_deployment(deployment)
        return self._router


def _requested_rest(error: UpstreamFailed) -> float:
    """Returns the seconds of a provider's `Retry-After`, 0.0 without one."""
    return error.retry_after or 0.0


class _RouterFailure(Exception):
    """A failure in the form that LiteLLM reads."""

    def __init__(self, status_code: int) -> None:
        super().__init__("upstream failed")
        self.status_code = status_code
