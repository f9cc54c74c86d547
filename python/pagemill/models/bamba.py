"""Bamba: Llama with Mamba-2 layers in place of all but a few attentions, whose rotary pairs are on
half of each head.

Weights: `model.layers.<i>.{input_layernorm, pre_ff_layernorm, feed_forward.{gate,up,down}_proj}`
and either `self_attn.{q,k,v,o}_proj` or `mamba.*` (`layers.state_space`);
`model.{embed_tokens,final_layernorm}`, `lm_head` unless tied.
"""

from __future__ import annotations

from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary
from pagemill.layers.state_space import mixer
from pagemill.models.base import Config
from pagemill.models.config_keys import Defaults, layer_numbers, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.state_space_keys import read_mixer
from pagemill.ops.trace import Tensor


class BambaModel(Decoder):
    """One Bamba model."""

    names = DecoderNames(
        norm="model.final_layernorm",
        feed_forward_norm="pre_ff_layernorm",
        feed_forward="feed_forward",
    )

    def __init__(self, config: Config) -> None:
        # Older checkpoints do not state it.
        config = Defaults(config, {"partial_rotary_factor": 0.5})
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self._attentions = layer_numbers(config, "attn_layer_indices")
        inner = positive_int(config, "mamba_expand", 2) * self.sizes.hidden_size
        self._mixer = read_mixer(config, inner)

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if layer in self._attentions:
            return super().attention(weights, layer, x, rotary)
        name, eps = f"{self.prefix(layer)}.mamba", self.sizes.norm_eps
        return mixer(weights, name, x, self._mixer, eps, layer)
