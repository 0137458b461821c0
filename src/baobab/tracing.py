"""Traces: one setting away. Every call becomes a span, sent to an OTLP collector."""

import contextlib
import time
from collections.abc import Iterator

from baobab.tools.call import Door
from baobab.tools.registry import Observer
from baobab.tools.tool import Tool


@contextlib.contextmanager
def trace(url: str) -> Iterator[Observer]:
    """An observer that writes a span for each call; what is left is sent when the block ends."""
    # Imported here: an installation that does not trace does not pay for it.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, Status, StatusCode

    provider = TracerProvider(resource=Resource.create({"service.name": "baobab"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url}/v1/traces")))
    tracer = provider.get_tracer("baobab")

    def observe(tool: Tool, door: Door, outcome: str, seconds: float) -> None:
        ended = time.time_ns()
        attributes = {"baobab.tool": tool.name, "baobab.door": door.name, "baobab.request_id": door.request_id}
        span = tracer.start_span(
            tool.name, kind=SpanKind.SERVER, attributes=attributes, start_time=ended - int(seconds * 1e9)
        )
        if outcome != "ok":
            span.set_attribute("error.type", outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended)

    try:
        yield observe
    finally:
        provider.shutdown()
