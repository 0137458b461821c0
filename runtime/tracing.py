"""Tracing: spans, sent to an OTLP collector in the background. Without a collector, no library is loaded."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from baobab.tools.core.call import Tool
from baobab.tools.core.context import RequestContext

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_LAST_SECONDS = 3.0
_SEND_SECONDS = 10.0

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_tracing(url: str, *, content: bool) -> "AsyncIterator[Tracing | None]":
    """Yields a Tracing, or None where `url` is empty. The end of the block waits three seconds for the last spans.

    url: a collector that accepts OTLP over HTTP. content: whether spans may contain requests and answers.
    """
    if not url:
        yield None
        return
    # Imported here, so that an installation that does not trace does not pay for it.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=_SEND_SECONDS)
    resource = Resource.create({"service.name": "baobab"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # Spans wait in a queue, and a thread sends them. When the queue is full spans are lost, so that no call waits.
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield Tracing(provider.get_tracer("baobab"), content=content)
    finally:
        if not await _shut_down(provider):
            _log.warning("traces: the collector did not take the last spans")
            # Stops the thread that is still sending, which would keep the process alive.
            exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own function


async def _shut_down(provider: "TracerProvider") -> bool:
    """Sends the last spans, in a thread that is left behind after three seconds. Returns whether it ended in time."""
    loop, shut_down = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(shut_down.set)

    threading.Thread(target=work, name="last spans", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(shut_down.wait(), _LAST_SECONDS)
    return shut_down.is_set()


class Tracing:
    """Creates spans. content: whether they may contain requests and answers."""

    def __init__(self, tracer: "Tracer", *, content: bool) -> None:
        self._tracer = tracer
        self.content = content

    def start_span(self, name: str, attributes: Mapping[str, Any], parent: str = "") -> "Span":
        """Starts a span for a call to another service. parent: the W3C `traceparent` of the request, or empty."""
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(name, _parse_parent(parent), SpanKind.CLIENT, dict(attributes))

    def observe(self, tool: Tool, context: RequestContext, outcome: str, seconds: float) -> None:
        """Records a span for a call of a tool that has just ended. outcome: `ok`, or the code of its error."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        ended_at = time.time_ns()
        attributes = {"baobab.tool": tool.name, "baobab.door": context.name, "baobab.request_id": context.request_id}
        started_at = ended_at - int(seconds * 1e9)
        span = self._tracer.start_span(
            tool.name, _parse_parent(context.trace), SpanKind.SERVER, attributes, start_time=started_at
        )
        if outcome != "ok":
            span.set_attribute("error.type", outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_at)


def _parse_parent(parent: str) -> "Context | None":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # An invalid traceparent is ignored.
    return TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
