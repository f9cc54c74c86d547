"""Bodies of the operator's routes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagemill.config.lora import MAX_NAME_CHARS
from pagemill.server.protocol.decode import FieldRules, Unsupported, nothing

MAX_TIMEOUT_S = 3600.0

Timeout = Annotated[float, Meta(ge=0, le=MAX_TIMEOUT_S)]
PauseMode = Literal["abort", "wait", "keep"]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class PauseRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What happens to running requests: they are aborted, finish, or stay where they are until
    `/resume`. `timeout_s`: how long the answer waits for that. `clear_cache`: forget all cached
    prefixes then; requests that stay keep theirs."""

    mode: PauseMode = "abort"
    clear_cache: bool = True
    timeout_s: Timeout = 60.0
    request_id: str = ""


class SleepRequest(msgspec.Struct, kw_only=True, frozen=True):
    """`level` 1 and 2 are the same here: weights are read again from their file. `keep_kv`: the KV
    cache stays in memory. `mode` and `timeout_s`: as in a pause."""

    level: Annotated[int, Meta(ge=1, le=2)] = 1
    mode: PauseMode = "abort"
    keep_kv: bool = False
    timeout_s: Timeout = 60.0
    request_id: str = ""


class WakeRequest(msgspec.Struct, kw_only=True, frozen=True):
    """`timeout_s`: how long the answer waits."""

    timeout_s: Timeout = 60.0
    request_id: str = ""


class ResetRequest(msgspec.Struct, kw_only=True, frozen=True):
    """`reset_running_requests`: those are preempted, and computed again. Caches beside the engine
    (`reset_external`) are always reset, too."""

    reset_running_requests: bool = False
    reset_external: bool = True
    request_id: str = ""


class WeightsRequest(msgspec.Struct, kw_only=True, frozen=True):
    """Other weights of the same model: a folder of safetensors or a GGUF file of the server."""

    path: Path
    timeout_s: Timeout = 60.0
    request_id: str = ""


class LoadAdapter(msgspec.Struct, kw_only=True, frozen=True):
    """An adapter in the format of PEFT: a folder of the server. With `load_inplace` it replaces the
    one of this name."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    lora_path: Path
    load_inplace: bool = False
    request_id: str = ""


class UnloadAdapter(msgspec.Struct, kw_only=True, frozen=True):
    """The name of an adapter."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    request_id: str = ""


class AdapterState(msgspec.Struct):
    """An adapter: the largest rank of its matrices, and their bytes in memory."""

    name: str
    path: str
    rank: int
    bytes: int


class SessionRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A file of the server for the KV of a prompt, which is text or token ids."""

    path: Path
    prompt: str | list[int] = []
    cache_salt: Annotated[str, Meta(max_length=1024)] = ""
    request_id: str = ""


class ProfileRequest(msgspec.Struct, kw_only=True, frozen=True):
    """`profile_prefix`: how the file's name begins. Nothing is recorded after `max_iterations`
    steps (0 = no limit) or `max_seconds`; `/stop_profile` writes the file."""

    profile_prefix: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "profile"
    max_iterations: Annotated[int, Meta(ge=0, le=10**6)] = 0
    max_seconds: Annotated[int, Meta(ge=1, le=3600)] = 60
    request_id: str = ""


RULES = FieldRules(
    unsupported={
        "tags": Unsupported(nothing, "weights and KV cache wake together."),
        "wait_for_inflight_requests": Unsupported(nothing, "send `mode`."),
        "delay_iterations": Unsupported(nothing, "a profile begins with the next step."),
    },
    ignored=frozenset(),
)


class EngineState(msgspec.Struct):
    """What the engine does after the operation."""

    status: Literal["sleeping", "awake", "paused", "resumed", "updated"]


class SleepState(msgspec.Struct):
    """Whether the weights have left memory."""

    is_sleeping: bool


class PauseState(msgspec.Struct):
    """Whether no step is planned until `/resume`."""

    is_paused: bool


class ResetState(msgspec.Struct):
    """False: requests run that hold prefixes; try again, or reset them, too."""

    success: bool


class SessionState(msgspec.Struct):
    """Of how many tokens the KV is in the file, and in the cache."""

    num_tokens: int
    token_ids: list[int] = []


class ProfileStarted(msgspec.Struct):
    """The file that `/stop_profile` will write."""

    path: str


class ProfileState(msgspec.Struct):
    """What was written. `complete`: false if the profile was ended by a limit, before it was
    stopped."""

    path: str
    num_steps: int
    num_events: int
    complete: bool


class WorldSize(msgspec.Struct):
    """The number of ranks."""

    world_size: int


class ServerInfo(msgspec.Struct):
    """What was started, and how it is. `settings`: every flag's value, without secrets."""

    version: str
    models: list[str]
    phase: Literal["loading", "ready", "draining"]
    active_requests: int
    settings: dict[str, Any]
