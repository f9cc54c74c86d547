"""Mamba-2: state-space layers only.

Weights: `backbone.layers.<i>.{norm, mixer.*}` (`layers.state_space`), `backbone.{embeddings,
norm_f}`, `lm_head` unless tied.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.stack import stack
from pagemill.layers.state_space import MixerShape, mixer
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import epsilon, flag, positive_int
from pagemill.models.state_space_keys import check_mixer
from pagemill.ops.trace import Tensor

_EMBEDDING = "backbone.embeddings"
# For models that state none: states have no positions, but tables of checkpoints have a size.
_MAX_MODEL_LEN = 2**17


class Mamba2Model:
    """One Mamba-2 model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "hidden_size")
        self._layers = positive_int(config, "num_hidden_layers")
        self._max_model_len = positive_int(config, "max_position_embeddings", _MAX_MODEL_LEN)
        self._eps = epsilon(config, "layer_norm_epsilon", 1e-5)
        self._tied = flag(config, "tie_word_embeddings", False)
        bias = flag(config, "use_bias", False)
        self._mixer = MixerShape(
            heads=positive_int(config, "num_heads", 128),
            head_dim=positive_int(config, "head_dim", 64),
            groups=positive_int(config, "n_groups", 8),
            states=positive_int(config, "state_size", 128),
            taps=positive_int(config, "conv_kernel", 4),
            bias=bias,
            output_bias=bias,
            conv_bias=flag(config, "use_conv_bias", True),
        )
        check_mixer(config, self._mixer)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return ModelTraits(
            self._vocab_size, self._hidden_size, self._max_model_len, causal=True, generates=True
        )

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        table = (self._vocab_size, self._hidden_size)
        x = embedding.embedding(weights, _EMBEDDING, inputs.token_ids, table)
        x = inputs.with_media(x)
        x = stack(weights, x, self._layers, lambda i, x: self._layer(weights, i, x))
        return norm.rms_norm(weights, "backbone.norm_f", x, self._eps)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        head = _EMBEDDING if self._tied else "lm_head"
        return embedding.logits(weights, rows, self._vocab_size, head)

    def _layer(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        prefix = f"backbone.layers.{layer}"
        normed = norm.rms_norm(weights, f"{prefix}.norm", x, self._eps)
        mixed = mixer(weights, f"{prefix}.mixer", normed, self._mixer, self._eps, layer)
        return ops.add(x, mixed)
