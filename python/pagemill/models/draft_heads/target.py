"""The decoder that a head drafts for, whose embeddings and vocabulary projection it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.decoder import Decoder
from pagemill.models.draft_heads.base import HeadInputs
from pagemill.models.language_part import LanguagePart
from pagemill.models.table import model_class
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """A decoder and its configuration; `part` if it is the language model of a larger one."""

    decoder: Decoder
    config: Config
    part: LanguagePart | None = None

    @classmethod
    def of(cls, architecture: str, config: Config) -> Self:
        """That of a checkpoint.

        Raises:
            ModelConfigError: the architecture or one of its settings is not supported, or no head
                can draft for it.
        """
        model = model_class(architecture).from_config(config)
        if isinstance(model, LanguagePart):
            return cls(model.text, model.text_config, model)
        if not isinstance(model, Decoder):
            raise ModelConfigError(
                f"no head can draft for {architecture}; use another method of --speculative-config"
            )
        return cls(model, config)

    def named(self, weights: Weights) -> Weights:
        """The weights of the checkpoint under the names that the decoder uses."""
        return weights if self.part is None else self.part.named(weights)

    def embed(self, weights: Weights, inputs: HeadInputs) -> Tensor:
        """The embeddings of the tokens, [T, hidden size]."""
        step = StepInputs(inputs.token_ids, inputs.positions)
        return self.decoder.embed(self.named(weights), step)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        """The logits of normalized rows [L, hidden size], f32 [L, vocabulary]."""
        return self.decoder.logits(self.named(weights), rows)
