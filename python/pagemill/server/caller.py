"""Who sent a request, and what the API key lets it use."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pagemill.server.errors import ApiError
from pagemill.server.records.record import RequestRecord


class Scope(StrEnum):
    """What a route needs of a key, and what a key grants."""

    OPEN = "open"
    """No key at all: the probes. Not granted to keys."""
    KEY = "key"
    """Any valid key. Not granted to keys."""
    INFERENCE = "inference"
    METRICS = "metrics"
    ADMIN = "admin"


GRANTS = (Scope.INFERENCE, Scope.METRICS, Scope.ADMIN)
"""What a key can be granted."""
DEFAULT_GRANTS = frozenset({Scope.INFERENCE, Scope.METRICS})
"""Scopes of a key that states none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of an API key. `key_id` names the key in logs and metrics; it is never the key.

    `tenant` owns a share of the server (`--scheduling-policy fair`, `--max-waiting-per-tenant`).
    `record` is of the request that is being answered; None for one that did not come over HTTP.
    """

    key_id: str
    tenant: str = ""
    scopes: frozenset[Scope] = DEFAULT_GRANTS
    record: RequestRecord | None = field(default=None, compare=False)

    def require(self, scope: Scope) -> None:
        """Raises a 403 ApiError unless this caller has `scope`."""
        if scope in (Scope.OPEN, Scope.KEY) or scope in self.scopes:
            return
        raise ApiError(
            403,
            f"The API key {self.key_id!r} lacks the scope {scope.value!r}, which this route needs"
            " (--api-key-file grants scopes).",
        )


ANONYMOUS = Caller("")
"""Every caller of a server without keys."""
OPERATOR = Caller("operator", scopes=frozenset(GRANTS))
"""Who may open the operator's socket."""
