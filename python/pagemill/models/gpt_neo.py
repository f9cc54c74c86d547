"""GPT-Neo: learned positions, layer norms, sliding windows on every other layer, scores that are
not divided.

Weights: `transformer.h.<i>.{ln_1, attn.attention.{q_proj,k_proj,v_proj,out_proj}, ln_2,
mlp.{c_fc,c_proj}}`, `transformer.{wte,wpe,ln_f}`; norms, out_proj and mlp have biases.
"""

from __future__ import annotations

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import Renamed, activation, as_list, positive_int
from pagemill.models.decoder import Decoder, DecoderNames

_KEYS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_act": "activation_function",
}


class GptNeoModel(Decoder):
    """One GPT-Neo model."""

    names = DecoderNames(
        embedding="transformer.wte",
        positions="transformer.wpe",
        layers="transformer.h",
        norm="transformer.ln_f",
        attention_norm="ln_1",
        attention="attn.attention",
        feed_forward_norm="ln_2",
    )

    def __init__(self, config: Config) -> None:
        eps = ("layer_norm_epsilon", 1e-5)
        super().__init__(Renamed(config, _KEYS), tied_by_default=True, eps=eps, mlp_ratio=4)
        self.layer_norms = True
        self.rotary = (None,) * self.sizes.layers
        window = positive_int(config, "window_size", 256)
        kinds = _layer_kinds(config, self.sizes.layers)
        self.windows = [window if kind == "local" else 0 for kind in kinds]
        self.attention_scale = 1.0
        self.attention_parts = AttentionParts(output="out_proj", output_bias=True)
        self.mlp_parts = MlpParts(up=("c_fc",), down="c_proj", gated=False, bias=True)
        self.activation = activation(config, "activation_function", "gelu_new")


def _layer_kinds(config: Config, layers: int) -> list[str]:
    """`attention_types` lists kinds in turn, and how often they are repeated."""
    kinds: list[str] = []
    for entry in as_list(config.get("attention_types")) or []:
        turn, count = (as_list(entry) or [None, None])[:2]
        if not as_list(turn) or type(count) is not int or not 0 < count <= layers:
            break
        kinds += [str(kind) for kind in turn] * count
    if len(kinds) != layers or not set(kinds) <= {"global", "local"}:
        raise ModelConfigError(f"attention_types must list {layers} layers, global or local")
    return kinds
