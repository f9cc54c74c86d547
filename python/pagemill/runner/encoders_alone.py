"""The encoders of a model without its language model, whose weights are not read: a prompt is the
tokens of one media item, and has the rows that the encoder makes of it.

model = EncodersAlone.of(model, source.architecture)
tail = encoder_tail()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.inputs.task import Task
from pagemill.layers.base import Weights
from pagemill.models.base import (
    Config,
    Model,
    ModelConfigError,
    ModelEncoder,
    ModelTraits,
    StepInputs,
    encoders_of,
)
from pagemill.ops.trace import Tensor
from pagemill.runner.media_embeds import media_embeds_traits
from pagemill.runner.tail import Tail

FLAG = "--mm-encoder-only"


class EncodersAlone:
    """An `EncodersModel` (base.py) that gives each token the embedding that stands for it, and
    zeros to others."""

    ignored: Mapping[str, str] = {".*": "the weights of the language model are not read"}

    def __init__(self, encoders: Sequence[ModelEncoder], traits: ModelTraits) -> None:
        self.encoders = encoders
        self.traits = traits

    @classmethod
    def of(cls, model: Model, architecture: str) -> Self:
        """The encoders of `model`.

        Raises:
            ModelConfigError: it has none, or they make more than embeddings.
        """
        traits, encoders = model.traits, encoders_of(model)
        media = media_embeds_traits([each.traits for each in encoders], architecture, FLAG)
        # Its program reads neither positions nor ends of items.
        without = {"token_grid": False, "item_ends": False}
        return cls(
            [ModelEncoder(replace(each, **without), encoder) for each, encoder in encoders],
            ModelTraits(
                vocab_size=traits.vocab_size,
                hidden_size=media.width,
                max_model_len=traits.max_model_len,
                causal=True,
                generates=False,
            ),
        )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        raise ModelConfigError(f"no configuration is of encoders alone: see {FLAG}")

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        zeros = weights.constant("no_embedding", [[0.0] * self.traits.hidden_size])
        return inputs.with_media(ops.embedding(inputs.token_ids, zeros, outside=0))

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("encoders alone have no language model head")


def encoder_tail() -> Tail:
    """Rows as they are, one for each token."""
    return Tail(Task.MEDIA_EMBED, "all")


def item_tokens(model: EncodersAlone, step_tokens: int) -> int:
    """Of the largest item, if one that may be of any size has at most `step_tokens`."""
    stated = [each.most_tokens or each.tokens for each, _ in model.encoders]
    by_step = any(each.any_size and not each.most_tokens for each, _ in model.encoders)
    return max([*stated, step_tokens] if by_step else stated)
