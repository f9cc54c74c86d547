"""How a thread learns that its work is not wanted any more.

stop = Stop()
...                          # in the thread:
with stop.ends(child):       # a process that the thread waits for
    answer = child.receive()
...                          # in another one:
stop.set()                   # ends the process, and with it the wait
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from pagemill.render.child_process import ChildProcess


class Stop:
    """Not wanted any more, once it is set. Thread-safe; for the work of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._child: ChildProcess | None = None

    def is_set(self) -> bool:
        """True from `set` on."""
        return self._is_set

    def set(self) -> None:
        """The work is not wanted any more: its process is killed. Does not block. Idempotent."""
        with self._lock:
            self._is_set = True
            if self._child is not None:
                self._child.kill()

    @contextmanager
    def ends(self, child: ChildProcess) -> Generator[None]:
        """Kills `child` when this is set while the context lasts, or has been set before it."""
        with self._lock:
            self._child = child
            if self._is_set:
                child.kill()
        try:
            yield
        finally:
            with self._lock:
                self._child = None
