"""The operations of `EngineClient.call`: methods of the native engine, of its adapters
and of its weights that concern all requests.

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
        "finish_weight_update",
        "is_sleeping",
        "kv_events",
        "load_adapter",
        "pause",
        "pin_prefix",
        "receive_weights",
        "require_adapter",
        "reset_encoder_cache",
        "reset_prefix_cache",
        "restore_session",
        "resume",
        "save_session",
        "sleep",
        "start_profile",
        "start_weight_update",
        "stop_profile",
        "unload_adapter",
        "unpin_prefix",
        "update_weight_version",
        "update_weights",
        "wait_idle",
        "wait_paused",
        "wake",
        "weight_info",
        "weight_transfer",
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
    owners: tuple[Any, ...] = (bindings.weights, bindings.engine, bindings.adapters)
    for owner in owners:
        if operation in OPERATIONS and hasattr(owner, operation):
            return getattr(owner, operation)
    known = ", ".join(
        sorted(name for name in OPERATIONS if any(hasattr(owner, name) for owner in owners))
    )
    raise EngineError(
        "UNIMPLEMENTED", f"the engine has no operation {operation[:64]!r}; it has: {known}"
    )
