"""Outputs and statistics of the fake engine, and how they travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
import numpy as np

from pagemill.engine.native import OutputCodec
from pagemill.engine.testing.fake_types import FakeStatusError


@dataclass(slots=True)
class FakeLogprobs:
    """The fields of the native TokenLogprobs."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


@dataclass(slots=True)
class FakeOutput:
    """The fields of the native RequestOutput."""

    request_id: int
    new_token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[FakeLogprobs] | None = None
    prompt_logprobs: list[FakeLogprobs] | None = None
    turn_finished: str | None = None
    finish_reason: str | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    pooled: np.ndarray | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_retry_after_s: int = 0
    kv_transfer_params: dict[str, str] = field(default_factory=dict[str, str])
    num_evicted_tokens: int = 0
    num_draft_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    weight_versions: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    routed_experts: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class FakeStats:
    """The statistics of the native EngineStats that the fake engine keeps."""

    fields: ClassVar[Sequence[tuple[str, str, str, str]]] = (
        ("num_running", "gauge", "num_requests_running", "requests that hold a slot"),
        ("num_waiting", "gauge", "num_requests_waiting", "requests without a slot"),
        ("prompt_tokens", "counter", "prompt_tokens", "prompt tokens of requests that started"),
        ("generation_tokens", "counter", "generation_tokens", "tokens generated"),
        ("asleep", "gauge", "", "1 while the weights are not in memory"),
    )

    num_running: int = 0
    num_waiting: int = 0
    kv_blocks_total: int = 1000
    kv_blocks_used: int = 0
    draining: bool = False
    num_steps: int = 0
    prefix_cache_query_tokens: int = 0
    prefix_cache_hit_tokens: int = 0
    prefix_cache_evicted_tokens: int = 0
    prefix_cache_partial_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    num_submitted: int = 0
    num_refused: int = 0
    finished_stop: int = 0
    finished_length: int = 0
    finished_abort: int = 0
    finished_error: int = 0
    finished_repetition: int = 0
    accepted_drafts_by_position: tuple[int, ...] = ()
    asleep: bool = False
    progress_age_s: float = 0.0


def encode_outputs(outputs: Sequence[FakeOutput]) -> bytes:
    """For `FAKE_CODEC`."""

    def array(value: object) -> list[float]:
        assert isinstance(value, np.ndarray)
        return value.tolist()

    return msgspec.msgpack.encode(outputs, enc_hook=array)


def _decode_outputs(wire: bytes) -> list[FakeOutput]:
    def array(kind: type, value: object) -> object:
        return np.array(value, dtype=np.float32) if kind is np.ndarray else value

    try:
        return msgspec.msgpack.decode(wire, type=list[FakeOutput], dec_hook=array)
    except msgspec.DecodeError as error:
        raise FakeStatusError("INVALID_ARGUMENT", str(error)) from error


FAKE_CODEC = OutputCodec(_decode_outputs, FakeStatusError, "fake outputs")
