"""What a server did between two scrapes."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.observe.top.scrape import Scrape, quantile

_MAX_TENANTS = 10
_STATES = (
    ("engine_draining", "draining"),
    ("engine_asleep", "asleep"),
    ("engine_paused", "paused"),
)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of times, in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """A tenant's part; rates are for each second."""

    tenant: str
    requests: float
    prompt_tokens: float
    generation_tokens: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A server's work between two scrapes. Rates are for each second, shares 0 to 1; None if
    nothing happened that they could be of."""

    model: str
    state: str
    """"loading", "ready", "draining", "asleep" or "paused"."""
    seconds: float
    """Between the scrapes."""
    running: int
    waiting: int
    waiting_tokens: int
    requests: float
    prompt_tokens: float
    generation_tokens: float
    kv_usage: float
    prefix_hits: float | None
    drafts_accepted: float | None
    time_to_first_token: Quantiles | None
    between_tokens: Quantiles | None
    queue_time: Quantiles | None
    preemptions: int
    refused: int
    restarts: int
    """Since the server's start, of its processes."""
    tenants: tuple[TenantFigures, ...]
    """Those with work, most tokens first, up to a bound."""


def figures(earlier: Scrape, later: Scrape) -> Figures:
    """What happened between two scrapes of one server, of which `later` continues `earlier`."""
    seconds = max(later.at - earlier.at, 1e-9)

    def grown(name: str) -> float:
        return later.total(name) - earlier.total(name)

    def share(part: str, whole: str) -> float | None:
        total = grown(whole)
        return grown(part) / total if total > 0 else None

    def quantiles(name: str) -> Quantiles | None:
        before, after = earlier.buckets(name), later.buckets(name)
        p50, p99 = quantile(0.5, before, after), quantile(0.99, before, after)
        return None if p50 is None or p99 is None else Quantiles(p50, p99)

    return Figures(
        model=later.model,
        state=_state(later),
        seconds=seconds,
        running=int(later.total("num_requests_running")),
        waiting=int(later.total("num_requests_waiting")),
        waiting_tokens=int(later.total("num_prompt_tokens_waiting")),
        requests=grown("request_success_total") / seconds,
        prompt_tokens=grown("prompt_tokens_total") / seconds,
        generation_tokens=grown("generation_tokens_total") / seconds,
        kv_usage=later.total("kv_cache_usage_perc"),
        prefix_hits=share("prefix_cache_hits_total", "prefix_cache_queries_total"),
        drafts_accepted=share(
            "spec_decode_num_accepted_tokens_total", "spec_decode_num_draft_tokens_total"
        ),
        time_to_first_token=quantiles("time_to_first_token_seconds"),
        between_tokens=quantiles("inter_token_latency_seconds"),
        queue_time=quantiles("request_queue_time_seconds"),
        preemptions=int(grown("num_preemptions_total")),
        refused=int(grown("requests_refused_total") + grown("requests_turned_away_total")),
        restarts=int(later.total("process_restarts_total")),
        tenants=_tenants(earlier, later, seconds),
    )


def _state(scrape: Scrape) -> str:
    if "num_requests_running" not in scrape:
        return "loading"
    return next((state for name, state in _STATES if scrape.total(name)), "ready")


def _tenants(earlier: Scrape, later: Scrape, seconds: float) -> tuple[TenantFigures, ...]:
    rates: list[dict[str, float]] = []
    for name in ("requests", "prompt_tokens", "generation_tokens"):
        before = earlier.by(f"tenant_{name}_total", "tenant")
        after = later.by(f"tenant_{name}_total", "tenant")
        rates.append({key: (after[key] - before.get(key, 0.0)) / seconds for key in after})
    requests, prompt_tokens, generation_tokens = rates
    found = [
        TenantFigures(
            tenant, rate, prompt_tokens.get(tenant, 0.0), generation_tokens.get(tenant, 0.0)
        )
        for tenant, rate in requests.items()
        if rate > 0
    ]
    found.sort(key=lambda row: (-row.prompt_tokens - row.generation_tokens, row.tenant))
    return tuple(found[:_MAX_TENANTS])
