"""The operator's routes of weights: those of another checkpoint, or tensors of a trainer."""

from __future__ import annotations

from typing import Any

from pagemill.server.access.caller import Caller
from pagemill.server.endpoints.engine import call_engine, log_operation
from pagemill.server.errors import bad_request
from pagemill.server.protocol.operation import (
    EngineState,
    FinishUpdate,
    NewVersion,
    StartUpdate,
    TransferRequest,
    WeightInfo,
    WeightsRequest,
    WeightTransfer,
)
from pagemill.server.state import ServerState


async def init_weight_transfer_engine(
    server: ServerState, body: TransferRequest, caller: Caller
) -> WeightTransfer:
    """Where trainers put tensors."""
    del body
    return WeightTransfer(**await call_engine(server, caller, "weight_transfer"))


async def start_weight_update(
    server: ServerState, body: StartUpdate, caller: Caller
) -> EngineState:
    """Pauses the engine until `/finish_weight_update`, for tensors that come in several files."""
    log_operation("start_weight_update", caller)
    fields = {"mode": body.mode, "timeout_s": body.timeout_s}
    await call_engine(server, caller, "start_weight_update", **fields)
    return EngineState("started")


async def update_weights(server: ServerState, body: WeightsRequest, caller: Caller) -> EngineState:
    """Goes on with other weights of the same model; all cached prefixes are forgotten. While the
    engine sleeps, `/wake_up` loads them."""
    log_operation("update_weights", caller)
    fields = {"weight_version": body.weight_version, "timeout_s": body.timeout_s}
    if body.path is not None and body.file is None:
        await call_engine(server, caller, "update_weights", path=body.path, **fields)
    elif body.file is not None and body.path is None:
        await call_engine(server, caller, "receive_weights", file=body.file, **fields)
    else:
        raise bad_request("Send either `path` or `file`.", "path")
    return EngineState("updated")


async def finish_weight_update(
    server: ServerState, body: FinishUpdate, caller: Caller
) -> EngineState:
    """Ends `/start_weight_update`; steps go on."""
    log_operation("finish_weight_update", caller)
    version = body.weight_version
    await call_engine(server, caller, "finish_weight_update", weight_version=version)
    return EngineState("finished")


async def update_weight_version(
    server: ServerState, body: NewVersion, caller: Caller
) -> EngineState:
    """Names the weights as they are."""
    log_operation("update_weight_version", caller)
    await call_engine(server, caller, "update_weight_version", new_version=body.new_version)
    return EngineState("updated")


async def weight_info(server: ServerState, body: dict[str, Any], caller: Caller) -> WeightInfo:
    """What the weights are called."""
    del body
    return WeightInfo(**await call_engine(server, caller, "weight_info"))
