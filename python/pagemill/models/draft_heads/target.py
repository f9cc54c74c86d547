"""The decoder that a head drafts for, whose embeddings and vocabulary projection it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self, cast, runtime_checkable

from pagemill.layers.base import Weights
from pagemill.models.base import Config, Model, ModelConfigError, StepInputs
from pagemill.models.decoder import Decoder
from pagemill.models.table import model_class
from pagemill.ops.trace import Tensor


@runtime_checkable
class LanguageModel(Protocol):
    """A model of which a decoder is a part: `text` is that, and `named` has the weights of the
    checkpoint under the names that it uses."""

    @property
    def text(self) -> Decoder: ...

    def named(self, weights: Weights) -> Weights: ...


def decoder_of(model: Model) -> Decoder | None:
    """The decoder that a model is or has; None if it has none."""
    if isinstance(model, Decoder):
        return model
    return model.text if isinstance(model, LanguageModel) else None


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """A decoder, and the configuration that has its rotary parameters; `whole` if it is the
    language model of a larger one."""

    decoder: Decoder
    rope_config: Config
    whole: LanguageModel | None = None

    @classmethod
    def of(cls, architecture: str, config: Config) -> Self:
        """That of a checkpoint.

        Raises:
            ModelConfigError: the architecture or one of its settings is not supported, or no head
                can draft for it.
        """
        model = model_class(architecture).from_config(config)
        if isinstance(model, Decoder):
            return cls(model, config)
        if not isinstance(model, LanguageModel):
            raise ModelConfigError(
                f"no head can draft for {architecture}; use another method of --speculative-config"
            )
        # Older configurations have the language model's keys among their own.
        text = config.get("text_config")
        return cls(model.text, cast("Config", text) if isinstance(text, Mapping) else config, model)

    def named(self, weights: Weights) -> Weights:
        """The weights of the checkpoint under the names that the decoder uses."""
        return weights if self.whole is None else self.whole.named(weights)

    def embed(self, weights: Weights, step: StepInputs) -> Tensor:
        """What the first layer reads of each token, [T, hidden size]."""
        return self.decoder.embed(self.named(weights), step)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        """The logits of normalized rows [L, hidden size], f32 [L, vocabulary]."""
        return self.decoder.logits(self.named(weights), rows)
