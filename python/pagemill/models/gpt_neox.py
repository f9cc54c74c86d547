"""GPT-NeoX (Pythia, StableLM alpha): both branches read a layer norm of the same x; rotary pairs on
a part of each head, no gates.

Weights: `gpt_neox.layers.<i>.{input_layernorm, attention.{query_key_value,dense},
post_attention_layernorm, mlp.{dense_h_to_4h,dense_4h_to_h}}`, `gpt_neox.{embed_in,
final_layer_norm}`, `embed_out`; query_key_value has for each head the rows of q, k and v; all of
the layers have biases.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import Renamed, activation, flag
from pagemill.models.decoder import Decoder, DecoderNames


class GptNeoxModel(Decoder):
    """One GPT-NeoX model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"embed_out\.weight": IGNORED_IN_DECODERS[r"lm_head\.weight"],
        r"gpt_neox\.layers\.\d+\.attention\.(masked_)?bias": "masks are not stored",
    }
    names = DecoderNames(
        embedding="gpt_neox.embed_in",
        layers="gpt_neox.layers",
        norm="gpt_neox.final_layer_norm",
        head="embed_out",
        attention="attention",
    )

    def __init__(self, config: Config) -> None:
        # Older configurations have another name for the rotary base.
        keys = {"rope_theta": "rotary_emb_base"} if "rotary_emb_base" in config else {}
        config = Renamed(config, keys, {"rotary_pct": 0.25})
        super().__init__(config, eps=("layer_norm_eps", 1e-5))
        self.layer_norms = True
        self.parallel_norms = flag(config, "use_parallel_residual", True)
        bias = flag(config, "attention_bias", True)
        self.attention_parts = AttentionParts(
            qkv=("query_key_value",),
            by_head=flag(config, "qkv_by_head", True),
            output="dense",
            bias=bias,
            output_bias=bias,
        )
        self.mlp_parts = MlpParts(
            up=("dense_h_to_4h",), down="dense_4h_to_h", gated=False, bias=True
        )
        self.activation = activation(config, "hidden_act", "gelu")
