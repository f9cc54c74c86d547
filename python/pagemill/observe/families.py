"""The metrics that the front end records itself. A new one is a row here and its observation.

Names have the prefix `pagemill:` in the exposition; those of the reference system's metrics are its
own (`compatibility`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

from pagemill.observe.buckets import (
    CHOICES,
    COMPILE_S,
    REQUEST_S,
    TOKEN_S,
    TTFT_S,
    token_buckets,
)

PREFIX = "pagemill:"
MODEL_LABELS = ("model_name", "engine")
_TENANT_LABELS = (*MODEL_LABELS, "tenant", "key")
_HTTP_LABELS = ("handler", "method")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without prefix and suffix, and what it counts."""

    name: str
    kind: Literal["counter", "histogram", "summary"]
    help: str
    labels: tuple[str, ...] = MODEL_LABELS
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets; empty: tokens up to the context length."""


FAMILIES = (
    Family(
        "time_to_first_token_seconds", "histogram", "Arrival to the first token.", buckets=TTFT_S
    ),
    Family(
        "inter_token_latency_seconds", "histogram", "From one token to the next.", buckets=TOKEN_S
    ),
    Family(
        "request_time_per_output_token_seconds",
        "histogram",
        "Mean time from one token of a choice to the next.",
        buckets=TOKEN_S,
    ),
    Family(
        "e2e_request_latency_seconds", "histogram", "Arrival to the last token.", buckets=REQUEST_S
    ),
    Family(
        "request_queue_time_seconds",
        "histogram",
        "Submission to the first step.",
        buckets=REQUEST_S,
    ),
    Family(
        "request_prefill_time_seconds",
        "histogram",
        "First step to the first token.",
        buckets=REQUEST_S,
    ),
    Family("request_decode_time_seconds", "histogram", "First to last token.", buckets=REQUEST_S),
    Family(
        "request_inference_time_seconds",
        "histogram",
        "First step to the last token.",
        buckets=REQUEST_S,
    ),
    Family("request_prompt_tokens", "histogram", "Prompt tokens of a request."),
    Family("request_generation_tokens", "histogram", "Tokens generated for a choice."),
    Family(
        "request_max_num_generation_tokens",
        "histogram",
        "Tokens of the longest choice of a request.",
    ),
    Family(
        "request_prefill_kv_computed_tokens",
        "histogram",
        "Prompt tokens of a request that were computed, not found in a cache.",
    ),
    Family(
        "request_params_max_tokens",
        "histogram",
        "Tokens that a choice may have, by the request or by default.",
    ),
    Family("request_params_n", "histogram", "Choices of a request.", buckets=CHOICES),
    Family(
        "request_success",
        "counter",
        "Choices that finished, by reason.",
        (*MODEL_LABELS, "finished_reason"),
    ),
    Family(
        "requests_turned_away",
        "counter",
        "Requests refused before they were read, because the engine would have refused any.",
    ),
    Family(
        "watermark_requests",
        "counter",
        "Requests of a server with a watermark that were submitted, by status: watermarked, skipped"
        " (the client declined it), or not_watermarked (no token is drawn, or of speech).",
        (*MODEL_LABELS, "status"),
    ),
    Family("tenant_requests", "counter", "Requests that ended, by tenant.", _TENANT_LABELS),
    Family("tenant_prompt_tokens", "counter", "Prompt tokens, by tenant.", _TENANT_LABELS),
    Family("tenant_generation_tokens", "counter", "Generated tokens, by tenant.", _TENANT_LABELS),
    Family(
        "tenant_time_to_first_token_seconds",
        "summary",
        "Arrival to the first token, by tenant.",
        _TENANT_LABELS,
    ),
    Family(
        "tenant_queue_time_seconds",
        "summary",
        "Submission to the first step, by tenant.",
        _TENANT_LABELS,
    ),
    Family(
        "grammar_requests",
        "counter",
        "Requests with a grammar, by what became of it: compiled, kept from before, or refused.",
        (*MODEL_LABELS, "outcome"),
    ),
    Family("grammar_compile_seconds", "histogram", "Time to compile a grammar.", buckets=COMPILE_S),
    Family(
        "mm_cache_queries",
        "counter",
        "Media of requests that were looked up among prepared ones (--mm-processor-cache-gb).",
    ),
    Family("mm_cache_hits", "counter", "Those of them that were found."),
    Family(
        "encoder_requests",
        "counter",
        "Requests to --encoder-urls, by server and outcome: completed, refused (the file), busy,"
        " or failed.",
        (*MODEL_LABELS, "server", "outcome"),
    ),
    Family(
        "tool_calls",
        "counter",
        "Calls of tools that the server runs, by MCP server and outcome: completed or failed.",
        (*MODEL_LABELS, "server", "outcome"),
    ),
    Family(
        "tool_call_seconds",
        "histogram",
        "Time of such a call.",
        (*MODEL_LABELS, "server"),
        buckets=REQUEST_S,
    ),
    Family(
        "batch_requests",
        "counter",
        "Requests of batches (/v1/batches) that were answered, by outcome: completed or failed.",
        (*MODEL_LABELS, "outcome"),
    ),
    Family(
        "batches",
        "counter",
        "Batches that ended, by status: completed, failed, expired or cancelled.",
        (*MODEL_LABELS, "status"),
    ),
    Family(
        "http_responses",
        "counter",
        "Responses of the API, by path, status and API key.",
        ("path", "status", "key"),
    ),
    Family(
        "http_requests",
        "counter",
        "Requests by path, method and class of status.",
        (*_HTTP_LABELS, "status"),
    ),
    Family(
        "http_slow_readers",
        "counter",
        "Connections closed because the client took too little of a response (--send-timeout).",
    ),
    Family(
        "http_request_duration_seconds",
        "histogram",
        "From a request's headers to the end of its response.",
        _HTTP_LABELS,
        REQUEST_S,
    ),
)


class FamilySet:
    """The families of one registry, by name."""

    def __init__(
        self, registry: CollectorRegistry, max_model_len: int, families: Iterable[Family] = FAMILIES
    ) -> None:
        """Registers them."""
        self.counters: dict[str, Counter] = {}
        self.histograms: dict[str, Histogram] = {}
        self.summaries: dict[str, Summary] = {}
        lengths = token_buckets(max_model_len)
        for row in families:
            name = PREFIX + row.name
            if row.kind == "counter":
                self.counters[row.name] = Counter(name, row.help, row.labels, registry=registry)
            elif row.kind == "summary":
                self.summaries[row.name] = Summary(name, row.help, row.labels, registry=registry)
            else:
                buckets = row.buckets or lengths
                self.histograms[row.name] = Histogram(
                    name, row.help, row.labels, buckets=buckets, registry=registry
                )
