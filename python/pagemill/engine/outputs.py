"""What the engine hands to its callers: per-choice deltas of token ids, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt


class EngineError(Exception):
    """A refusal or failure of one request.

    `code` is a name of the closed vocabulary of cc/base/status.h ("INVALID_ARGUMENT", ...);
    `message` is one sentence a person can act on; `param` names the request field where known;
    `retry_after_s` is when a retry makes sense, 0 if that is not known.
    """

    def __init__(
        self, code: str, message: str, param: str | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


def ended_by_operator() -> EngineError:
    """Of an aborted request that has no use for a part of its output."""
    return EngineError("UNAVAILABLE", "The operator has ended the request; send it again.")


class TokenLogprobs(Protocol):
    """Log probabilities at one position: natural log, of the unmodified distribution."""

    @property
    def token_id(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class ChoiceOutput(msgspec.Struct):
    """What one choice of a request produced since the last time it was taken.

    `token_ids` holds every new token, the one that stopped the choice included. `token_times` and,
    if requested, `logprobs` run parallel to it. `prompt_logprobs[i]` belongs to prompt token
    `i + 1` and comes with the first output. `finish_reason` is None until the last output, of
    a turn if there are several. Times are `time.monotonic()`.
    """

    index: int
    token_ids: list[int]
    token_times: list[float]
    """When each token reached Python."""
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    pooled: np.ndarray | None = None
    error: EngineError | None = None
    kv_transfer_params: dict[str, str] = {}
    """Of the KV connector, for the engine that continues the prompt; with the last output."""
    num_evicted_tokens: int = 0
    """Prompt tokens whose KV had been cached and was evicted; this and the next with the last
    output."""
    num_draft_steps: int = 0
    """Steps that verified drafts."""
    num_draft_tokens: int = 0
    """Drafts that were verified, and below those of them that were accepted."""
    num_accepted_draft_tokens: int = 0
    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    weight_versions: Sequence[tuple[int, str]] = ()
    """Versions of the weights, each with the index of the first token that was sampled with them;
    with the last output, once weights have got a version."""
    routed_experts: npt.NDArray[np.uint16] | None = None
    """[tokens, layers, choices] in one row, of all tokens but the last; with the last output."""
    created: float = 0.0
    """When the latest part of this output reached Python."""

    def one_by_one(self) -> Sequence[ChoiceOutput]:
        """The same output in parts of one token; the end of the choice comes with the last part."""
        last = len(self.token_ids) - 1
        if last < 1:
            return (self,)
        parts = [
            ChoiceOutput(
                self.index,
                [token],
                [self.token_times[at]],
                None if self.logprobs is None else [self.logprobs[at]],
                self.prompt_logprobs if at == 0 else None,
                num_cached_tokens=self.num_cached_tokens,
                created=self.token_times[at],
            )
            for at, token in enumerate(self.token_ids[:last])
        ]
        parts.append(
            msgspec.structs.replace(
                self,
                token_ids=self.token_ids[last:],
                token_times=self.token_times[last:],
                logprobs=None if self.logprobs is None else self.logprobs[last:],
                prompt_logprobs=None,
            )
        )
        return parts
