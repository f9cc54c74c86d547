"""Which adapters the requests of this process name, and which of these wait.

request = metrics.adapters.request("sql")
request.started()   # its first token came
request.ended()
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagemill.observe.families import PREFIX

NAME = "lora_requests_info"
HELP = (
    "When it was read, in seconds since 1970; the labels are the adapters of requests without a"
    " token yet and of requests that have some, in this process, and --max-loras."
)
LABELS = ("max_lora", "waiting_lora_adapters", "running_lora_adapters")


class AdapterRequests(Collector):
    """Counts requests by adapter. Used by the thread of the event loop; collected by any."""

    def __init__(self, max_adapters: int = 0) -> None:
        """`max_adapters`: as many as a step may have."""
        self.max_adapters = max_adapters
        self._waiting: Counter[str] = Counter()
        self._running: Counter[str] = Counter()

    def request(self, adapter: str) -> AdapterRequest:
        """A request that was submitted; "" is the model as it is."""
        return AdapterRequest(adapter, self._waiting, self._running)

    def collect(self) -> Iterator[Metric]:
        """Yields the metric."""
        family = GaugeMetricFamily(PREFIX + NAME, HELP, labels=LABELS)
        names = (",".join(sorted(counts.copy())) for counts in (self._waiting, self._running))
        family.add_metric([str(self.max_adapters), *names], time.time())
        yield family

    def describe(self) -> Iterable[Metric]:
        """Declares no metrics in advance."""
        return ()


class AdapterRequest:
    """One request, as it is counted."""

    __slots__ = ("_adapter", "_counted", "_running")

    def __init__(self, adapter: str, waiting: Counter[str], running: Counter[str]) -> None:
        self._adapter, self._running = adapter, running
        self._counted: Counter[str] | None = None
        self._count(waiting if adapter else None)

    def started(self) -> None:
        """It runs; idempotent."""
        if self._counted is not None and self._counted is not self._running:
            self._count(self._running)

    def ended(self) -> None:
        """It is over; idempotent."""
        self._count(None)

    def _count(self, counts: Counter[str] | None) -> None:
        if self._counted is not None:
            self._counted[self._adapter] -= 1
            if not self._counted[self._adapter]:
                del self._counted[self._adapter]
        self._counted = counts
        if counts is not None:
            counts[self._adapter] += 1
