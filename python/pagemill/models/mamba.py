"""Mamba and Falcon-Mamba: state-space layers only; the latter normalizes B, C and what dt is made
of.

Weights: `backbone.layers.<i>.{norm, mixer.*}` (`layers.selective`), `backbone.{embeddings,norm_f}`,
`lm_head` unless tied.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.selective import SelectiveShape, StepNorms, selective_mixer
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import epsilon, flag, positive_int
from pagemill.models.state_space_keys import check_silu, step_rank
from pagemill.ops.trace import Tensor

_EMBEDDING = "backbone.embeddings"
# For models that state none: states have no positions, but tables of checkpoints have a size.
_MAX_MODEL_LEN = 2**17


class MambaModel:
    """One Mamba or Falcon-Mamba model."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        check_silu(config)
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "hidden_size")
        self._layers = positive_int(config, "num_hidden_layers")
        self._max_model_len = positive_int(config, "max_position_embeddings", _MAX_MODEL_LEN)
        self._eps = epsilon(config, "layer_norm_epsilon", 1e-5)
        self._tied = flag(config, "tie_word_embeddings", True)
        norms = None
        if config.get("mixer_rms_eps") is not None:
            norms = StepNorms(epsilon(config, "mixer_rms_eps", 1e-6), weights=False)
        self._mixer = SelectiveShape(
            channels=_channels(config, self._hidden_size),
            states=positive_int(config, "state_size", 16),
            rank=step_rank(config, "time_step_rank", self._hidden_size),
            taps=positive_int(config, "conv_kernel", 4),
            bias=flag(config, "use_bias", False),
            conv_bias=flag(config, "use_conv_bias", True),
            norms=norms,
        )

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
        return ops.add(x, selective_mixer(weights, f"{prefix}.mixer", normed, self._mixer, layer))


def _channels(config: Config, hidden_size: int) -> int:
    if config.get("intermediate_size") is not None:
        return positive_int(config, "intermediate_size")
    return positive_int(config, "expand", 2) * hidden_size
