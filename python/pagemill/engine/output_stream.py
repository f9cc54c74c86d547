"""What a response reads the outputs of a request from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pagemill.engine.outputs import ChoiceOutput, EngineError


class OutputStream(Protocol):
    """Outputs of the choices of one request, as they come. Used on one event loop."""

    @property
    def failure(self) -> EngineError | None:
        """What ended all choices together, if that happened."""
        ...

    @property
    def engine(self) -> int:
        """The number of the engine that runs it; 0 if its parts may be on several."""
        ...

    @property
    def exhausted(self) -> bool:
        """True once all choices have ended and their outputs have been taken."""
        ...

    @property
    def num_dropped_tokens(self) -> int:
        """Tokens that were generated and are in no output."""
        ...

    def listen(self, on_news: Callable[[], None]) -> None:
        """Calls `on_news`, which must not raise, when there are outputs or the stream has ended."""
        ...

    def take(self) -> list[ChoiceOutput]:
        """The outputs since the last call, at most one of each choice."""
        ...

    def stop(self, index: int) -> None:
        """The consumer needs no more of choice `index`."""
        ...

    def close(self) -> None:
        """Aborts every choice that has not finished. Idempotent."""
        ...
