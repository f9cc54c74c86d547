"""Whether a head was made for its target."""

from __future__ import annotations

from pagemill.models.base import ModelConfigError
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.weights.source import ModelSource


def require_vocabulary(source: ModelSource, vocab_size: int, target: DraftTarget) -> None:
    """
    Raises:
        ModelConfigError: the head was made for another vocabulary than the target's.
    """
    expected = target.decoder.sizes.vocab_size
    if vocab_size != expected:
        raise ModelConfigError(
            f"{source.path} has a vocabulary of {vocab_size} tokens, the model of {expected}; use a"
            " head that was made for this model"
        )


def require_hidden_size(source: ModelSource, hidden_size: int, target: DraftTarget) -> None:
    """
    Raises:
        ModelConfigError: the head was made for hidden states of another size than the target's.
    """
    expected = target.decoder.sizes.hidden_size
    if hidden_size != expected:
        raise ModelConfigError(
            f"{source.path} reads hidden states of {hidden_size} numbers, the model's have"
            f" {expected}; use a head that was made for this model"
        )
