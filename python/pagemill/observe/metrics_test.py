"""Names, labels and values of the metrics; the statistics line."""

from dataclasses import dataclass, field
from typing import ClassVar

from prometheus_client.parser import text_string_to_metric_families

from pagemill.observe.buckets import token_buckets
from pagemill.observe.metrics import MetricsOptions, RequestMetrics
from pagemill.observe.readings import Histogram, readings
from pagemill.observe.snapshot import SummedSnapshot
from pagemill.observe.stats_line import StatsLine


@dataclass
class Ages:
    bounds_s: ClassVar = (0.001, 1.0, 1800.0)

    counts: list[int] = field(default_factory=list[int])
    sum_s: float = 0.0


@dataclass
class Stats:
    fields: ClassVar = (
        ("num_running", "gauge", "num_requests_running", "requests that hold a slot"),
        ("estimated_wait_s", "gauge", "estimated_wait_seconds", "how long a request would wait"),
        ("kv_blocks_dropped", "counter", "kv_blocks_dropped", "KV blocks not stored"),
        ("paused", "gauge", "engine_paused", "1 during a pause"),
        ("heartbeat", "counter", "", "turns of the loop"),
        ("kv_block_reuse_gap", "histogram", "kv_block_reuse_gap_seconds", "use to use"),
        ("accepted_drafts_by_position", "counters", "", "drafts accepted by position"),
    )

    num_running: int = 3
    num_waiting: int = 2
    estimated_wait_s: float = 1.5
    kv_blocks_total: int = 80
    kv_blocks_used: int = 20
    kv_blocks_dropped: int = 7
    prefix_cache_query_tokens: int = 100
    prefix_cache_hit_tokens: int = 25
    prefix_cache_evicted_tokens: int = 30
    prefix_cache_partial_tokens: int = 5
    prompt_tokens: int = 90
    generation_tokens: int = 40
    draft_tokens: int = 8
    accepted_draft_tokens: int = 5
    num_steps: int = 4
    progress_age_s: float = 0.5
    paused: bool = True
    accepted_drafts_by_position: tuple[int, ...] = (8, 3)
    asleep: bool = False
    heartbeat: int = 9
    kv_block_reuse_gap: Ages = field(default_factory=Ages)


def samples(metrics: RequestMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        sample.name
        + sample.labels.get("finished_reason", "")
        + sample.labels.get("reason", "")
        + sample.labels.get("position", "")
        + sample.labels.get("le", ""): sample.value
        for family in families
        for sample in family.samples
    }


class Work:
    """A model of 10 weights in layers, and 100 for each row of logits."""

    def operations(self, tokens: float, logits_rows: float) -> dict[str, float]:
        return {"layers": 20 * tokens, "logits": 200 * logits_rows}

    def bytes_of_step(self, tokens: float) -> float:
        return 110 + tokens


def test_work_is_estimated_if_it_is_known() -> None:
    metrics = RequestMetrics("m", 8192, MetricsOptions(reference_names=True), work=Work())
    metrics.watch(lambda: (Stats(),))
    found = samples(metrics)
    # 90 - 25 of prompts, 40 generated, 3 rejected drafts; logits of the last two.
    assert found["pagemill:estimated_flops_total"] == 20 * 108 + 200 * 43
    assert found["pagemill:estimated_read_bytes_total"] == 4 * (110 + 108 / 4)
    assert found["vllm:estimated_flops_per_gpu_total"] == 20 * 108 + 200 * 43
    without = RequestMetrics("m", 8192)
    without.watch(lambda: (Stats(num_steps=0),))
    assert not [name for name in samples(without) if "estimated_flops" in name]


def test_engine_families_follow_the_engine() -> None:
    stats = Stats()
    metrics = RequestMetrics("m", 8192)
    metrics.watch(lambda: (stats,))
    found = samples(metrics)
    assert found["pagemill:num_requests_running"] == 3
    assert found["pagemill:estimated_wait_seconds"] == 1.5
    assert found["pagemill:kv_blocks_dropped_total"] == 7
    assert found["pagemill:engine_paused"] == 1
    assert found["pagemill:kv_cache_usage_perc"] == 0.25
    accepted = "pagemill:spec_decode_num_accepted_tokens_per_pos_total"
    assert [found[accepted + position] for position in "01"] == [8, 3]
    assert found["pagemill:prefix_cache_misses_totalevicted"] == 30
    assert found["pagemill:prefix_cache_misses_totalnew"] == 100 - 25 - 30 - 5
    assert not [name for name in found if "heartbeat" in name], "it has no family"
    assert b"# HELP pagemill:engine_paused 1 during a pause." in metrics.render()
    stats.kv_blocks_used = 0
    assert samples(metrics)["pagemill:kv_cache_usage_perc"] == 0


