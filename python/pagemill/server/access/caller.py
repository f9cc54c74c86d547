"""Who sent a request, and what the API key lets it use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pagemill.config.sampling import INT32_MAX
from pagemill.server.errors import ApiError
from pagemill.server.limits.limiter import Admitted, Charge, KeyLimiter, KeyLimits
from pagemill.server.protocol.request_id import NAME
from pagemill.server.records.record import RequestRecord


class Scope(StrEnum):
    """What a route needs of a key, and what a key grants."""

    OPEN = "open"
    """No key at all: the probes. Not granted to keys."""
    KEY = "key"
    """Any valid key. Not granted to keys."""
    INFERENCE = "inference"
    TOOLS = "tools"
    """Tools that the server runs."""
    METRICS = "metrics"
    ADMIN = "admin"


GRANTS = (Scope.INFERENCE, Scope.TOOLS, Scope.METRICS, Scope.ADMIN)
"""What a key can be granted."""
DEFAULT_GRANTS = frozenset({Scope.INFERENCE, Scope.TOOLS, Scope.METRICS})
"""Scopes of a key that states none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of an API key. `key_id` names the key in logs and metrics; it is never the key.

    `tenant` owns a share of the server (`--scheduling-policy fair`, `--max-waiting-per-tenant`).
    `limits` None: the key has none. `models` are the names that its requests may give; None: all.
    `priority` is what its requests begin with; None: what they say themselves.
    `record` is of the request that is being answered; None for one that came from a file.
    `began` is when the request came, by `time.monotonic()`; None: when its record says.
    `engine` is the number of the one of several engines that has to run it; None: any.
    `admitted` is that request, if the key has limits. `prepared` is called when it has been
    submitted to the engine; further calls do nothing.
    """

    key_id: str
    tenant: str = ""
    scopes: frozenset[Scope] = DEFAULT_GRANTS
    limits: KeyLimits | None = None
    models: frozenset[str] | None = None
    priority: int | None = None
    record: RequestRecord | None = field(default=None, compare=False)
    began: float | None = field(default=None, compare=False)
    engine: int | None = field(default=None, compare=False)
    admitted: Admitted | None = field(default=None, compare=False)
    prepared: Callable[[], None] | None = field(default=None, compare=False)

    def require(self, scope: Scope, what: str = "this route") -> None:
        """Raises a 403 ApiError unless this caller has `scope`, which `what` needs."""
        if scope in (Scope.OPEN, Scope.KEY) or scope in self.scopes:
            return
        raise ApiError(
            403,
            f"The API key {self.key_id!r} lacks the scope {scope.value!r}, which {what} needs"
            " (--api-key-file grants scopes).",
        )

    def may_use(self, model: str) -> bool:
        """Whether requests may name `model`; for others it does not exist."""
        return self.models is None or model in self.models

    def priority_of(self, requested: int) -> int:
        """The priority of a request: lower ones run first. One with a key's priority can only ask
        to run later than that."""
        if self.priority is None:
            return requested
        return min(self.priority + max(0, requested), INT32_MAX)

    def of_tenant(self, tenant: str) -> Caller:
        """This caller with the tenant that the header X-Tenant-Id names; "": it has none.

        Raises:
            ApiError: 400 for a header that is not 1 to 128 printable ASCII characters without
                spaces.
        """
        if not tenant:
            return self
        if not NAME.fullmatch(tenant.encode()):
            raise ApiError(
                400, "X-Tenant-Id must have 1 to 128 printable ASCII characters without spaces."
            )
        return replace(self, tenant=tenant)

    def on_engine(self, number: str, engines: int) -> Caller:
        """This caller with the engine, of `engines`, that the header X-data-parallel-rank names;
        "": any.

        Raises:
            ApiError: 400: there is no such engine.
        """
        if not number:
            return self
        known = {str(engine): engine for engine in range(engines)}
        if number not in known:
            raise ApiError(
                400,
                f"X-data-parallel-rank must be the number of an engine, 0 to {engines - 1}"
                " (--data-parallel-size).",
            )
        return replace(self, engine=known[number])

    def charge(self, tokens: int) -> Charge:
        """Counts `tokens`, which the caller's request may take, against the key's limits.

        Raises:
            ApiError: 429: they are not available now.
        """
        return Charge() if self.admitted is None else self.admitted.charge(tokens)


ANONYMOUS = Caller("")
"""Every caller of a server without keys."""
OPERATOR = Caller("operator", scopes=frozenset(GRANTS))
"""Who may open the operator's socket."""


@contextlib.contextmanager
def admitted(caller: Caller, limiter: KeyLimiter) -> Generator[Caller]:
    """`caller` with a request that counts against the limits of its key while the context lasts:
    for requests that do not come over HTTP one by one.

    Raises:
        ApiError: 429: a limit is reached.
    """
    if caller.limits is None:
        yield caller
        return
    request = limiter.admit(caller.key_id, caller.limits)
    try:
        yield replace(caller, admitted=request)
    finally:
        request.leave()
