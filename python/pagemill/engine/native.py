"""The native seam as this package uses it: what `_native.Engine` must offer.

The types are structural, so that `fake_engine.FakeEngine` and the compiled extension are
interchangeable and nothing here imports the extension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pagemill.engine.outputs import TokenLogprobs


class NativeOutput(Protocol):
    """One request's news; see `_native/_core.pyi`."""

    request_id: int
    new_token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    prompt_logprobs: list[TokenLogprobs] | None
    finish_reason: str | None
    stop_token_id: int | None
    num_cached_tokens: int
    pooled: np.ndarray | None
    error_code: str | None
    error_message: str | None
    queued_s: float
    prefill_s: float
    decode_s: float


class NativeEngine(Protocol):
    """The engine's facade: requests in, outputs out, its own thread in between."""

    def submit(
        self,
        request_id: int,
        prompt_token_ids: Sequence[int] | np.ndarray,
        sampling: object | None,
        *,
        priority: int = 0,
        cache_salt: str = "",
        skip_reading_prefix_cache: bool = False,
    ) -> None: ...

    def abort(self, request_id: int) -> None: ...

    def poll(self) -> Sequence[NativeOutput]: ...

    def wait(self, timeout_s: float) -> Sequence[NativeOutput]: ...

    def output_fd(self) -> int: ...

    def stats(self) -> object: ...

    def drain(self) -> None: ...

    def shutdown(self) -> None: ...

    def reset_prefix_cache(self) -> bool: ...
