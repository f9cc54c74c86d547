"""Control operations of several engines: what each is called with, how their answers become one,
and which calls an engine that is started again has missed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagemill.engine.outputs import EngineError

_Arguments = Mapping[str, Any]
_ADAPTERS = frozenset({"load_adapter", "unload_adapter"})
_LASTING = frozenset({"pause", "sleep", "update_weights"})
_UNDOES = {"resume": "pause", "wake": "sleep"}


def arguments_for(operation: str, arguments: _Arguments, engine: int) -> dict[str, Any]:
    """The arguments for one engine: each writes a file of its own."""
    own = dict(arguments)
    if operation == "save_session" and "path" in own:
        own["path"] = _part(own["path"], engine)
    elif operation == "start_profile" and "path" in own and engine > 0:
        path = Path(own["path"])
        own["path"] = str(path.with_name(f"{path.stem}.engine-{engine}{path.suffix}"))
    return own


def one_is_enough(operation: str, errors: Sequence[BaseException]) -> bool:
    """Whether what other engines have done is all there was to do: a prompt is in the cache of the
    engine that ran it, and not in those of the engines with `errors`."""
    return operation == "save_session" and all(
        isinstance(error, EngineError) and error.code == "NOT_FOUND" for error in errors
    )


def joined(operation: str, arguments: _Arguments, answers: Mapping[int, Any]) -> Any:
    """One answer for those of the engines, by their numbers."""
    if operation == "save_session":
        return _longest_session(str(arguments["path"]), answers)
    return _JOIN.get(operation, _first)(list(answers.values()))


def _first(answers: Sequence[Any]) -> Any:
    return answers[0]


def _profile(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        **answers[0],
        "num_steps": sum(each["num_steps"] for each in answers),
        "num_events": sum(each["num_events"] for each in answers),
        "complete": all(each["complete"] for each in answers),
    }


_JOIN: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "is_sleeping": all,
    "reset_prefix_cache": all,
    "stop_profile": _profile,
    "wait_idle": all,
    "wait_paused": all,
}
"""Engines that are in the same state answer alike: the answer of the first stands for others."""


def _part(path: str, engine: int) -> str:
    return f"{path}.engine-{engine}"


def _longest_session(path: str, tokens: Mapping[int, int]) -> int:
    """Keeps the file of the engine that had most of the prompt in its cache."""
    longest = max(tokens, key=lambda engine: tokens[engine])
    os.replace(_part(path, longest), path)
    for engine in tokens.keys() - {longest}:
        os.unlink(_part(path, engine))
    return tokens[longest]


class StandingCalls:
    """The calls whose effect lasts, oldest first, for engines that join later.

    A later call for the same thing replaces an earlier one, and one that undoes it removes it.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}

    @staticmethod
    def lasts(operation: str) -> bool:
        """Whether an engine that joins later has to know of it."""
        return operation in _LASTING or operation in _UNDOES or operation in _ADAPTERS

    def note(self, operation: str, arguments: _Arguments) -> None:
        """Engines have done `operation`."""
        if operation in _UNDOES:
            self._calls.pop(_UNDOES[operation], None)
        elif operation in _ADAPTERS:
            self._set(f"adapter {arguments['name']}", operation, arguments)
        elif operation in _LASTING:
            self._set(operation, operation, arguments)

    def all(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """Operations and their arguments, in the order in which to call them."""
        return tuple(self._calls.values())

    def _set(self, key: str, operation: str, arguments: _Arguments) -> None:
        self._calls.pop(key, None)
        self._calls[key] = operation, dict(arguments)
