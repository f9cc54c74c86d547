"""Metrics as plain values."""

from pagemill.observe.choice_account import ChoiceAccount
from pagemill.observe.metrics import RequestMetrics
from pagemill.observe.readings import Counter, Histogram, readings


class Ended:
    """The last output of a choice: by the engine, or by a stop string."""

    created, num_evicted_tokens = 13.0, 0
    num_draft_steps, num_draft_tokens, num_accepted_draft_tokens = 0, 0, 0
    queued_s, prefill_s, decode_s = 0.25, 0.5, 1.0

    def __init__(self, finish_reason: str | None) -> None:
        self.finish_reason = finish_reason


def test_a_choice_is_in_counters_and_histograms() -> None:
    metrics = RequestMetrics("m", 100)
    account = ChoiceAccount()
    account.add_tokens(metrics, [11.0, 11.5], arrived=10.0)
    account.add_tokens(metrics, [12.0], arrived=10.0)
    account.end(metrics, Ended("length"), "length", arrived=10.0)
    stopped = ChoiceAccount()
    stopped.add_tokens(metrics, [11.0], arrived=10.0)
    stopped.end(metrics, Ended(None), "stop", arrived=10.0)  # the engine's times are not known
    found = readings(metrics.families())
    histograms = {each.name: each for each in found if isinstance(each, Histogram)}
    latency = histograms["pagemill:inter_token_latency_seconds"]
    assert (latency.count, latency.sum) == (2, 1.0)
    assert (latency.buckets["0.4"], latency.buckets["0.5"], latency.buckets["+Inf"]) == (0, 2, 2)
    assert latency.labels == {"model_name": "m", "engine": "0"}
    assert histograms["pagemill:e2e_request_latency_seconds"].sum == 6.0
    assert histograms["pagemill:request_queue_time_seconds"].count == 1
    assert histograms["pagemill:request_generation_tokens"].sum == 4
    counters = {
        (each.name, each.labels.get("finished_reason")): each.value
        for each in found
        if isinstance(each, Counter)
    }
    assert counters["pagemill:request_success", "length"] == 1
    assert counters["pagemill:request_success", "stop"] == 1
    names = {each.name for each in found}
    assert all(name.startswith("pagemill:") for name in names)
    assert "pagemill:process_restarts" not in names
