"""PhiMoE (Phi-3.5-MoE): layer norms, one switch for all biases of the attention, and experts that
SparseMixer chooses and weighs.

Weights as Mixtral's; norms have biases, and so has `lm_head` if `lm_head_bias`.
"""

from __future__ import annotations

from dataclasses import replace

from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import flag, number, positive_int, window_or_full
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops import Scoring


class PhiMoeModel(Decoder):
    """One PhiMoE model."""

    names = DecoderNames(feed_forward="block_sparse_moe")

    def __init__(self, config: Config) -> None:
        super().__init__(config, eps=("rms_norm_eps", 1e-5))
        self.layer_norms = True
        self.windows = (window_or_full(config),) * self.sizes.layers
        self.head_bias = flag(config, "lm_head_bias", False)
        count = positive_int(config, "num_local_experts", 16)
        jitter = number(config, "router_jitter_noise", 0.01, least=0.0)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            replace(
                read_routing(config, count, 2, renormalize=False),
                scoring=Scoring.SPARSE_MIXER,
                tolerance=2 * jitter,
            ),
            gate="w1",
            up="w3",
            down="w2",
        )
