"""A progress bar for a terminal."""

from __future__ import annotations

import time
from typing import TextIO

_WIDTH = 30
_REDRAW_S = 0.1


class ProgressBar:
    """Counts finished requests and generated tokens; silent where `stream` is no terminal."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream if stream.isatty() else None
        self._done = 0
        self._tokens = 0
        self._began = time.monotonic()
        self._drawn = 0.0

    def add(self, *, tokens: int, finished: bool) -> None:
        """Something happened."""
        self._tokens += tokens
        self._done += finished
        if self._stream is None:
            return
        now = time.monotonic()
        if now - self._drawn >= _REDRAW_S or self._done == self._total:
            self._drawn = now
            self._stream.write("\r" + self.text(now - self._began))
            self._stream.flush()

    def close(self) -> None:
        """Leaves the last state standing."""
        if self._stream is not None:
            self._stream.write("\n")

    def text(self, elapsed_s: float) -> str:
        """The bar after `elapsed_s` seconds."""
        filled = _WIDTH * self._done // max(1, self._total)
        bar = "#" * filled + "." * (_WIDTH - filled)
        rate = self._tokens / max(elapsed_s, 1e-9)
        return f"[{bar}] {self._done}/{self._total} {rate:.0f} tok/s"
