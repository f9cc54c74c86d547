"""Hy4: DeepSeek-V3.2's attention with sinks and a gate, of which layers may use what an earlier one
has chosen, DeepSeek V3's experts in all but the first layer, and several residual streams, of which
each has its share of a branch.

Weights: as DeepSeek-V3.2's, plus `self_attn.{sinks,gate_proj}`, `hc_{attn,ffn}_*` and
`model.hc_head.hc_*` (`layers.streams`); checkpoints have other names (`weights.published_names`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.layers.streams import beside, divide, join
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.compressed_keys import read_streams
from pagemill.models.config_keys import Defaults, number
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexed_decoder import IndexedDecoder
from pagemill.models.indexer_keys import layers_that_choose, read_indexer
from pagemill.models.latent_keys import read_latent
from pagemill.ops.trace import Tensor


class HyV4Model(IndexedDecoder):
    """One Hy4 model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"model\.mtp_layers\..*": "further tokens are not predicted",
    }

    def __init__(self, config: Config) -> None:
        latent = read_latent(config)
        super().__init__(config, eps=("rms_norm_eps", 1e-5), rotary_dim=latent.rope)
        layers, eps = self.sizes.layers, self.sizes.norm_eps
        self.mlp_parts = MlpParts()
        self.latent = replace(latent, sinks="sinks", gate="gate_proj")
        indexer = read_indexer(config, latent, heads=16)
        self.indexer = replace(indexer, rope_last=True, norm_eps=eps)
        types = ["full" if layer == 0 or layer % 4 == 1 else "shared" for layer in range(layers)]
        self.chooses = layers_that_choose(Defaults(config, {"indexer_types": types}), layers)
        self._streams = read_streams(config, eps)
        if self._streams.count < 2:
            raise ModelConfigError("hc_mult must be at least 2 in this family")
        self._magnitude = number(config, "hc_magnitude", 2.0, least=1e-3)
        self.is_sparse = sparse_layers(config, layers, dense=1)
        experts = read_grouped_experts(config, self.activation, count=256, size=768)
        self.experts = replace(experts, limit=number(config, "swiglu_limit", 10.0, least=0.0))

    def hidden_by(
        self, weights: Weights, inputs: StepInputs, rotary: Sequence[Rotary | None]
    ) -> Tensor:
        x = divide(self.embed(weights, inputs), self._streams)

        def layer(index: int, x: Tensor) -> Tensor:
            return self.layer(weights, index, x, rotary[index])

        x = stack(weights, x, self.sizes.layers, layer)
        x = join(weights, "model.hc_head.hc", x, self._streams)
        return self.norm(weights, self.names.norm, x)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """The streams x [T, count * H] -> those behind a layer."""
        prefix, names, streams = self.prefix(layer), self.names, self._streams

        def attend(x: Tensor) -> Tensor:
            x = self.norm(weights, f"{prefix}.{names.attention_norm}", x)
            return self.attention(weights, layer, x, rotary)

        def feed(x: Tensor) -> Tensor:
            x = self.norm(weights, f"{prefix}.{names.feed_forward_norm}", x)
            return self.feed_forward(weights, layer, x)

        x = beside(weights, f"{prefix}.hc_attn", x, streams, self._magnitude, attend)
        return beside(weights, f"{prefix}.hc_ffn", x, streams, self._magnitude, feed)
