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
Version = Annotated[str, Meta(max_length=256)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]


MAX_ABORTED = 65536


class PauseRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What happens to running requests: they are aborted, finish, or stay where they are until
    `/resume`. `timeout_s`: how long the answer waits for that. `clear_cache`: forget all cached
    prefixes then; requests that stay keep theirs."""

    mode: PauseMode = "abort"
    clear_cache: bool = True
    timeout_s: Timeout = 60.0
    request_id: str = ""


class AbortRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`request_ids` are those of the header `X-Request-Id`; null: all requests end, which is why a
    misspelled field is refused."""

    request_ids: Annotated[list[str], Meta(max_length=MAX_ABORTED)] | None = None
    request_id: str = ""


class AbortState(msgspec.Struct):
    """How many requests ended."""

    aborted: int
    status: str = "aborted"


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
    """Other weights of the same model: `path`, a folder of safetensors or a GGUF file of the
    server, or `file`, the name of a safetensors file in its `--weight-transfer-dir` with some of
    the tensors. `weight_version`: what the weights are called from now on."""

    path: Path | None = None
    file: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    weight_version: Version | None = None
    timeout_s: Timeout = 60.0
    request_id: str = ""


class StartUpdate(msgspec.Struct, kw_only=True, frozen=True):
    """`mode` and `timeout_s`: as in a pause, which lasts until `/finish_weight_update`."""

    mode: PauseMode = "keep"
    timeout_s: Timeout = 60.0
    request_id: str = ""


class FinishUpdate(msgspec.Struct, kw_only=True, frozen=True):
    """`weight_version`: what the weights are called from now on."""

    weight_version: Version | None = None
    request_id: str = ""


class NewVersion(msgspec.Struct, kw_only=True, frozen=True):
    """What the weights are called from now on, as they are."""

    new_version: Version
    request_id: str = ""


class TransferRequest(msgspec.Struct, kw_only=True, frozen=True):
    """How weights are handed over: in files of a folder that trainer and server share."""

    backend: Literal["file"] = "file"
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


class PinRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A prompt that was run, as text or token ids, whose KV is kept."""

    prompt: str | list[int]
    cache_salt: Annotated[str, Meta(max_length=1024)] = ""
    request_id: str = ""


class UnpinRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The id of a pin."""

    pin_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    request_id: str = ""


class ProfileRequest(msgspec.Struct, kw_only=True, frozen=True):
    """`profile_prefix`: how the file's name begins. Nothing is recorded after `max_iterations`
    steps (0 = no limit) or `max_seconds`; `/stop_profile` writes the file."""

    profile_prefix: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "profile"
    max_iterations: Annotated[int, Meta(ge=0, le=10**6)] = 0
    max_seconds: Annotated[int, Meta(ge=1, le=3600)] = 60
    request_id: str = ""


_FILES = (
    "tensors come in safetensors files of --weight-transfer-dir, which `pagemill.rl` writes, not"
    " through NCCL or handles of GPU memory."
)
RULES = FieldRules(
    unsupported={
        "tags": Unsupported(nothing, "weights and KV cache wake together."),
        "wait_for_inflight_requests": Unsupported(nothing, "send `mode`."),
        "delay_iterations": Unsupported(nothing, "a profile begins with the next step."),
        "init_info": Unsupported(nothing, _FILES),
        "update_info": Unsupported(nothing, _FILES),
    },
    ignored=frozenset(),
)


class EngineState(msgspec.Struct):
    """What the engine does after the operation."""

    status: Literal["sleeping", "awake", "paused", "resumed", "updated", "started", "finished"]


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


class PinState(msgspec.Struct):
    """A pin, and of how many leading tokens it keeps the KV."""

    pin_id: int
    num_tokens: int


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


class WeightTransfer(msgspec.Struct):
    """The folder that trainers write to, and the most bytes of tensors in a file there."""

    folder: str
    max_bytes: int


class WeightInfo(msgspec.Struct):
    """What the weights are called, "" until they get a name, and whether an update was started
    that is not finished."""

    weight_version: str
    is_updating: bool


class ServerInfo(msgspec.Struct):
    """What was started, and how it is. `settings`: every flag's value, without secrets."""

    version: str
    models: list[str]
    phase: Literal["loading", "ready", "draining"]
    active_requests: int
    settings: dict[str, Any]
