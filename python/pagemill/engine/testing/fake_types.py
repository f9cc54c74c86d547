"""The types of the compiled extension, for the fake engine: plain fields."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.inputs.rendered_prompt import InputPart


class FakeStatusError(Exception):
    """What the extension calls StatusError."""

    def __init__(self, code: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class FakeSampling(types.SimpleNamespace):
    """Any fields of the native SamplingParams; defaults of those that the fake engine reads."""

    def __init__(self, **fields: Any) -> None:
        """Raises TypeError for a temperature that is not a number."""
        super().__init__(**fields)
        if isinstance(self.temperature, str):
            raise TypeError("temperature has the wrong type or size")

    temperature: float = 1.0
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    eos_token_ids: Sequence[int] = ()
    stop_token_ids: Sequence[int] = ()
    logprobs: int = -1
    prompt_logprobs: int = -1
    logprob_token_ids: Sequence[int] = ()
    repetition_max_pattern: int = 0
    repetition_min_count: int = 0


@dataclass(frozen=True, slots=True)
class FakeMediaItem:
    """The fields of the native MediaItem."""

    content_id: str
    first_token: int
    num_tokens: int
    features: np.ndarray | None = None
    positions: tuple[np.ndarray, np.ndarray, int] | None = None
    row_tokens: int = 0
    placement: np.ndarray | None = None
    shares: np.ndarray | None = None
    encoder: int = 0


@dataclass(frozen=True, slots=True)
class FakeInputChunk:
    """The fields of the native InputChunk."""

    token_ids: Sequence[int]
    part: InputPart = "last"
    media: Sequence[FakeMediaItem] = ()


class FakeRequest(types.SimpleNamespace):
    """Any fields of the native Request; defaults of those that the fake engine reads."""

    id: int = 0
    prompt_token_ids: Sequence[int] | np.ndarray = ()
    sampling: FakeSampling | None = None
    media: Sequence[FakeMediaItem] = ()
    priority: int = 0
    cache_salt: str = ""
    tenant: str = ""
    starts_held: bool = False
    streaming_input: bool = False
    deadline_us: int | None = None
    return_routed_experts: bool = False
    kv_transfer_params: Mapping[str, str] = types.MappingProxyType({})


class FakeTypes:
    """A `native.NativeTypes`."""

    InputChunk = FakeInputChunk
    MediaItem = FakeMediaItem
    Request = FakeRequest
    SamplingParams = FakeSampling
    StatusError = FakeStatusError

    @staticmethod
    def transcript_matchers(*rules: object) -> tuple[object, ...]:
        """The rules, which the fake engine does not follow."""
        return rules
