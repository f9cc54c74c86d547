"""Logging set-up: one handler, one format, standard error."""

from __future__ import annotations

import logging
import sys
import time

_FORMAT = "%(levelname).1s %(asctime)s.%(msecs)03d {process}%(name)s] %(message)s"
_DATE = "%m-%d %H:%M:%S"


def configure(level: str, process: str = "") -> None:
    """Sends the records of this program and of the HTTP server to standard error.

    Args:
        level: "debug", "info", "warning" or "error". Below "debug", uvicorn's own messages about
            starting and stopping are dropped: the server logs these events itself.
        process: the name of this server process, for each line; "" if it is the only one.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter(_FORMAT.format(process=process and f"{process} "), _DATE)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    if level != "debug":
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        logging.getLogger("asyncio").setLevel(logging.WARNING)


class RateLimitedLog:
    """Warnings that clients can cause at will: at most one line per `interval_s`, with a count."""

    def __init__(self, logger: logging.Logger, interval_s: float = 10.0) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._next_at = -float("inf")
        self._left_out = 0

    def warning(self, message: str) -> None:
        """Logs `message`, or only counts it."""
        now = time.monotonic()
        if now < self._next_at:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        self._next_at, self._left_out = now + self._interval_s, 0
        self._logger.warning("%s%s", message, more)
