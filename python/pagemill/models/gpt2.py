"""GPT-2: learned positions, layer norms, GELU without gates, matrices that are stored transposed.

Weights: `transformer.h.<i>.{ln_1, attn.{c_attn,c_proj}, ln_2, mlp.{c_fc,c_proj}}`,
`transformer.{wte,wpe,ln_f}`; all but the tables have biases. c_attn has the columns of q, k and v;
the head is tied.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import GPT2_KEYS, Renamed, activation, flag, refuse
from pagemill.models.decoder import Decoder, DecoderNames


class Gpt2Model(Decoder):
    """One GPT-2 model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"transformer\.h\.\d+\.attn\.(masked_)?bias": "masks are not stored",
    }
    names = DecoderNames(
        embedding="transformer.wte",
        positions="transformer.wpe",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "scale_attn_by_inverse_layer_idx", "add_cross_attention")
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(Renamed(config, GPT2_KEYS), tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        if not flag(config, "scale_attn_weights", True):
            self.attention_scale = 1.0
        transposed = flag(config, "weights_transposed", True)
        self.attention_parts = AttentionParts(
            qkv=("c_attn",), output="c_proj", bias=True, output_bias=True, transposed=transposed
        )
        self.mlp_parts = MlpParts(
            up=("c_fc",), down="c_proj", gated=False, bias=True, transposed=transposed
        )
        self.activation = activation(config, "activation_function", "gelu_new")
