"""What the operator lets the owner of an API key take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """0, None and () are no limit.

    `concurrency`: requests at a time. `requests_per_minute`, `tokens_per_minute` (of prompts and
    outputs): as many at once, and then as they come back over time. `priority`: requests are at
    least that far behind (lower numbers run first). `models`: served names that may be used.
    """

    concurrency: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    priority: int | None = None
    models: tuple[str, ...] = ()

    @property
    def has_rates(self) -> bool:
        """Whether requests have to be counted."""
        return bool(self.concurrency or self.requests_per_minute or self.tokens_per_minute)

    def may_use(self, model: str) -> bool:
        """Whether a served name may be used."""
        return not self.models or model in self.models

    def priority_of(self, requested: int) -> int:
        """The priority of a request that asks for `requested`."""
        return requested if self.priority is None else max(requested, self.priority)


NO_LIMITS = KeyLimits()
