"""Control operations of several engines: what each is called with, how their answers become one,
and which calls an engine that is started again has missed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagemill.engine.client import EngineClient
from pagemill.engine.outputs import EngineError

_Arguments = Mapping[str, Any]
Call = tuple[str, _Arguments]
"""An operation and its arguments."""
_LASTING = frozenset({"update_weights", "update_weight_version"})
_SWITCHES = {"pause": "pause", "resume": "pause", "sleep": "sleep", "wake": "sleep"}
_ADAPTERS = frozenset({"load_adapter", "unload_adapter"})


def arguments_for(operation: str, arguments: _Arguments, engine: int) -> dict[str, Any]:
    """The arguments for one engine: each writes a file of its own."""
    own = dict(arguments)
    if operation == "save_session" and "path" in own:
        own["path"] = _part(own["path"], engine)
    elif operation == "start_profile" and "path" in own and engine > 0:
        path = Path(own["path"])
        own["path"] = str(path.with_name(f"{path.stem}.engine-{engine}{path.suffix}"))
    return own


def has_nothing_to_do(operation: str, error: BaseException) -> bool:
    """Whether what other engines have done is all there was to do: a prompt is in the cache of the
    engine that ran it, an adapter in those that loaded it, and not in an engine with `error`."""
    return (
        operation in ("save_session", "unload_adapter")
        and isinstance(error, EngineError)
        and error.code == "NOT_FOUND"
    )


def joined(operation: str, arguments: _Arguments, answers: Mapping[int, Any]) -> Any:
    """One answer for those of the engines, by their numbers."""
    if operation == "save_session":
        return _longest_session(str(arguments["path"]), answers)
    return _JOIN.get(operation, _first)(list(answers.values()))


def _first(answers: Sequence[Any]) -> Any:
    return answers[0]


def _adapters(answers: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of all: what requests bring in is where they run."""
    return list({each["name"]: each for answer in answers for each in answer}.values())


def _profile(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        **answers[0],
        "num_steps": sum(each["num_steps"] for each in answers),
        "num_events": sum(each["num_events"] for each in answers),
        "complete": all(each["complete"] for each in answers),
    }


_JOIN: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "adapters": _adapters,
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


def changed_by(operation: str, arguments: _Arguments) -> str | None:
    """What lastingly changes, so that an engine has to have done the last call of those with the
    same one; None: nothing."""
    if operation in _ADAPTERS:
        return f"adapter {arguments['name']}"
    return operation if operation in _LASTING else _SWITCHES.get(operation)


def is_needed(operation: str) -> bool:
    """Whether an engine that has not done it gets no requests; else it lacks an adapter."""
    return operation != "load_adapter"


def again(operation: str, arguments: _Arguments) -> dict[str, Any]:
    """The arguments with which engines that have done `operation` do it again."""
    return {**arguments, "load_inplace": True} if operation == "load_adapter" else dict(arguments)


async def do_again(client: EngineClient, operation: str, arguments: _Arguments) -> None:
    """Calls `operation` of an engine that has missed it, or done it in another way.

    Raises:
        EngineError: it failed.
    """
    try:
        await client.call(operation, **again(operation, arguments))
    except EngineError as error:
        if has_nothing_to_do(operation, error):
            return
        await leave_out(client, operation, arguments)
        raise


async def leave_out(client: EngineClient, operation: str, arguments: _Arguments) -> None:
    """After `operation` has failed: an adapter that others have loaded is missing, so that its name
    does not stand for an older one."""
    if operation == "load_adapter":
        with contextlib.suppress(EngineError):  # there was none
            await client.call("unload_adapter", name=arguments["name"])


class StandingCalls:
    """The calls whose effect lasts, oldest first, for engines that are started again.

    A later call that changes the same thing replaces an earlier one; one that restores what a
    started engine has removes it.
    """

    def __init__(self, lora_modules: Collection[str] = ()) -> None:
        """`lora_modules`: names of the adapters that engines load at their start."""
        self._lora_modules = frozenset(lora_modules)
        self._calls: dict[str, Call] = {}

    def note(self, operation: str, arguments: _Arguments) -> None:
        """Engines have done `operation`, which changes something."""
        changed = changed_by(operation, arguments)
        assert changed is not None
        self._calls.pop(changed, None)
        if not self._is_undone(operation, arguments):
            self._calls[changed] = operation, dict(arguments)
        version = arguments.get("weight_version")
        if operation == "update_weights" and version is not None:
            self.note("update_weight_version", {"new_version": version})

    def by_change(self) -> dict[str, Call]:
        """The calls, in the order in which to do them, by what they change (`changed_by`)."""
        return dict(self._calls)

    def _is_undone(self, operation: str, arguments: _Arguments) -> bool:
        if operation == "unload_adapter":
            return arguments["name"] not in self._lora_modules
        return operation in ("resume", "wake")
