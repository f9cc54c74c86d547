"""Metrics under the names of the reference system, for dashboards and autoscalers made for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from pagemill.observe.families import PREFIX

_REFERENCE_PREFIX = "vllm:"
_SAME = (
    *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "engine_sleep_state"),
    *("num_preemptions", "cache_config_info", "prefix_cache_queries", "prefix_cache_hits"),
    *("external_prefix_cache_queries", "external_prefix_cache_hits"),
    *("kv_block_lifetime_seconds", "kv_block_idle_before_evict_seconds"),
    "kv_block_reuse_gap_seconds",
    *("mm_cache_queries", "mm_cache_hits"),
    *("prompt_tokens", "prompt_tokens_cached", "prompt_tokens_by_source", "generation_tokens"),
    *("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    "spec_decode_num_accepted_tokens_per_pos",
    *("request_success", "time_to_first_token_seconds", "inter_token_latency_seconds"),
    *("request_time_per_output_token_seconds", "e2e_request_latency_seconds"),
    *("request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds"),
    *("request_inference_time_seconds", "request_prompt_tokens", "request_generation_tokens"),
    *("request_max_num_generation_tokens", "request_prefill_kv_computed_tokens"),
    *("request_params_max_tokens", "request_params_n", "lora_requests_info"),
    "watermark_requests",
)
REFERENCE_NAMES = {name: _REFERENCE_PREFIX + name for name in _SAME} | {
    "estimated_flops": _REFERENCE_PREFIX + "estimated_flops_per_gpu",
    "estimated_read_bytes": _REFERENCE_PREFIX + "estimated_read_bytes_per_gpu",
    # Those of its HTTP layer have no prefix.
    "http_requests": "http_requests",
    "http_request_duration_seconds": "http_request_duration_seconds",
}
"""Name without prefix to the full name in the reference system; labels are alike."""


def under_reference_names(families: Iterable[Metric]) -> Iterator[Metric]:
    """Copies of the `families` that the reference system has, under its names."""
    for family in families:
        name = REFERENCE_NAMES.get(family.name.removeprefix(PREFIX))
        if name is None or not family.name.startswith(PREFIX):
            continue
        copy = Metric(name, family.documentation, family.type)
        begin = len(family.name)
        copy.samples = [
            sample._replace(name=name + sample.name[begin:]) for sample in family.samples
        ]
        yield copy
