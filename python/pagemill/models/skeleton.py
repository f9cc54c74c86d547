"""The smallest decoder that works: copy it to start a family (`docs/add_a_model.md`).

One attention head of rotary attention and a gated MLP for each layer, RMS norms before both, the
embedding as head. It has no entry in `table.py`; its test builds and runs it.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention
from pagemill.layers.base import Weights
from pagemill.layers.mlp import mlp
from pagemill.layers.rotary import Rotary
from pagemill.models.base import Config
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor


class SkeletonModel(Decoder):
    """One model of the family. Its only state is the configuration."""

    names = DecoderNames(embedding="embed", layers="layers", norm="norm")

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        sizes, prefix = self.sizes, self.prefix(layer)
        assert rotary is not None
        # 1. Attention: project, rotate, attend over the layer's cache, project back.
        shape = attention.divide(weights, sizes.attention(), f"{prefix}.o")
        y = self.norm(weights, f"{prefix}.norm1", x)
        names = (f"{prefix}.q", f"{prefix}.k", f"{prefix}.v")
        q, k, v = attention.project_qkv(weights, names, y, shape)
        q, k = rotary(q, k)
        y = attention.attend(q, k, v, shape, f"kv{layer}")
        x = ops.add(x, attention.output(weights, f"{prefix}.o", y, shape, sizes.hidden_size))
        # 2. MLP.
        y = self.norm(weights, f"{prefix}.norm2", x)
        kind = ops.ActivationKind.SILU
        return ops.add(x, mlp(weights, prefix, y, sizes.intermediate_size, kind))
