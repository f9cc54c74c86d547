"""Logging set-up: one handler, one format, standard error.

A record may have named values beside its message: `extra={"fields": {"status": 200}}`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

_FORMAT = "%(levelname).1s %(asctime)s.%(msecs)03d {process}%(name)s] %(message)s"
_DATE = "%m-%d %H:%M:%S"
_PLAIN = re.compile(r"[!#-~]+")  # printable, without spaces and quotes


def configure(level: str, process: str = "", log_format: str = "text") -> None:
    """Sends the records of this program and of the HTTP server to standard error.

    Args:
        level: "debug", "info", "warning" or "error". Below "debug", uvicorn's own messages about
            starting and stopping are dropped: the server logs these events itself.
        process: the name of this server process, for each line; "" if it is the only one.
        log_format: "text", or "json" for an object on each line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if log_format == "json" else TextFormatter(process))
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


class TextFormatter(logging.Formatter):
    """A line for people; fields follow the message as `name=value`."""

    def __init__(self, process: str = "") -> None:
        super().__init__(_FORMAT.format(process=process and f"{process} "), _DATE)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line without a traceback."""
        parts = [super().formatMessage(record)]
        parts += [f"{name}={_shown(value)}" for name, value in _fields(record).items()]
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """An object with `time`, `level`, `logger`, `message`, and the fields of the record."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return record.__dict__.get("fields", {})


def _shown(value: object) -> str:
    """In quotes if it could be taken for something else of the line."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


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
