"""MiniCPM3: Llama with DeepSeek V2's latent attention, and scales of embeddings, branches and
logits that follow from the model's size.

Weights as Llama's, with DeepSeek-V2's in `self_attn`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.models.base import Config
from pagemill.models.config_keys import number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.latent_keys import read_latent


class MiniCpm3Model(Decoder):
    """One MiniCPM3 model."""

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(
            config, tied_by_default=True, eps=("rms_norm_eps", 1e-5), rotary_dim=latent.rope
        )
        sizes = self.sizes
        value = positive_int(config, "v_head_dim", sizes.hidden_size // sizes.heads)
        self.latent = replace(latent, value=value)
        self.embedding_scale = number(config, "scale_emb", 12)
        self.residual_scale = number(config, "scale_depth", 1.4) / sizes.layers**0.5
        self.logits_scale = number(config, "dim_model_base", 256, least=1) / sizes.hidden_size
