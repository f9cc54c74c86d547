"""Logging set-up: one handler, one format, standard error."""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(levelname).1s %(asctime)s.%(msecs)03d %(name)s] %(message)s"
_DATE = "%m-%d %H:%M:%S"


def configure(level: str) -> None:
    """Sends the records of this program and of the HTTP server to standard error.

    Args:
        level: "debug", "info", "warning" or "error". Below "debug", uvicorn's own chatter about
            starting and stopping is left out: the server says these things itself.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
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
