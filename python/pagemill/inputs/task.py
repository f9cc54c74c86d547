"""What a loaded model is for, and what front ends need to know of vectors and classes."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
import numpy as np

Activation = Literal["identity", "relu", "sigmoid", "softmax"]
"""What turns a classifier's logits into scores."""


class Task(StrEnum):
    """What a model is loaded for; a program has one. One that generates may do so from text, from
    speech, or from both."""

    GENERATE = "generate"
    TRANSCRIBE = "transcribe"
    EMBED = "embed"
    CLASSIFY = "classify"
    TOKEN_EMBED = "token_embed"
    TOKEN_CLASSIFY = "token_classify"
    MEDIA_EMBED = "media_embed"
    """Of encoders without their language model: a row for each token of an image or audio."""

    @property
    def pools(self) -> bool:
        """Whether it gives rows of numbers, and no text."""
        return self not in (Task.GENERATE, Task.TRANSCRIBE)

    @property
    def classifies(self) -> bool:
        """Whether a row has a number for each class."""
        return self in (Task.CLASSIFY, Task.TOKEN_CLASSIFY)

    @property
    def by_token(self) -> bool:
        """Whether there is a row for each token of a prompt, not one for all."""
        return self in (Task.TOKEN_EMBED, Task.TOKEN_CLASSIFY, Task.MEDIA_EMBED)


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a model gives, of `width` numbers."""

    task: Task
    width: int
    pooling: str = "all"
    """What makes a row of the vectors of tokens: "first", "last", "mean", "splade", or "all" if
    each has one."""
    normalizes: bool = False
    """Whether vectors have the length 1."""
    sizes: tuple[int, ...] | None = None
    """Sizes to which vectors may be shortened; () is any, None is none."""
    labels: tuple[str, ...] = ()
    """Of classes, as many as `width`."""
    activation: Activation = "identity"
    """What rows of a classifier do not have yet."""
    logit_mean: float = 0.0
    logit_sigma: float = 1.0
    """Rows of a classifier are logits less their mean, divided by their deviation: calibrated."""
    skipped: int = 0
    """How many tokens in front have no row, of those that have one each."""
    step_tag: int | None = None
    """The only token that has rows then; None if all have."""

    @property
    def sparse(self) -> bool:
        """Whether vectors have a weight for each token of the vocabulary, most of them 0."""
        return self.pooling == "splade"

    @property
    def _calibrates(self) -> bool:
        return (self.logit_mean, self.logit_sigma) != (0.0, 1.0)

    def rows(self, numbers: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
        """The row of a text, float32 [width], or those of its tokens [tokens, width], from what
        the engine computed for `token_ids`; those of a classifier calibrated."""
        numbers = (numbers - self.logit_mean) / self.logit_sigma if self._calibrates else numbers
        if not self.task.by_token:
            return numbers.reshape(self.width)
        rows = numbers.reshape(-1, self.width)
        return rows[self.skipped :] if self.step_tag is None else rows[token_ids == self.step_tag]
