"""How a front end reaches an engine: in its own process (`local_client`) or in another one
(`socket_client`); or one of several engines (`engine_group`). All behave alike, which
`testing/client_conformance.py` proves.

    await client.start(on_outputs, on_lost)
    await client.submit([EngineRequest(...)])      # on_outputs is called with its outputs
    client.abort([request_id])
    done = await client.call("reset_prefix_cache")
    await client.close()

A client lives on one event loop. Its request ids, those of the choices of its requests, are its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pagemill.engine.messages import EngineRequest, ModelFacts
from pagemill.engine.native import NativeOutput
from pagemill.engine.outputs import EngineError
from pagemill.inputs.rendered_prompt import InputChunk
from pagemill.observe.snapshot import EngineSnapshot

OnOutputs = Callable[[Sequence[NativeOutput]], None]
OnLost = Callable[[EngineError], None]
OnStats = Callable[[], None]
READY, RESTARTING = "ready", "restarting"


def ignore_stats() -> None:
    """An `OnStats` that does nothing."""


class EngineClient(Protocol):
    """Obligations of an implementation:

    1. A submitted request has outputs until one with a finish reason, or `on_lost` is called: then
       no request of the client has an output any more.
    2. `submit` is all or nothing, and raises the refusal. If it is cancelled, its requests may run:
       the caller aborts them.
    3. Outputs are passed on the event loop, never from within a method of the client.
    4. `close` aborts what the client has in the engine, and nothing of other clients.
    5. `room` follows the engine by itself: it stops refusing when there is room again, without a
       call of another method.
    """

    @property
    def model(self) -> ModelFacts:
        """What is known of the model; valid after `start`."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the engine can be reached; without it, `submit` raises UNAVAILABLE."""
        ...

    async def start(
        self, on_outputs: OnOutputs, on_lost: OnLost, on_stats: OnStats = ignore_stats
    ) -> None:
        """Reaches the engine; to be called once. `on_stats` is called when `stats` of another
        process has changed.

        Raises:
            EngineError: it cannot be reached, or is of another version.
        """
        ...

    async def submit(self, requests: Sequence[EngineRequest], engine: int | None = None) -> int:
        """Returns the number of the engine that runs them, which is `engine` if that is not None.
        Raises EngineError for the refusal of one of them; then none of them runs."""
        ...

    def room(self) -> int:
        """How many more choices the engine would queue now, as far as is known here, at least 1.
        Never waits. `submit` decides: others submit, too.

        Raises:
            EngineError: the refusal that any request would get.
        """
        ...

    def abort(self, request_ids: Sequence[int]) -> None:
        """Ends requests; those that are over or unknown are ignored."""
        ...

    def release(self, request_id: int) -> None:
        """Lets a request start that was submitted with `starts_held`."""
        ...

    async def extend(self, request_id: int, chunk: InputChunk) -> None:
        """Appends input to a request with `streaming_input`. Raises EngineError for a refusal."""
        ...

    async def call(self, operation: str, **arguments: Any) -> Any:
        """Runs a control operation of the engine and returns what it returned.

        Raises:
            EngineError: it failed; UNIMPLEMENTED for one that the engine does not offer.
        """
        ...

    def stats(self) -> EngineSnapshot:
        """The engine's statistics, those of several added up; at most a second old; never waits."""
        ...

    def engines(self) -> Sequence[EngineSnapshot | None]:
        """The statistics of each engine, by its number; None: it cannot be reached."""
        ...

    def states(self) -> Sequence[str]:
        """Of each engine, by its number: "ready" if it gets requests, "restarting" if it cannot be
        reached, "failed: ..." if it gets none because of that."""
        ...

    async def close(self) -> None:
        """Idempotent. Leaves the engine to others."""
        ...
