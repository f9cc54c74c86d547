"""The operations of `EngineClient.call`: methods of the native engine and of its
adapters that concern all requests.

Nothing else of the engine can be reached by name. Each takes keyword arguments and returns what
travels as MessagePack. They may wait for a step, so they run in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pagemill.engine.native import NativeBindings
from pagemill.engine.native_requests import to_engine_error
from pagemill.engine.outputs import EngineError

OPERATIONS = frozenset(
    {
        "adapters",
        "drain",
        "is_sleeping",
        "kv_events",
        "load_adapter",
        "pause",
        "pin_prefix",
        "require_adapter",
        "reset_prefix_cache",
        "restore_session",
        "resume",
        "save_session",
        "sleep",
        "start_profile",
        "stop_profile",
        "unload_adapter",
        "unpin_prefix",
        "update_weights",
        "wait_idle",
        "wait_paused",
        "wake",
    }
)


async def run_call(bindings: NativeBindings, operation: str, arguments: Mapping[str, Any]) -> Any:
    """Runs `operation` on the engine.

    Raises:
        EngineError: it is not one of `OPERATIONS`, this engine lacks it, its arguments are wrong,
            or it failed.
    """
    method = _method(bindings, operation)
    try:
        return await asyncio.to_thread(method, **arguments)
    except bindings.status_error as error:
        raise to_engine_error(error) from error
    except (TypeError, ValueError) as error:
        raise EngineError(
            "INVALID_ARGUMENT", f"{operation} does not take these arguments: {error}"
        ) from error


def _method(bindings: NativeBindings, operation: str) -> Any:
    owners: tuple[Any, ...] = (bindings.engine, bindings.adapters)
    for owner in owners:
        if operation in OPERATIONS and hasattr(owner, operation):
            return getattr(owner, operation)
    known = ", ".join(
        sorted(name for name in OPERATIONS if any(hasattr(owner, name) for owner in owners))
    )
    raise EngineError(
        "UNIMPLEMENTED", f"the engine has no operation {operation[:64]!r}; it has: {known}"
    )
