"""Messages between clients and the engine: plain data, in one process or across a socket.

    client:  Submit, Extend, Release, Abort, Call
    engine:  Hello, Outputs, Reply, Room, Stats

Across a socket each message is a frame: four bytes, the size of what follows (little-endian), and
the message as MessagePack. Hello comes first. Reply answers Submit, Extend and Call, by `sequence`;
Release and Abort have no answer. A Submit is answered before its first outputs.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from pagemill.engine.output_plugins import NamedPlugin
from pagemill.engine.outputs import EngineError
from pagemill.engine.sampling import SamplingDefaults
from pagemill.engine.token_limits import TokenLimits
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.rendered_prompt import InputChunk, RenderedPrompt
from pagemill.inputs.task import Pooled
from pagemill.inputs.transcript_rules import TranscriptRules
from pagemill.structured.grammar import Grammar

PROTOCOL = 11
MAX_FRAME_BYTES = 2**28
"""Of one message: the log probabilities of a prompt of 10^6 tokens fit."""


_MAX_ARRAY_DIMS = 2
_ARRAY_TYPES = frozenset({"<i4", "<f4"})


class ChoiceRequest(msgspec.Struct, array_like=True, frozen=True):
    """One continuation of a prompt, or its pooled output. The engine runs each as a request."""

    id: int
    """Unique among those of its client, and below 2^48."""
    sampling: dict[str, Any] | None
    """Fields of the native SamplingParams; None for a pooled output."""


class EngineRequest(msgspec.Struct, array_like=True, frozen=True):
    """A prompt and its choices."""

    prompt: RenderedPrompt
    choices: tuple[ChoiceRequest, ...]
    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    starts_held: bool = False
    """Each choice starts after Release."""
    streaming_input: bool = False
    """More of the input of each choice comes by Extend."""
    kv_transfer_params: dict[str, str] = {}
    """For the KV connector, from the engine that computed the prompt."""
    grammar: Grammar | None = None
    """What each choice has to be."""
    limits: TokenLimits | None = None
    """Tokens that no choice may have."""
    deadline_us: int | None = None
    """When each choice has to have ended, by `time.monotonic`, which all processes of a machine and
    the native engine share. `Submit.sent_us` lets another machine do without."""
    adapter: str = ""
    """The name of the adapter to compute with; "": that of the prompt's media, or if there is none,
    the model as it is."""
    transcript: TranscriptRules | None = None
    """By which each choice is written, if it has no grammar."""
    return_routed_experts: bool = False
    """Whether each choice ends with the experts that were chosen for its tokens."""
    plugins: tuple[NamedPlugin, ...] = ()
    """Plugins that have a say in each choice, beside the grammar."""
    num_written: int = 0
    """The last tokens of the prompt that are, for all functions, the beginning of each choice."""


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
    """What a front end needs of the model, which it does not load. `names[0]` is the one in
    responses."""

    names: tuple[str, ...]
    path: str
    """Where its files are; the tokenizer is read from there. "" if there is none."""
    max_model_len: int
    vocab_size: int
    hf_overrides: dict[str, Any] = {}
    """Keys of the configuration that the operator replaced."""
    pooled: Pooled | None = None
    """What it gives if it pools instead of generating."""
    eos_token_ids: tuple[int, ...] = ()
    """Of the model's configuration; the tokenizer may know more."""
    defaults: SamplingDefaults = SamplingDefaults()
    max_tokens_cap: int | None = None
    """Bound on generated tokens that the operator set."""
    max_choices: int = 1024
    """Requests that the engine holds if it is otherwise idle."""
    max_unfinished: int = 2048
    """Requests that run or wait in the engine, at most."""
    max_item_tokens: int = 0
    """Of one image or another item; 0: the model takes no media."""
    embeds_width: int = 0
    """Of the rows of embeddings that prompts may be; 0: they are token ids."""
    encoder_text: EncoderText | None = None
    """What its encoder takes if that reads the text of a prompt."""
    max_adapters: int = 0
    """Different adapters in a step; the engine knows which there are. 0: requests cannot name
    any."""
    routed_experts: tuple[int, int] | None = None
    """Layers with experts, and how many of these each chooses for a token; None: choices are not
    returned."""
    alignment: tuple[int, int] | None = None
    """Of a model that generates and, for a pooling request, gives a row for each token: the heads
    whose queries and keys a row has, and how many numbers of each."""


class Hello(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The first message of the engine. A client of another protocol or output schema leaves."""

    protocol: int
    output_schema: str
    model: ModelFacts
    stat_fields: tuple[tuple[str, str, str, str], ...]
    """Name, "gauge", "counter", "histogram" or "counters", Prometheus family, help; of each value
    in Stats."""


class Submit(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Requests to be accepted, all or none."""

    sequence: int
    requests: list[EngineRequest]
    sent_us: int
    """The client's `time.monotonic`, by which deadlines are."""


class Extend(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """More input of a request."""

    sequence: int
    request_id: int
    chunk: InputChunk


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


class Room(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """What `EngineClient.room` returns or raises, when that changes; it follows Hello."""

    places: int
    error: Error | None = None


class Durations(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """A histogram; see `observe.snapshot.Durations`."""

    bounds_s: tuple[float, ...]
    counts: list[int]
    sum_s: float


class Counters(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Numbers that only grow, by index."""

    counts: list[int]


class Stats(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """The engine's statistics, in the order of `Hello.stat_fields`; twice a second."""

    values: list[float | Durations | Counters]


ClientMessage = Submit | Extend | Release | Abort | Call
EngineMessage = Hello | Outputs | Reply | Room | Stats


def message_encoder() -> msgspec.msgpack.Encoder:
    """Encodes messages; arrays become (type, shape, bytes)."""
    return msgspec.msgpack.Encoder(enc_hook=_array_to_wire)


def client_messages() -> msgspec.msgpack.Decoder[ClientMessage]:
    """Decodes what clients send. Raises msgspec.DecodeError or UnicodeDecodeError for anything
    else."""
    return msgspec.msgpack.Decoder(ClientMessage, dec_hook=_array_from_wire)


def engine_messages() -> msgspec.msgpack.Decoder[EngineMessage]:
    """Decodes what the engine sends; raises what `client_messages` does."""
    return msgspec.msgpack.Decoder(EngineMessage)


def _array_to_wire(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    dtype = "<f4" if value.dtype.kind == "f" else "<i4"  # 32 bits: RenderedPrompt has checked it
    array = np.asarray(value, dtype)
    return dtype, array.shape, array.tobytes()


def _array_from_wire(kind: type, value: Any) -> np.ndarray:
    """Reads the array where it lies. Nothing is allocated by the shape that the peer states."""
    dtype, shape, data = msgspec.convert(value, tuple[str, tuple[int, ...], bytes])
    if kind is not np.ndarray or dtype not in _ARRAY_TYPES or len(shape) > _MAX_ARRAY_DIMS:
        raise ValueError(f"no array: {dtype[:8]!r} of {len(shape)} dimensions")
    if min(shape, default=0) < 0 or math.prod(shape) * np.dtype(dtype).itemsize != len(data):
        raise ValueError(f"an array has {len(data)} bytes, which its shape does not")
    return np.frombuffer(data, dtype).reshape(shape)
