"""The operator's routes: pause, sleep, cache and saved sessions of the engine.

They concern all requests of all API processes, and answer when the engine has done it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from pagemill import __version__
from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.outputs import EngineError
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError, bad_request, from_engine
from pagemill.server.protocol.operation import (
    AbortRequest,
    AbortState,
    EngineState,
    PauseMode,
    PauseRequest,
    PauseState,
    PinRequest,
    PinState,
    ResetRequest,
    ResetState,
    ServerInfo,
    SessionRequest,
    SessionState,
    SleepRequest,
    SleepState,
    UnpinRequest,
    WakeRequest,
    WorldSize,
)
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")


async def sleep(server: ServerState, body: SleepRequest, caller: Caller) -> EngineState:
    """Frees the memory of weights and KV cache until `/wake_up`; requests are refused meanwhile."""
    log_operation("sleep", caller)
    engine = _engine(server, caller)
    await _pause(engine, body.mode, body.timeout_s)
    try:
        await _call(engine, "sleep", keep_kv=body.keep_kv, timeout_s=body.timeout_s)
    finally:
        await _call(engine, "resume")
    return EngineState("sleeping")


async def wake_up(server: ServerState, body: WakeRequest, caller: Caller) -> EngineState:
    """Loads the weights again."""
    log_operation("wake_up", caller)
    await _call(_engine(server, caller), "wake", timeout_s=body.timeout_s)
    return EngineState("awake")


async def is_sleeping(server: ServerState, body: dict[str, Any], caller: Caller) -> SleepState:
    """Whether the engine sleeps."""
    del body
    return SleepState(await _call(_engine(server, caller), "is_sleeping"))


async def pause(server: ServerState, body: PauseRequest, caller: Caller) -> EngineState:
    """Stops planning steps until `/resume`; new requests wait."""
    log_operation("pause", caller)
    engine = _engine(server, caller)
    await _pause(engine, body.mode, body.timeout_s)
    if body.clear_cache and body.mode != "keep":
        await _call(engine, "reset_prefix_cache")
    return EngineState("paused")


async def abort_requests(server: ServerState, body: AbortRequest, caller: Caller) -> AbortState:
    """Ends some or all requests, which are answered with what was generated, and the reason
    `abort`."""
    log_operation("abort_requests", caller)
    if server.config.api_server_count > 1:
        raise bad_request(
            "Each process of --api-server-count knows its own requests only: `/pause` with the mode"
            " `abort` and `/resume` end those of all.",
            None,
        )
    names = None if body.request_ids is None else frozenset(body.request_ids)
    return AbortState(_engine(server, caller).abort(names))


async def resume(server: ServerState, body: dict[str, Any], caller: Caller) -> EngineState:
    """Ends a pause."""
    del body
    log_operation("resume", caller)
    await _call(_engine(server, caller), "resume")
    return EngineState("resumed")


async def is_paused(server: ServerState, body: dict[str, Any], caller: Caller) -> PauseState:
    """Whether a pause is complete."""
    del body
    return PauseState(await _call(_engine(server, caller), "wait_paused", timeout_s=0.0))


async def reset_prefix_cache(server: ServerState, body: ResetRequest, caller: Caller) -> ResetState:
    """Forgets all cached prefixes."""
    log_operation("reset_prefix_cache", caller)
    preempts = body.reset_running_requests
    return ResetState(
        await _call(_engine(server, caller), "reset_prefix_cache", preempt_running=preempts)
    )


async def reset_encoder_cache(
    server: ServerState, body: dict[str, Any], caller: Caller
) -> ResetState:
    """Forgets the embeddings of media that no running request needs."""
    del body
    log_operation("reset_encoder_cache", caller)
    await _call(_engine(server, caller), "reset_encoder_cache")
    return ResetState(True)


async def reset_mm_cache(server: ServerState, body: dict[str, Any], caller: Caller) -> ResetState:
    """Forgets all media that were prepared for the model."""
    del body
    log_operation("reset_mm_cache", caller)
    server.models.resolve(None, caller).model.rendering.media.reset_cache()
    return ResetState(True)


async def save_session(server: ServerState, body: SessionRequest, caller: Caller) -> SessionState:
    """Writes the cached KV of a prompt to a file, from which any server of the same model can go
    on."""
    log_operation("save_session", caller)
    _check_one_machine(server)
    num_tokens = await _call(
        _engine(server, caller),
        "save_session",
        path=body.path,
        token_ids=await _token_ids(server, body.prompt, caller),
        cache_salt=body.cache_salt,
    )
    return SessionState(num_tokens)


async def restore_session(
    server: ServerState, body: SessionRequest, caller: Caller
) -> SessionState:
    """Reads a saved session: prompts that begin with its tokens find their KV."""
    log_operation("restore_session", caller)
    _check_one_machine(server)
    token_ids, num_tokens = await _call(
        _engine(server, caller), "restore_session", path=body.path, cache_salt=body.cache_salt
    )
    return SessionState(num_tokens, list(token_ids))


async def pin_prefix(server: ServerState, body: PinRequest, caller: Caller) -> PinState:
    """Keeps the cached KV of a prompt from being evicted."""
    log_operation("pin_prefix", caller)
    _check_one_engine(server)
    pin_id, num_tokens = await _call(
        _engine(server, caller),
        "pin_prefix",
        token_ids=await _token_ids(server, body.prompt, caller),
        cache_salt=body.cache_salt,
    )
    return PinState(pin_id, num_tokens)


async def unpin_prefix(server: ServerState, body: UnpinRequest, caller: Caller) -> ResetState:
    """Ends a pin."""
    log_operation("unpin_prefix", caller)
    _check_one_engine(server)
    return ResetState(await _call(_engine(server, caller), "unpin_prefix", pin_id=body.pin_id))


async def get_world_size(server: ServerState, body: dict[str, Any], caller: Caller) -> WorldSize:
    """How many processes divide the model."""
    del body
    settings = server.settings
    return WorldSize(settings["tensor_parallel_size"] * settings["pipeline_parallel_size"])


async def server_info(server: ServerState, body: dict[str, Any], caller: Caller) -> ServerInfo:
    """What this server was started with."""
    del body
    names = server.loaded.model.names if server.loaded is not None else ()
    lifecycle = server.lifecycle
    return ServerInfo(
        __version__, list(names), lifecycle.phase.value, lifecycle.active, dict(server.settings)
    )


def _check_one_engine(server: ServerState) -> None:
    if server.settings["data_parallel_size"] > 1:
        raise bad_request(
            "Prefixes are pinned by one engine only: this server has --data-parallel-size.", None
        )


def _check_one_machine(server: ServerState) -> None:
    if server.config.data_parallel.spans_machines:
        raise bad_request(
            "Sessions are files of one machine: this server has engines on others"
            " (--data-parallel-size-local).",
            None,
        )


async def _token_ids(
    server: ServerState, prompt: str | Sequence[int], caller: Caller
) -> Sequence[int]:
    """The tokens of a prompt, which is text or has them."""
    if isinstance(prompt, str):
        renderer = server.models.resolve(None, caller).model.renderer
        if not renderer.has_text:
            raise bad_request(
                "`prompt` is text, and no tokenizer is loaded (--skip-tokenizer-init): send token"
                " ids.",
                "prompt",
            )
        prompt = await asyncio.to_thread(renderer.encode, prompt, True, True)
    if not prompt:
        raise bad_request("`prompt` is empty.", "prompt")
    return prompt


def _engine(server: ServerState, caller: Caller) -> AsyncEngine:
    return server.models.resolve(None, caller).model.engine


async def _pause(engine: AsyncEngine, mode: PauseMode, timeout_s: float) -> None:
    await _call(engine, "pause", mode=mode)
    if not await _call(engine, "wait_paused", timeout_s=timeout_s):
        raise ApiError(
            504, f"The pause is not complete after {timeout_s:g} s; it goes on until /resume."
        )


async def call_engine(server: ServerState, caller: Caller, operation: str, **arguments: Any) -> Any:
    """Runs an operation of the engine that `caller` may use; see `AsyncEngine.call`.

    Raises:
        ApiError: it cannot be done.
    """
    return await _call(_engine(server, caller), operation, **arguments)


async def _call(engine: AsyncEngine, operation: str, **arguments: Any) -> Any:
    try:
        return await engine.call(operation, **arguments)
    except EngineError as error:
        raise from_engine(error) from error


def log_operation(operation: str, caller: Caller) -> None:
    """Logs `operation` and the key that asked for it."""
    _LOGGER.warning("%s by %s", operation, caller.key_id)
