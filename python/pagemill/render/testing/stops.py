"""A stop that is set while something is decoded, without threads or clocks."""

from __future__ import annotations

from pagemill.render.stop import Stop


class LateStop(Stop):
    """Set from the question number `at` on, from 0; `asked` counts them."""

    def __init__(self, at: int = 2**62) -> None:
        super().__init__()
        self._at = at
        self.asked = 0

    def is_set(self) -> bool:
        """See `Stop`."""
        self.asked += 1
        return self.asked > self._at
