"""BART and the families that came from it: mBART, PLBart, Marian, Pegasus, Blenderbot, Blenderbot
Small, M2M-100 and NLLB.

Weights: `model.shared`, `model.{encoder,decoder}` (bart_stack.py), `final_logits_bias`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import flag, positive_int, token_id
from pagemill.models.encoder_decoder.bart_stack import BART, MBART, BartForm, BartStack
from pagemill.models.encoder_decoder.text_front import text_traits
from pagemill.ops.trace import Tensor

_WORDS = "model.shared"
_BIAS = "final_logits_bias"


class BartModel:
    """One model of the family of `form`."""

    ignored: Mapping[str, str] = {
        r"model\.(encoder|decoder)\.embed_tokens\.weight": "the shared embedding",
        r"lm_head\.weight": "the head is the shared embedding",
        r"model\.(encoder|decoder)\.embed_positions\.weights": "positions are computed",
    }
    form = BART

    def __init__(self, config: Config) -> None:
        self._config = config
        form = self.form_of(config)
        self._encoder = BartStack(config, form, "encoder", "model.encoder", _WORDS)
        self._decoder = BartStack(config, form, "decoder", "model.decoder", _WORDS)
        if not flag(config, "tie_word_embeddings", True) or not flag(
            config, "share_encoder_decoder_embeddings", True
        ):
            raise ModelConfigError(
                "only models with one embedding of encoder, decoder and head are supported"
            )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    def form_of(self, config: Config) -> BartForm:
        """The form of a model with this configuration."""
        del config
        return self.form

    @property
    def traits(self) -> ModelTraits:
        side = self._decoder
        return text_traits(
            self._config, side.vocab_size, side.hidden_size, side.positions, side.positions
        )

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        return self._encoder.encoded(weights, inputs.media.rows, inputs.positions)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._decoder.decoded(weights, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        words = (self._decoder.vocab_size, self._decoder.hidden_size)
        part = weights.shard.part(words[0])
        matrix = weights.matrix(f"{_WORDS}.weight", words, rows=part)
        bias = None
        if weights.has(_BIAS):
            bias = weights.vector(_BIAS, part.total, part=part, stored=(1, part.total))
        y = ops.linear(rows, matrix, bias, dtype="f32")
        return y if part.whole else ops.all_gather(y, part.total, shard=weights.shard)


class MBartModel(BartModel):
    """mBART, mBART-50."""

    form = MBART


class PlBartModel(BartModel):
    """PLBart, of programming languages."""

    form = replace(BART, scaled=True)


class BlenderbotModel(BartModel):
    """Blenderbot."""

    form = BartForm(norm_first=True, learned=True)


class BlenderbotSmallModel(BartModel):
    """Blenderbot of 90M."""

    form = BartForm(embedding_norm=True, places_behind_norm=True, learned=True)


class MarianModel(BartModel):
    """Marian, OPUS-MT."""

    form = BartForm()


class PegasusModel(BartModel):
    """Pegasus."""

    form = BartForm(norm_first=True)


class M2M100Model(BartModel):
    """M2M-100, NLLB-200. Positions begin behind the padding token's id."""

    form = BartForm(norm_first=True, last_wave_ends=True, activation="relu", scaled=True)

    def form_of(self, config: Config) -> BartForm:
        padding = token_id(config, "pad_token_id", positive_int(config, "vocab_size"))
        return replace(self.form, first_position=padding + 1)
