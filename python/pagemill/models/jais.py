"""Jais: GPT-2 with ALiBi in place of positions, gates, and scales of embeddings, scores and logits
(maximal update parametrization).

Weights: `transformer.h.<i>.{ln_1, attn.{c_attn,c_proj}, ln_2, mlp.{c_fc2,c_fc,c_proj}}`, of which
c_fc2 has the gates, and `transformer.{wte,ln_f}`; all but the table have biases, and matrices are
stored transposed.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.alibi import alibi_slopes
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import GPT2_KEYS, Renamed, flag, number, refuse
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops import ActivationKind
from pagemill.weights.json_file import shown

_KEYS = {key: name for key, name in GPT2_KEYS.items() if key != "hidden_act"}


class JaisModel(Decoder):
    """One Jais model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"transformer\.h\.\d+\.attn\.(masked_)?bias": "masks are not stored",
        r"transformer\.relative_pe\.slopes": "slopes are computed from the number of heads",
    }
    names = DecoderNames(
        embedding="transformer.wte",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        refuse(config, "alibi_scaling", "scale_attn_by_inverse_layer_idx", "add_cross_attention")
        for key, known in (("activation_function", "swiglu"), ("position_embedding_type", "alibi")):
            if config.get(key) != known:
                raise ModelConfigError(f"{key} is {shown(config.get(key))}; known: {known}")
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(Renamed(config, _KEYS), tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        transposed = flag(config, "weights_transposed", True)
        most = number(config, "alibi_bias_max", 8, least=1, most=64)
        self.attention_parts = AttentionParts(
            qkv=("c_attn",),
            output="c_proj",
            bias=True,
            output_bias=True,
            transposed=transposed,
            slopes=alibi_slopes(self.sizes.heads, most=most),
        )
        # Older checkpoints have other keys, which have precedence.
        by_dim = flag(config, "mup_scale_qk_dot_by_d", False)
        if flag(config, "scale_qk_dot_by_d", by_dim):
            self.attention_scale = 1 / self.sizes.head_dim
        self.mlp_parts = MlpParts(("c_fc2", "c_fc"), "c_proj", bias=True, transposed=transposed)
        self.activation = ActivationKind.SILU
        self.scales_media = True
        of_embeddings, alpha, width = (
            number(config, f"mup_{key}", 1.0)
            for key in ("embeddings_scale", "output_alpha", "width_scale")
        )
        self.embedding_scale = number(config, "embeddings_scale", of_embeddings)
        self.logits_scale = number(config, "width_scale", alpha * width)
