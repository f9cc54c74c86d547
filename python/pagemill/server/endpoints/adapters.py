"""The operator's routes that load and unload LoRA adapters, which requests name as their model."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.endpoints.engine import call_engine, log_operation
from pagemill.server.errors import bad_request
from pagemill.server.protocol.operation import AdapterState, LoadAdapter, UnloadAdapter
from pagemill.server.state import ServerState


async def load_lora_adapter(server: ServerState, body: LoadAdapter, caller: Caller) -> AdapterState:
    """Loads an adapter, or replaces one; requests that were submitted before keep the old
    weights."""
    log_operation("load_lora_adapter", caller)
    if body.lora_name in server.models.names:
        raise bad_request(f"`{body.lora_name}` is a name of the model itself.", "lora_name")
    facts = await call_engine(
        server,
        caller,
        "load_adapter",
        name=body.lora_name,
        path=body.lora_path,
        load_inplace=body.load_inplace,
    )
    return AdapterState(**facts)


async def unload_lora_adapter(
    server: ServerState, body: UnloadAdapter, caller: Caller
) -> AdapterState:
    """Forgets an adapter: requests that run keep it, those that wait fail."""
    log_operation("unload_lora_adapter", caller)
    return AdapterState(**await call_engine(server, caller, "unload_adapter", name=body.lora_name))
