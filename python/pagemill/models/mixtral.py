"""Mixtral: Llama with experts in place of the feed-forward layers.

Weights as Llama's, with `block_sparse_moe.gate` (the router) and
`block_sparse_moe.experts.<i>.{w1,w3,w2}` (gate, up, down) for `mlp`, or one stacked tensor for all
experts.
"""

from __future__ import annotations

from pagemill.layers.moe import Experts
from pagemill.models.base import Config
from pagemill.models.config_keys import positive_int, window_or_full
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing


class MixtralModel(Decoder):
    """One Mixtral model."""

    names = DecoderNames(feed_forward="block_sparse_moe")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.windows = (window_or_full(config),) * self.sizes.layers
        count = positive_int(config, "num_local_experts", 8)
        self.experts = Experts(
            count,
            self.sizes.intermediate_size,
            self.activation,
            read_routing(config, count, 2, renormalize=True),
            gate="w1",
            up="w3",
            down="w2",
        )
