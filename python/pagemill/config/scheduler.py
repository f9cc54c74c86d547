"""Limits of a step and of the queue."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option

_INT32 = 2**31 - 1
_MAX_WEIGHT = 1000


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Batching: limits of one step and of the queue."""

    max_num_seqs: int = option(
        128,
        "Maximum number of requests that run at the same time.",
        unit="requests",
        allowed=Range(1, 65536),
    )
    max_num_batched_tokens: int = option(
        1024,
        "Maximum tokens of one step over all requests; a longer prompt runs in several steps."
        " Determines the memory of activations.",
        unit="tokens",
        allowed=Range(1, 2**20),
    )
    max_num_logits_rows: int = option(
        256,
        "Maximum positions of one step whose logits are computed: one for each request, and one for"
        " each prompt token whose log probability was requested. --speculative-config adds room for"
        " drafts.",
        unit="rows",
        allowed=Range(1, 2**20),
    )
    long_prefill_token_threshold: int = option(
        0,
        "Maximum tokens of one request in one step, so that a long prompt does not delay the"
        " others; 0 = no limit.",
        unit="tokens",
        allowed=Range(0, _INT32),
    )
    max_num_partial_prefills: int = option(
        0,
        "Maximum number of requests whose prompt is partly computed at a time; they share the"
        " tokens of a step equally. 0 = no limit, and requests that started first get all they can"
        " use.",
        unit="requests",
        allowed=Range(0, _INT32),
    )
    max_long_partial_prefills: int = option(
        0,
        "Of those, the maximum number whose prompt is longer than --long-prefill-token-threshold;"
        " shorter ones overtake waiting long ones. 0 = no limit.",
        unit="requests",
        allowed=Range(0, _INT32),
    )
    max_step_ms: float | None = option(
        None,
        "Longest step while requests generate, so that their streams do not stall while the prompt"
        " of another one is computed: that runs in parts which keep to it, by what recent steps"
        " took. 0 is no limit. Default: 2.5 times what the generating requests take alone, at least"
        " 5 ms.",
        unit="ms",
        allowed=Range(0, 3_600_000),
    )
    scheduling_policy: str = option(
        "fcfs",
        "Order of requests. fcfs: first come, first served. priority: the lowest `priority` field"
        " first, which preempts others. fair: tenants (of API keys) get equal shares of the tokens,"
        " or shares by --tenant-weights.",
        allowed=("fair", "fcfs", "priority"),
    )
    tenant_weights: dict[str, int] = option(
        {},
        'Shares of tenants under --scheduling-policy fair, as JSON: {"gold": 4}. From 1 to 1000;'
        " others have 1.",
    )
    max_num_queued_reqs: int = option(
        1024,
        "Maximum number of waiting requests; one more is refused with HTTP status 429.",
        unit="requests",
        allowed=Range(0, _INT32),
    )
    max_waiting_tokens: int = option(
        0,
        "Maximum prompt tokens of requests that wait for their first step; more are refused with"
        " HTTP status 429, except that an empty queue accepts one larger prompt. 0 = no limit.",
        unit="tokens",
        allowed=Range(0, 2**62),
    )
    max_waiting_per_tenant: int = option(
        0,
        "Maximum number of waiting requests of one tenant; one more is refused with HTTP status"
        " 429. 0 = no limit.",
        unit="requests",
        allowed=Range(0, _INT32),
    )
    max_queue_time: float = option(
        0.0,
        "Maximum time until a request's first step. A request that would probably wait longer is"
        " refused at once with HTTP status 429; one that has waited this long, then. 0 = no limit.",
        unit="s",
        allowed=Range(0, 86400),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: options contradict each other, or a weight is not a whole number in range.
        """
        check(self)
        if self.max_long_partial_prefills > 0 and self.long_prefill_token_threshold == 0:
            raise ConfigError(
                "--max-long-partial-prefills needs --long-prefill-token-threshold, which says what"
                " a long prompt is"
            )
        if self.tenant_weights and self.scheduling_policy != "fair":
            raise ConfigError("--tenant-weights needs --scheduling-policy fair")
        for tenant, weight in self.tenant_weights.items():
            if type(weight) is not int or not 1 <= weight <= _MAX_WEIGHT:
                raise ConfigError(
                    f"--tenant-weights: the weight of {tenant!r} is {weight!r}; it is a whole"
                    f" number from 1 to {_MAX_WEIGHT}"
                )
