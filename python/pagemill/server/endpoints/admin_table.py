"""The routes of the operator, on an address of their own (`--admin-address`)."""

from __future__ import annotations

from pagemill.server.access.caller import Scope
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.endpoints.table import endpoint_named

_SHARED = ("health", "ready", "metrics", "version", "kv_events")


def _operation(
    name: str,
    method: str,
    request: str,
    response: str,
    transport: Transport = Transport.PATH,
    module: str = "engine",
    path: str = "",
) -> Endpoint:
    return Endpoint(
        name=name,
        method=method,
        path=path or f"/{name}",
        handler=f"{module}:{name}",
        scope=Scope.ADMIN,
        transport=transport,
        request=f"operation:{request}" if request else "",
        response=f"operation:{response}",
    )


ADMIN_ENDPOINTS = (
    *(endpoint_named(name) for name in _SHARED),
    _operation("abort_requests", "POST", "AbortRequest", "AbortState", Transport.JSON),
    Endpoint(
        name="admin_openapi",
        method="GET",
        path="/openapi.json",
        handler="about:admin_openapi",
        scope=Scope.KEY,
        response="status:DOCUMENT",
    ),
    _operation(
        "finish_weight_update", "POST", "FinishUpdate", "EngineState", Transport.JSON, "weights"
    ),
    _operation("get_world_size", "GET", "", "WorldSize"),
    _operation(
        "init_weight_transfer_engine",
        "POST",
        "TransferRequest",
        "WeightTransfer",
        Transport.JSON,
        "weights",
    ),
    _operation("is_paused", "GET", "", "PauseState"),
    _operation("is_sleeping", "GET", "", "SleepState"),
    _operation(
        "load_lora_adapter",
        "POST",
        "LoadAdapter",
        "AdapterState",
        Transport.JSON,
        "adapters",
        "/v1/load_lora_adapter",
    ),
    _operation("pause", "POST", "PauseRequest", "EngineState"),
    _operation("pin_prefix", "POST", "PinRequest", "PinState", Transport.JSON),
    _operation("reset_encoder_cache", "POST", "", "ResetState"),
    _operation("reset_mm_cache", "POST", "", "ResetState"),
    _operation("reset_prefix_cache", "POST", "ResetRequest", "ResetState"),
    _operation("restore_session", "POST", "SessionRequest", "SessionState", Transport.JSON),
    _operation("resume", "POST", "", "EngineState"),
    _operation("save_session", "POST", "SessionRequest", "SessionState", Transport.JSON),
    _operation("server_info", "GET", "", "ServerInfo"),
    _operation("sleep", "POST", "SleepRequest", "EngineState"),
    _operation("start_profile", "POST", "ProfileRequest", "ProfileStarted", module="profile"),
    _operation(
        "start_weight_update", "POST", "StartUpdate", "EngineState", Transport.JSON, "weights"
    ),
    _operation("stop_profile", "POST", "", "ProfileState", module="profile"),
    _operation(
        "unload_lora_adapter",
        "POST",
        "UnloadAdapter",
        "AdapterState",
        Transport.JSON,
        "adapters",
        "/v1/unload_lora_adapter",
    ),
    _operation("unpin_prefix", "POST", "UnpinRequest", "ResetState", Transport.JSON),
    _operation(
        "update_weight_version", "POST", "NewVersion", "EngineState", Transport.JSON, "weights"
    ),
    _operation(
        "update_weights", "POST", "WeightsRequest", "EngineState", Transport.JSON, "weights"
    ),
    _operation("wake_up", "POST", "WakeRequest", "EngineState"),
    _operation("weight_info", "GET", "", "WeightInfo", module="weights"),
)
