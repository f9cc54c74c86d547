"""The signals that stop a server, from its first line to its last.

    status = until_stopped(lambda: run(config))   # in the main thread
    stop_on_signals(server.stop)                  # in the event loop, once there is one

SIGTERM and SIGINT stop it, and SIGHUP, which a terminal sends when it is closed, unless the
process was started with it ignored (`nohup`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType


class _StoppedError(BaseException):
    """A signal came before the event loop takes it. No handler of `Exception` may catch this."""


def stop_on_signals(stop: Callable[[], None]) -> None:
    """In the event loop: each signal that stops a server calls `stop`."""
    for number in _stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop)


def until_stopped(serve: Callable[[], int]) -> int:
    """Calls `serve` and returns its exit status, or 0 if a signal stops it before
    `stop_on_signals`: everything that it opened is closed then. Without a handler the kernel would
    end the process at once, or, as the first one of a container, not at all."""
    before = {number: signal.signal(number, _raise_stopped) for number in _stop_signals()}
    try:
        return serve()
    except _StoppedError:
        return 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_signals() -> tuple[signal.Signals, ...]:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise _StoppedError
