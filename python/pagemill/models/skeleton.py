"""The smallest decoder that works: copy it to start a family (`docs/add_a_model.md`).

One attention head of rotary attention and a gated MLP for each layer, RMS norms before both, the
embedding as head. It has no entry in `table.py`; its test builds and runs it.
"""

from __future__ import annotations

from typing import Self

from pagemill import ops
from pagemill.layers import attention, embedding, mlp, norm
from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, bind_rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelTraits, StepInputs
from pagemill.models.config_keys import DecoderSizes, make_rotary_table
from pagemill.ops.trace import Tensor


class SkeletonModel:
    """One model of the family. Its only state is the configuration."""

    ignored = IGNORED_IN_DECODERS

    def __init__(self, config: Config) -> None:
        self._sizes = DecoderSizes.read(config, tied_by_default=True)
        self._rotary = make_rotary_table(config, self._sizes.head_dim)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self._sizes.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        sizes = self._sizes
        table = (sizes.vocab_size, sizes.hidden_size)
        rotary = bind_rotary(weights, "inv_freq", self._rotary, inputs.positions, interleaved=False)
        x = embedding.embedding(weights, "embed", inputs.token_ids, table)
        x = stack(weights, x, sizes.layers, lambda i, x: self._layer(weights, i, x, rotary))
        return norm.rms_norm(weights, "norm", x, sizes.rms_norm_eps)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return embedding.logits(weights, rows, self._sizes.vocab_size, tied_to="embed")

    def _layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        sizes, prefix = self._sizes, f"layers.{layer}"
        # 1. Attention: project, rotate, attend over the layer's cache, project back.
        shape = attention.divide(weights, sizes.attention(), f"{prefix}.o")
        y = norm.rms_norm(weights, f"{prefix}.norm1", x, sizes.rms_norm_eps)
        names = (f"{prefix}.q", f"{prefix}.k", f"{prefix}.v")
        q, k, v = attention.project_qkv(weights, names, y, shape)
        q, k = rotary(q, k)
        y = attention.attend(q, k, v, shape, f"kv{layer}")
        x = ops.add(x, attention.output(weights, f"{prefix}.o", y, shape, sizes.hidden_size))
        # 2. MLP.
        y = norm.rms_norm(weights, f"{prefix}.norm2", x, sizes.rms_norm_eps)
        kind = ops.ActivationKind.SILU
        return ops.add(x, mlp.gated_mlp(weights, prefix, y, sizes.intermediate_size, kind))
