"""A span for each request, sent to a collector (`--otlp-traces-endpoint`). Needs the extra
`pagemill[tracing]`: nothing else imports OpenTelemetry.

A span is made when the request is over, from its record. It continues the trace of the client's
`traceparent`. Spans wait in a queue of bounded size for a thread that sends them; if the collector
is slow or away, spans are dropped and requests are not delayed. What the SDK reads from its own
environment variables (sampler, headers, service name) applies.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from pagemill import __version__
from pagemill.server.records.record import RequestRecord, is_probe

_MAX_QUEUED_SPANS = 4096
_MAX_BATCH_SPANS = 256  # encoding them takes the GIL for a few milliseconds
_SEND_EVERY_MS = 1000
_SEND_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 3.0
_PATH = "/v1/traces"
_OPERATIONS = {
    "/classify": "classify",
    "/generative_scoring": "score",
    "/pooling": "pooling",
    "/rerank": "rerank",
    "/score": "score",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/media/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/v1/score": "score",
    "/v2/embed": "embeddings",
    "/v2/rerank": "rerank",
}
_CHAT = "chat"


class RequestTraces:
    """Sends a span for each request that reached a route."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint`: URL of a collector; without a path, `/v1/traces` is meant."""
        if urlsplit(endpoint).path in ("", "/"):
            endpoint = endpoint.rstrip("/") + _PATH
        # Leaves out lines that quote what clients sent, and those of retries: one line for a batch
        # that was lost is enough.
        for name in ("opentelemetry.trace", "opentelemetry.exporter"):
            logging.getLogger(name).setLevel(logging.ERROR)
        resource = Resource.create({"service.name": "pagemill", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint, timeout=_SEND_TIMEOUT_S)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, _MAX_QUEUED_SPANS, _SEND_EVERY_MS, _MAX_BATCH_SPANS)
        )
        self._tracer = self._provider.get_tracer("pagemill", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def record(self, record: RequestRecord) -> None:
        """Makes the spans of a request that is over. Probes that succeeded and requests that were
        refused before they had a route, such as those without a key, have none."""
        if not record.route or is_probe(record):
            return
        # Spans have the time of day; the record's clock is monotonic.
        ended_ns = time.time_ns()
        ended = record.started + record.duration_s

        def at(moment: float) -> int:
            return ended_ns - int(1e9 * (ended - moment))

        span = self._tracer.start_span(
            f"{record.method} {record.route}",
            self._propagator.extract(record.trace_context, Context()),
            SpanKind.SERVER,
            dict(_attributes(record)),
            start_time=at(record.started),
        )
        if span.is_recording():
            inside = set_span_in_context(span, Context())
            for name, begin, end in _stages(record):
                child = self._tracer.start_span(name, inside, start_time=at(begin))
                child.end(at(end))
            if error := _error(record):
                span.set_status(Status(StatusCode.ERROR))
                span.set_attribute("error.type", error)
        span.end(ended_ns)

    def close(self) -> None:
        """Sends what waits, for a few seconds at most."""
        # The SDK waits for longer than a server may take to end.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)


def _error(record: RequestRecord) -> str:
    """Why the server failed; "" if it did not: what the client did wrong is no failure."""
    if record.status >= 500:
        return str(record.status)
    return "generation" if "error" in record.work.finish_reasons else ""


def _stages(record: RequestRecord) -> Iterator[tuple[str, float, float]]:
    """Name, begin and end of the parts of a request, as far as they are known."""
    submission, timings = record.submission, record.work.timings
    if submission is None:
        return
    yield "prepare", record.started, submission.at
    if timings is None or timings.time_to_first_token_ms is None:
        return
    if timings.queue_time_ms is not None and timings.prefill_time_ms is not None:
        begun = submission.at + timings.queue_time_ms / 1000
        yield "queue", submission.at, begun
        yield "prefill", begun, begun + timings.prefill_time_ms / 1000
    first = submission.at + timings.time_to_first_token_ms / 1000
    yield "decode", first, first + (timings.generation_time_ms or 0.0) / 1000


def _attributes(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    """Those of the semantic conventions of HTTP and generative AI, and of the reference system."""
    yield "http.request.method", record.method
    yield "http.route", record.route
    yield "http.response.status_code", record.status
    yield "gen_ai.request.id", record.request_id
    if record.tenant:
        yield "pagemill.tenant", record.tenant
    if record.submission is not None:
        yield "gen_ai.request.max_tokens", record.submission.max_tokens
        yield "gen_ai.request.n", record.submission.n
        if record.submission.temperature is not None:
            yield "gen_ai.request.temperature", record.submission.temperature
        if record.submission.top_p is not None:
            yield "gen_ai.request.top_p", record.submission.top_p
    work = record.work
    if not work.model:
        return
    yield "gen_ai.provider.name", "pagemill"
    yield "gen_ai.operation.name", _OPERATIONS.get(record.route, _CHAT)
    yield "gen_ai.response.model", work.model
    yield "gen_ai.response.finish_reasons", work.finish_reasons
    for names, tokens in (
        (("input_tokens", "prompt_tokens"), work.prompt_tokens),
        (("output_tokens", "completion_tokens"), work.completion_tokens),
        (("cache_read.input_tokens",), work.cached_tokens),
    ):
        for name in names:
            yield f"gen_ai.usage.{name}", tokens
    yield from _latencies(record)


def _latencies(record: RequestRecord) -> Iterator[tuple[str, AttributeValue]]:
    """In seconds, by the reference system's names."""
    yield "gen_ai.latency.e2e", record.duration_s
    timings = record.work.timings
    if timings is None:
        return
    for name, milliseconds in (
        ("time_in_queue", timings.queue_time_ms),
        ("time_to_first_token", timings.time_to_first_token_ms),
        ("time_in_model_prefill", timings.prefill_time_ms),
        ("time_in_model_decode", timings.generation_time_ms),
    ):
        if milliseconds is not None:
            yield f"gen_ai.latency.{name}", milliseconds / 1000
