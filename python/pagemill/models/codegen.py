"""CodeGen: GPT-J whose matrix of q, v and k is in four parts of a quarter of the heads each.

Weights: `transformer.h.<i>.{ln_1, attn.{qkv_proj,out_proj}, mlp.{fc_in,fc_out}}`,
`transformer.{wte,ln_f}`, `lm_head`; norms, mlp and head have biases.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill import ops
from pagemill.layers import attention
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import GPT2_KEYS, Renamed, activation, rotary_dim
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_PARTS = 4  # the processors that it was trained on


class CodeGenModel(Decoder):
    """One CodeGen model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"transformer\.h\.\d+\.attn\.causal_mask": "masks are not stored",
    }
    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
    )

    def __init__(self, config: Config) -> None:
        config = Renamed(config, GPT2_KEYS)
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(config, eps=eps, mlp_ratio=4, rotary_dim=rotary_dim(config, 64))
        self.layer_norms = True
        if self.sizes.heads % _PARTS:
            raise ModelConfigError(f"n_head must be a multiple of {_PARTS} in this family")
        self.interleaved = True
        self.parallel = True
        self.mlp_parts = MlpParts(up=("fc_in",), down="fc_out", gated=False, bias=True)
        self.activation = activation(config, "hidden_act", "gelu_new")
        self.head_bias = True

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name, shape = f"{self.prefix(layer)}.attn", self.sizes.attention()
        heads = (shape.heads, shape.head_dim)
        size = shape.heads * shape.head_dim // _PARTS
        fused = linear(weights, f"{name}.qkv_proj", x, (_PARTS, 3 * size))
        q, vk = ops.split(fused, size, row_shapes=(heads, None))
        v, k = ops.split(vk, size, row_shapes=(heads, heads))
        attended = attention.attend(*rotary(q, k), v, shape, f"kv{layer}", weights.kv_scales(name))
        return attention.output(weights, f"{name}.out_proj", attended, shape, x.width)
