"""Progress of a download: a bar on a terminal, else two lines."""

import time
from typing import TextIO

_BAR_CELLS = 30
_REDRAW_SECONDS = 0.1
_MIB = 2**20


class DownloadProgress:
    """Draws on `stream` if it is a terminal. Use as a context manager, so that the line ends."""

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._draws = stream.isatty()
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._open = False

    def __enter__(self) -> "DownloadProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._stream.write("\n")
            self._stream.flush()

    def say(self, line: str) -> None:
        """Writes one line."""
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """Redraws the bar, at most ten times a second and once when done."""
        now = time.monotonic()
        finished = done_bytes >= total_bytes
        if not self._draws or total_bytes <= 0:
            return
        if now - self._drawn_at < _REDRAW_SECONDS and not finished:
            return
        self._drawn_at = now
        self._open = True
        share = min(1.0, done_bytes / total_bytes)
        cells = int(share * _BAR_CELLS)
        bar = "#" * cells + "." * (_BAR_CELLS - cells)
        speed = done_bytes / _MIB / max(now - self._began, 1e-3)
        self._stream.write(
            f"\r{self._label} [{bar}] {done_bytes / _MIB:6.1f} / {total_bytes / _MIB:.1f} MiB"
            f" {speed:6.1f} MiB/s"
        )
        self._stream.flush()
