"""Metrics of calls, in the Prometheus text format."""

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)

from baobab.runtime.gateway.gateway import ModelCall
from baobab.tools.core.call import Tool
from baobab.tools.core.context import RequestContext
from baobab.tools.core.limits.money import usd

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_MODEL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)

# Without the `_created` series: Prometheus knows by itself when a series began.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's own function


class CallMetrics:
    """Measures calls and counts failures.

    A call only notes how long it took. Each second, and before they are shown, the notes are counted one after the
    other, outside of the calls.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "baobab_call_seconds", "How long calls took.", ("tool", "door"), buckets=_BUCKETS, registry=self.registry
        )
        self._failures = Counter(
            "baobab_call_failures",
            "Calls that were refused or failed.",
            ("tool", "door", "code"),
            registry=self.registry,
        )
        label_names = ("model", "payer")
        self._model_seconds = Histogram(
            "baobab_model_seconds",
            "How long calls to models took, streams to their end.",
            label_names,
            buckets=_MODEL_BUCKETS,
            registry=self.registry,
        )
        self._model_failures = Counter(
            "baobab_model_failures", "Calls to models that failed.", (*label_names, "code"), registry=self.registry
        )
        self._model_tokens = Counter(
            "baobab_model_tokens", "Tokens that models read and wrote.", (*label_names, "kind"), registry=self.registry
        )
        self._model_cost = Counter(
            "baobab_model_cost_usd",
            "US dollars that calls to models cost whoever pays.",
            label_names,
            registry=self.registry,
        )
        self._noted_seconds: dict[tuple[str, str], list[float]] = {}

    def __call__(self, tool: Tool, context: RequestContext, outcome: str, seconds: float) -> None:
        labels = (tool.name, context.name)
        noted_seconds = self._noted_seconds.get(labels)
        if noted_seconds is None:
            noted_seconds = self._noted_seconds[labels] = []
        noted_seconds.append(seconds)
        if outcome != "ok":
            self._failures.labels(tool.name, context.name, outcome).inc()

    async def flush(self) -> None:
        """Counts what was noted since the last time, so that other workers can show it."""
        self._count_noted()

    def _count_noted(self) -> None:
        noted_seconds, self._noted_seconds = self._noted_seconds, {}
        for labels, calls in noted_seconds.items():
            observe = self._seconds.labels(*labels).observe
            for seconds in calls:
                observe(seconds)

    def observe_model(self, model_call: ModelCall) -> None:
        """Records a model call that has ended."""
        labels = (model_call.model, model_call.payer)
        self._model_seconds.labels(*labels).observe(model_call.seconds)
        if model_call.code:
            self._model_failures.labels(*labels, model_call.code).inc()
        for kind, tokens in (
            ("prompt", model_call.prompt),
            ("cached", model_call.cached),
            ("completion", model_call.completion),
        ):
            if tokens:
                self._model_tokens.labels(*labels, kind).inc(tokens)
        if model_call.cost:
            self._model_cost.labels(*labels).inc(usd(model_call.cost))

    def render_text(self) -> bytes:
        self._count_noted()
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        all_processes = CollectorRegistry()
        multiprocess.MultiProcessCollector(all_processes)  # type: ignore[no-untyped-call]  # the library's own function
        return generate_latest(all_processes)
