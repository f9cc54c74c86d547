"""Calls on a thread with a large stack: llguidance goes down a grammar's rules by recursion, and a
chain of 3,000 rules would end the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_STACK_BYTES = 2**28
"""3 KB for each of the 65,535 symbols that a grammar may have. Only what is used takes memory."""
_LOCK = threading.Lock()
_T = TypeVar("_T")


def call_with_deep_stack(function: Callable[[], _T]) -> _T:
    """Returns what `function` returns, or raises what it raises."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="deep-stack")
    with _LOCK:  # the size is one of all threads that start
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
