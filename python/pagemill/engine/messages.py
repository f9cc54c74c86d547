"""What clients and the engine say to each other: plain data, in one process or across a socket.

    client:  Submit, Extend, Release, Abort, Call
    engine:  Hello, Outputs, Reply, Stats

Across a socket each message is a frame: four bytes, the size of what follows (little-endian), and
the message as MessagePack. Hello comes first. Reply answers Submit, Extend and Call, by `sequence`;
Release and Abort have no answer. A Submit is answered before its first outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingDefaults

PROTOCOL = 1
MAX_FRAME_BYTES = 2**28
"""Of one message: the log probabilities of a prompt of 10^6 tokens fit."""


class EngineRequest(msgspec.Struct, array_like=True, frozen=True):
    """A request of one choice. Its id is unique among those of its client, and below 2^48."""

    id: int
    prompt: bytes
    """Token ids, int32, little-endian."""
    sampling: dict[str, Any] | None
    """Fields of the native SamplingParams; None asks for a pooled output."""
    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    starts_held: bool = False
    """It starts after Release."""
    streaming_input: bool = False
    """More of its input comes by Extend."""
    kv_transfer_params: dict[str, str] = {}
    """For the KV connector, from the engine that computed the prompt."""

    @property
    def token_ids(self) -> np.ndarray:
        """The prompt, int32 [tokens]."""
        return np.frombuffer(self.prompt, dtype="<i4")


class Error(msgspec.Struct, array_like=True, frozen=True):
    """An EngineError."""

    code: str
    message: str
    param: str | None = None
    retry_after_s: int = 0

    @classmethod
    def of(cls, error: EngineError) -> Error:
        """The message for `error`."""
        return cls(error.code, error.message, error.param, error.retry_after_s)

    def exception(self) -> EngineError:
        """The error to raise."""
        return EngineError(self.code, self.message, self.param, self.retry_after_s)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end knows of the model, without loading it. `names[0]` is the one in
    responses."""

    names: tuple[str, ...]
    path: str
    """Where its files are; the tokenizer is read from there. "" if there is none."""
    max_model_len: int
    vocab_size: int
    pooling: bool = False
    eos_token_ids: tuple[int, ...] = ()
    """Of the model's configuration; the tokenizer may know more."""
    defaults: SamplingDefaults = SamplingDefaults()
    max_tokens_cap: int | None = None
    """Bound on generated tokens that the operator set."""
    max_choices: int = 1024
    """Requests that the engine holds if it is otherwise idle."""


class Hello(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The first message of the engine. A client of another protocol or output schema leaves."""

    protocol: int
    output_schema: str
    model: ModelFacts
    stat_fields: tuple[tuple[str, str, str, str], ...]
    """Name, "value", "gauge" or "counter", Prometheus family, help; of each value in Stats."""


class Submit(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Requests to be accepted, all or none."""

    sequence: int
    requests: list[EngineRequest]


class Extend(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """More input of a request; `part` is "more", "turn" or "last" (cc/scheduler/input_part.h)."""

    sequence: int
    request_id: int
    token_ids: list[int]
    part: str


class Release(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A request with `starts_held` may start."""

    request_id: int


class Abort(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Requests to be ended. Unknown ones are ignored."""

    request_ids: list[int]


class Call(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A control operation that concerns the whole engine; `control_calls` lists them."""

    sequence: int
    operation: str
    arguments: dict[str, Any]


class Outputs(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """What `poll_wire` of the native client returned: cc/engine/output_codec.h."""

    wire: bytes


class Reply(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The answer to the message with this number: an error, or what a Call returned."""

    sequence: int
    error: Error | None = None
    value: Any = None


class Stats(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The engine's statistics, in the order of `Hello.stat_fields`; twice a second."""

    values: list[float]


ClientMessage = Submit | Extend | Release | Abort | Call
EngineMessage = Hello | Outputs | Reply | Stats


def prompt_bytes(token_ids: Sequence[int] | np.ndarray) -> bytes:
    """`EngineRequest.prompt` of int32 token ids."""
    return np.ascontiguousarray(token_ids, dtype="<i4").tobytes()
