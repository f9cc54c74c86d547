"""What may run in one step, and what may wait."""

from dataclasses import dataclass

from pagemill.config.fields import Range, check, option

_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Batching: limits of one step and of the queue."""

    max_num_seqs: int = option(
        128, "Most requests that run at the same time.", unit="requests", allowed=Range(1, 65536)
    )
    max_num_batched_tokens: int = option(
        1024,
        "Most tokens of one step over all requests; a longer prompt runs in several steps. Decides"
        " how much memory activations take.",
        unit="tokens",
        allowed=Range(1, 2**20),
    )
    max_num_logits_rows: int = option(
        256,
        "Most positions of one step whose logits are computed: one for each request, and one for"
        " each prompt token whose log probability was asked for.",
        unit="rows",
        allowed=Range(1, 2**20),
    )
    long_prefill_token_threshold: int = option(
        0,
        "Most tokens of one request in one step, so that a long prompt does not delay the others;"
        " 0 is no such limit.",
        unit="tokens",
        allowed=Range(0, _INT32),
    )
    max_num_queued_reqs: int = option(
        1024,
        "Most requests that wait to run; one more is refused with HTTP status 429.",
        unit="requests",
        allowed=Range(0, _INT32),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
