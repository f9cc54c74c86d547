"""BLOOM: ALiBi in place of positions, layer norms, also of the embeddings, GELU without gates.

Weights: `transformer.h.<i>.{input_layernorm, self_attention.{query_key_value,dense},
post_attention_layernorm, mlp.{dense_h_to_4h,dense_4h_to_h}}`,
`transformer.{word_embeddings,word_embeddings_layernorm,ln_f}`; query_key_value has for each head
the rows of q, k and v; all but the table have biases; the head is tied.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import Config, StepInputs
from pagemill.models.config_keys import Renamed, flag, positive_int, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops import ActivationKind
from pagemill.ops.trace import Tensor

_KEYS = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embed",
    "max_position_embeddings": "seq_length",
}
_DEFAULTS = {"max_position_embeddings": 2048}


class BloomModel(Decoder):
    """One BLOOM model."""

    names = DecoderNames(
        embedding="transformer.word_embeddings",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention="self_attention",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "apply_residual_connection_post_layernorm", "slow_but_exact")
        # Some have the newer names of two sizes.
        keys = {new: old for new, old in _KEYS.items() if new not in config}
        eps = ("layer_norm_epsilon", 1e-5)
        config = Renamed(config, keys, _DEFAULTS)
        slopes = alibi_slopes(positive_int(config, "num_attention_heads"))
        super().__init__(config, tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",),
            by_head=flag(config, "qkv_by_head", True),
            output="dense",
            bias=True,
            output_bias=True,
            slopes=slopes,
        )
        self.mlp_parts = MlpParts(
            up=("dense_h_to_4h",), down="dense_4h_to_h", gated=False, bias=True
        )
        self.activation = ActivationKind.GELU_TANH

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        x = super().embed(weights, inputs)
        return self.norm(weights, "transformer.word_embeddings_layernorm", x)
