"""The native bindings as this package uses them: what `_native.Engine` must offer.

The types are structural, so that `fake_engine.FakeEngine` and the compiled extension are
interchangeable and nothing here imports the extension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pagemill.engine.encoder_front import Front
from pagemill.engine.output_plugins import OutputPlugins
from pagemill.engine.outputs import TokenLogprobs
from pagemill.observe.snapshot import EngineSnapshot
from pagemill.structured.compiler import GrammarCompiler


class NativeOutput(Protocol):
    """What one request generated since its last output; see `_native/_core.pyi`."""

    @property
    def request_id(self) -> int: ...
    @property
    def new_token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[TokenLogprobs] | None: ...
    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprobs] | None: ...
    @property
    def turn_finished(self) -> str | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_token_id(self) -> int | None: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def pooled(self) -> np.ndarray | None: ...
    @property
    def error_code(self) -> str | None: ...
    @property
    def error_message(self) -> str | None: ...
    @property
    def error_retry_after_s(self) -> int: ...
    @property
    def kv_transfer_params(self) -> dict[str, str]: ...
    @property
    def num_evicted_tokens(self) -> int: ...
    @property
    def num_draft_steps(self) -> int: ...
    @property
    def num_draft_tokens(self) -> int: ...
    @property
    def num_accepted_draft_tokens(self) -> int: ...
    @property
    def queued_s(self) -> float: ...
    @property
    def prefill_s(self) -> float: ...
    @property
    def decode_s(self) -> float: ...
    @property
    def weight_versions(self) -> Sequence[tuple[int, str]]: ...
    @property
    def routed_experts(self) -> Sequence[int] | npt.NDArray[np.uint16]: ...


class NativeClient(Protocol):
    """One of several clients of an engine, with request ids and outputs of its own."""

    def submit(self, request: Any) -> None: ...

    def check_room(self) -> None: ...

    def abort(self, request_id: int) -> None: ...

    def release(self, request_id: int) -> None: ...

    def extend(self, request_id: int, chunk: Any) -> None: ...

    def poll(self) -> Sequence[NativeOutput]: ...

    def poll_wire(self) -> bytes: ...

    def output_fd(self) -> int: ...

    def close(self) -> None: ...


class NativeEngine(Protocol):
    """The engine's facade: requests in, outputs out, its own thread in between.

    What concerns all requests is reached by name (`control_calls`), or by the native type.
    """

    def submit(self, request: Any) -> None: ...

    def abort(self, request_id: int) -> None: ...

    def extend(self, request_id: int, chunk: Any) -> None: ...

    def poll(self) -> Sequence[NativeOutput]: ...

    def wait(self, timeout_s: float) -> Sequence[NativeOutput]: ...

    def output_fd(self) -> int: ...

    def new_client(self) -> NativeClient: ...

    def stats(self) -> EngineSnapshot: ...

    def wait_paused(self, timeout_s: float) -> bool: ...

    def drain(self) -> None: ...

    def shutdown(self) -> None: ...


class NativeTypes(Protocol):
    """The extension's types that requests are built of; the module `_native` has them."""

    @property
    def InputChunk(self) -> Callable[..., object]: ...  # noqa: N802  (types of the extension)
    @property
    def MediaItem(self) -> Callable[..., object]: ...  # noqa: N802
    @property
    def Request(self) -> Callable[..., object]: ...  # noqa: N802
    @property
    def SamplingParams(self) -> Callable[..., object]: ...  # noqa: N802
    @property
    def StatusError(self) -> type[Exception]: ...  # noqa: N802
    @property
    def transcript_matchers(self) -> Callable[..., Any]: ...


class NativeAdapters(Protocol):
    """The adapters of an engine; `engine.adapters` has them for the native one. Its other
    operations are reached by name (`control_calls`)."""

    @property
    def on_demand(self) -> bool: ...

    def require_adapter(self, name: str) -> None: ...

    def id_of(self, name: str) -> int: ...

    def id_for_media(self, kinds: Collection[str]) -> int: ...

    def media_id(self, content_id: str, adapter_id: int) -> str: ...


@dataclass(frozen=True, slots=True)
class NativeBindings:
    """What the compiled extension contributes: an engine, and the types of its arguments."""

    engine: NativeEngine
    types: NativeTypes
    grammars: GrammarCompiler = field(default_factory=GrammarCompiler)
    """What joins the engine with a tokenizer sets `open_vocabulary`."""
    adapters: NativeAdapters | None = None
    """None: requests cannot name any."""
    weights: object | None = None
    """What replaces weights, whose operations are reached by name (`control_calls`)."""
    front: Front | None = None
    """What a prompt begins with, for the encoder of an encoder-decoder."""
    output_plugins: OutputPlugins = field(default_factory=OutputPlugins)

    @property
    def status_error(self) -> type[Exception]:
        """Raised by the extension; has `code`, `message` and `retry_after_s`."""
        return self.types.StatusError


@dataclass(frozen=True, slots=True)
class OutputCodec:
    """How outputs come out of another process."""

    decode: Callable[[bytes], Sequence[NativeOutput]]
    """Of what `NativeClient.poll_wire` returned. Raises `error` for anything else."""
    error: type[Exception]
    schema: str
    """Equal in processes of one protocol."""
