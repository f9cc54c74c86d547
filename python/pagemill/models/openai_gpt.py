"""GPT, the first: learned positions, layer norms after each sum, GELU without gates, matrices that
are stored transposed.

Weights: `transformer.h.<i>.{attn.{c_attn,c_proj}, ln_1, mlp.{c_fc,c_proj}, ln_2}`,
`transformer.{tokens_embed,positions_embed}`; all but the tables have biases. c_attn has the columns
of q, k and v; the head is tied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, StepInputs
from pagemill.models.config_keys import GPT2_KEYS, Renamed, activation
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

# "gelu" was its approximation before there were other names.
_ACTIVATIONS = {"gelu": "gelu_new"}


class OpenAiGptModel(Decoder):
    """One GPT model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"transformer\.h\.\d+\.attn\.bias": "masks are not stored",
        r"transformer\.position_ids": "positions are computed",
    }
    names = DecoderNames(
        embedding="transformer.tokens_embed",
        positions="transformer.positions_embed",
        layers="transformer.h",
        attention="attn",
    )

    def __init__(self, config: Config) -> None:
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(Renamed(config, GPT2_KEYS), tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        self.attention_parts = AttentionParts(
            qkv=("c_attn",), output="c_proj", bias=True, output_bias=True, transposed=True
        )
        self.mlp_parts = MlpParts(
            up=("c_fc",), down="c_proj", gated=False, bias=True, transposed=True
        )
        name = config.get("afn") or "gelu"
        known = _ACTIVATIONS.get(name, name) if isinstance(name, str) else name
        self.activation = activation({"afn": known}, "afn", "gelu")

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        x, layers = self.embed(weights, inputs), self.sizes.layers
        return stack(weights, x, layers, lambda i, x: self.layer(weights, i, x, rotary[i]))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        x = ops.add(x, self.attention(weights, layer, x, rotary))
        x = self.norm(weights, f"{prefix}.ln_1", x)
        x = ops.add(x, self.feed_forward(weights, layer, x))
        return self.norm(weights, f"{prefix}.ln_2", x)