def test_a_histogram_of_the_engines_that_measure() -> None:
    measures = Stats(kv_block_reuse_gap=Ages([2, 0, 3, 1], 4000.5))
    engines = [Stats(), measures]
    metrics = RequestMetrics("m", 8192, MetricsOptions(reference_names=True))
    metrics.watch(lambda: engines)
    found = samples(metrics)
    for prefix in ("pagemill:", "vllm:"):
        name = prefix + "kv_block_reuse_gap_seconds"
        buckets = {bound: found[f"{name}_bucket{bound}"] for bound in ("0.001", "1.0", "1800.0")}
        assert buckets == {"0.001": 2, "1.0": 2, "1800.0": 5}
        assert found[f"{name}_bucket+Inf"] == found[f"{name}_count"] == 6
        assert found[f"{name}_sum"] == 4000.5
    name = "pagemill:kv_block_reuse_gap_seconds"
    (reading,) = [each for each in readings(metrics.families()) if each.name == name]
    assert isinstance(reading, Histogram)
    assert reading.labels == {"model_name": "m", "engine": "1"}
    assert (reading.count, reading.sum, reading.buckets["1.0"]) == (6, 4000.5, 2)
    engines.pop()
    assert not [name for name in samples(metrics) if "kv_block_reuse_gap" in name]


def test_the_sum_of_engines_has_their_numbers_alone() -> None:
    total = SummedSnapshot([Stats(), Stats(num_running=4)])
    names = {name for name, *_ in total.fields}
    assert "kv_blocks_dropped" in names
    assert not names & {"kv_block_reuse_gap", "accepted_drafts_by_position"}
    assert vars(total)["num_running"] == 7


def test_request_families() -> None:
    metrics = RequestMetrics("m", 100)
    metrics.finished("stop")
    metrics.finished("stop")
    metrics.finished("abort")
    metrics.time_to_first_token.observe(0.03)
    found = samples(metrics)
    assert found["pagemill:request_success_totalstop"] == 2
    assert found["pagemill:request_success_totalabort"] == 1
    assert found["pagemill:request_success_totallength"] == 0
    assert found["pagemill:time_to_first_token_seconds_bucket0.02"] == 0
    assert found["pagemill:time_to_first_token_seconds_bucket0.04"] == 1


def test_two_servers_in_one_process_do_not_share_metrics() -> None:
    first, second = RequestMetrics("a", 10), RequestMetrics("b", 10)
    first.finished("stop")
    assert samples(second)["pagemill:request_success_totalstop"] == 0


def test_adapters_of_requests_that_wait_and_run() -> None:
    metrics = RequestMetrics("m", 100)
    metrics.serve_adapters(8)

    def labels() -> dict[str, str]:
        families = text_string_to_metric_families(metrics.render().decode())
        (sample,) = [
            sample
            for family in families
            for sample in family.samples
            if sample.name == "pagemill:lora_requests_info"
        ]
        assert sample.value > 1e9
        return {key.removesuffix("_lora_adapters"): text for key, text in sample.labels.items()}

    sql, again, chat = (metrics.adapters.request(name) for name in ("sql", "sql", "chat"))
    metrics.adapters.request("").started()
    again.started()
    again.started()
    assert labels() == {"max_lora": "8", "waiting": "chat,sql", "running": "sql"}
    for request in (chat, again, again):
        request.ended()
    sql.started()
    chat.started()
    assert labels() == {"max_lora": "8", "waiting": "", "running": "sql"}
    sql.ended()
    assert labels() == {"max_lora": "8", "waiting": "", "running": ""}


def test_each_engine_has_a_label() -> None:
    metrics = RequestMetrics("m", 8192)
    metrics.watch(lambda: (Stats(num_running=1), None, Stats(num_running=4)))
    metrics.of_engine(2).finished("stop")
    assert metrics.of_engine(2) is metrics.of_engine(2).of_engine(2)
    metrics.of_engine(2).inter_token_latency.observe(0.5)
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            if sample.labels.get("finished_reason", "stop") == "stop":
                found[sample.name, sample.labels.get("engine", "")] = sample.value
    running = "pagemill:num_requests_running"
    assert [found.get((running, engine)) for engine in "012"] == [1, None, 4]
    success = "pagemill:request_success_total"
    assert [found.get((success, engine)) for engine in "012"] == [0, None, 1]
    assert found["pagemill:inter_token_latency_seconds_count", "2"] == 1
    metrics = RequestMetrics("m", 8192)
    metrics.watch(lambda: (None,))
    assert running not in samples(metrics)


def test_token_buckets() -> None:
    assert token_buckets(100) == (1, 2, 5, 10, 20, 50, 100)
    assert token_buckets(8192)[-1] == 5000


def test_stats_line_has_rates_of_the_interval_and_is_silent_when_idle() -> None:
    stats, now = Stats(prompt_tokens=0, generation_tokens=0), [0.0]
    line = StatsLine(lambda: stats, lambda: now[0])
    stats.prompt_tokens, stats.generation_tokens, now[0] = 100, 50, 10.0
    text = line.text()
    assert text is not None
    assert "prompt 10.0 tok/s, generation 5.0 tok/s, running 3, waiting 2" in text
    assert "KV cache 25.0%, prefix cache hits 25.0%" in text
    stats.num_running = stats.num_waiting = 0
    now[0] = 20.0
    assert line.text() is None
