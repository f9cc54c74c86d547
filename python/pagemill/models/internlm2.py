"""InternLM2 and 2.5: Llama with q, k and v in one matrix, KV head by KV head.

Weights: `model.layers.<i>.{attention_norm, attention.{wqkv,wo}, ffn_norm,
feed_forward.{w1,w3,w2}}` (gate, up, down), `model.{tok_embeddings,norm}`, `output` unless tied;
wqkv has for each KV head the rows of its queries, key and value. Reward models have `v_head`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import flag
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor


class InternLm2Model(Decoder):
    """One InternLM2 model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"output\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
    }
    names = DecoderNames(
        embedding="model.tok_embeddings",
        head="output",
        attention_norm="attention_norm",
        attention="attention",
        feed_forward_norm="ffn_norm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        bias = flag(config, "bias", True)
        self.attention_parts = AttentionParts(
            qkv=("wqkv",), by_head=True, output="wo", bias=bias, output_bias=bias
        )
        self.mlp_parts = MlpParts(up=("w1", "w3"), down="w2")

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        if weights.has("v_head.weight"):
            return linear(weights, "v_head", rows, (labels,), dtype="f32")
        return super().classify_tokens(weights, rows, labels)
