"""How a thread learns that its work is not wanted any more.

stop = Stop()
...                          # in the thread:
with stop.ends(child):       # a process, or a connection, that the thread waits for
    answer = child.receive()
...                          # in another one:
stop.set()                   # kills it, and with it the wait
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol


class Killable(Protocol):
    """What a thread waits for, such as a `ChildProcess`."""

    def kill(self) -> None:
        """Ends it, and the wait, from another thread. Does not block. Idempotent."""
        ...


class Stop:
    """Not wanted any more, once it is set. Thread-safe; for the work of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._awaited: Killable | None = None

    def is_set(self) -> bool:
        """True from `set` on."""
        return self._is_set

    def set(self) -> None:
        """The work is not wanted any more: what it waits for is killed. Does not block.
        Idempotent."""
        with self._lock:
            self._is_set = True
            if self._awaited is not None:
                self._awaited.kill()

    @contextmanager
    def ends(self, awaited: Killable) -> Generator[None]:
        """Kills `awaited` when this is set while the context lasts, or has been set before it."""
        with self._lock:
            self._awaited = awaited
            if self._is_set:
                awaited.kill()
        try:
            yield
        finally:
            with self._lock:
                self._awaited = None
