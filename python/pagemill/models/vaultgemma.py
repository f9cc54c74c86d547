"""VaultGemma: Gemma 2 without norms at the end of branches.

Weights as Llama's, with `pre_feedforward_layernorm` for the norm in front of the feed-forward
layer; norm weights are stored minus 1.
"""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import activation, number, windows_by_type
from pagemill.models.decoder import Decoder, DecoderNames


class VaultGemmaModel(Decoder):
    """One VaultGemma model."""

    names = DecoderNames(feed_forward_norm="pre_feedforward_layernorm")

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True)
        self.windows = windows_by_type(config, self.sizes.layers, pattern=2)
        self.attention_scale = number(config, "query_pre_attn_scalar", 256, least=1e-6) ** -0.5
        self.soft_cap = number(config, "attn_logit_softcapping", 0.0, least=0.0)
        self.logits_cap = number(config, "final_logit_softcapping", 0.0, least=0.0)
        self.norm_offset = number(config, "norm_weight_offset", 1.0)
        self.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh")
        self.embedding_scale = self.sizes.hidden_size**0.5  # as in Gemma
