"""ERNIE 4.5 with experts: interleaved rotary pairs, one switch for all biases, and a router whose
bias balances the experts.

Weights as Llama's; in layers with experts `mlp.gate`, `mlp.moe_statics.e_score_correction_bias`
(one row), `mlp.experts.<i>` and `mlp.shared_experts`; `model.mtp_<part>.<i>` are those of a draft
head, without experts.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill.layers.decoder import AttentionParts
from pagemill.layers.mlp import MlpParts
from pagemill.layers.moe import Experts
from pagemill.models.base import IGNORED_IN_DECODERS, Config
from pagemill.models.config_keys import Renamed, flag, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_routing
from pagemill.models.mtp_layer import ERNIE_MTP

_KEYS = {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"}


class Ernie45MoeModel(Decoder):
    """One ERNIE 4.5 model with experts."""

    mtp = ERNIE_MTP
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.mtp_.*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, tied_by_default=True, eps=("rms_norm_eps", 1e-5))
        self.interleaved = True
        bias = flag(config, "use_bias", False)
        self.head_bias = bias
        self.attention_parts = AttentionParts(bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(bias=bias)
        count = positive_int(config, "moe_num_experts", 64)
        size = positive_int(config, "moe_intermediate_size", 1536)
        self.experts = Experts(
            count,
            size,
            self.activation,
            read_routing(Renamed(config, _KEYS), count, 6, renormalize=True),
            bias="moe_statics.e_score_correction_bias",
            shared=size * int(number(config, "moe_num_shared_experts", 2, least=0)),
            shared_parts=self.mlp_parts,
        )
        every = positive_int(config, "moe_layer_interval", 1)
        first = number(config, "moe_layer_start_index", 1, least=0)
        last = number(config, "moe_layer_end_index", -1, least=-1)
        last = self.sizes.layers if last == -1 else last
        self.is_sparse = [
            (layer + 1) % every == 0 and first <= layer <= last
            for layer in range(self.sizes.layers)
        ]
