"""A progress bar for a terminal."""

from __future__ import annotations

from typing import TextIO

from tqdm import tqdm


class ProgressBar:
    """Counts what is finished, requests or other units, and generated tokens; silent if `stream` is
    not a terminal."""

    def __init__(self, total: int, stream: TextIO, unit: str = "req") -> None:
        self._bar = tqdm(total=total, file=stream, unit=unit, disable=None)
        self._tokens = 0

    def add(self, *, tokens: int, finished: int) -> None:
        """So many tokens came, and so many units ended."""
        if self._bar.disable:
            return
        self._tokens += tokens
        elapsed = self._bar.format_dict["elapsed"]
        if elapsed > 0 and self._tokens:
            self._bar.set_postfix_str(f"{self._tokens / elapsed:.0f} tok/s", refresh=False)
        self._bar.update(finished)

    def close(self) -> None:
        """Leaves the last state on the screen."""
        self._bar.close()
