"""Nomic BERT: BERT with rotary positions; the first ones with gates and no biases, the second with
experts in some layers.

Weights of experts: `encoder.layers.<i>.mlp.{router.layer, experts.mlp.{w1,w2}, experts.bias}`, of
which w2 is transposed, and the bias is added once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, choose, run_experts, sum_of_ranks
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import (
    GPT2_KEYS,
    Renamed,
    flag,
    make_rotary_table,
    number,
    positive_int,
    refuse,
)
from pagemill.models.encoders.encoder import Encoder, EncoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_BIASES = ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")
_ACTIVATIONS = {"swiglu": "silu", "gelu": "gelu"}


class NomicBertModel(Encoder):
    """One Nomic BERT encoder."""

    base_prefix = "nomic_bert."
    names = EncoderNames(
        norm="emb_ln",
        layers="encoder.layers",
        qkv=("attn.Wqkv",),
        attended="attn.out_proj",
        attended_norm="norm1",
        down="mlp.fc2",
        down_norm="norm2",
    )

    def __init__(self, config: Config) -> None:
        biases = {flag(config, key, False) for key in _BIASES}
        if len(biases) > 1:
            raise ModelConfigError(f"{', '.join(_BIASES)} must be alike in Nomic BERT")
        self._experts = None
        self._turned = flag(config, "weights_transposed", True)
        kind = config.get("activation_function", "swiglu")
        config = _renamed(config)
        super().__init__(config)
        self.bias = biases.pop()
        self.gated = kind == "swiglu"
        table = make_rotary_table(config, self.sizes.head_dim)
        self.rotary = (table,) * self.sizes.layers
        self._every = int(number(config, "moe_every_n_layers", 0, least=0))
        if self._every:
            if self.gated:
                raise ModelConfigError("experts of Nomic BERT have no gates")
            count = positive_int(config, "num_experts")
            chosen = Renamed(config, {"num_experts_per_tok": "moe_top_k"})
            routing = read_routing(chosen, count, 1, renormalize=False)
            size = self.sizes.intermediate_size
            self._experts = Experts(count, size, self.activation, routing, gate=None)

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        name = f"{self.prefix(layer)}.mlp"
        if self._experts is not None and layer % self._every == 1:
            return self._sum_of_experts(weights, name, x, self._experts)
        up = ("fc12", "fc11") if self.gated else ("fc1",)
        parts = MlpParts(up, "fc2", gated=self.gated, bias=self.bias)
        return mlp(weights, name, x, self.sizes.intermediate_size, self.activation, parts)

    def _sum_of_experts(self, weights: Weights, name: str, x: Tensor, experts: Experts) -> Tensor:
        """x [T, H] -> the weighted sum of each token's experts, and the bias, [T, H]."""
        chosen = choose(weights, f"{name}.router.layer", x, experts)
        modules, count, inner = f"{name}.experts.mlp", experts.count, experts.intermediate
        own, part = weights.shard.experts(count), weights.shard.expert_features(inner)
        up = weights.stack(modules, "w1", (count, inner, x.width), matrices=own, rows=part)
        shape = (count, x.width, inner)
        if self._turned:
            down = weights.turned_stack(f"{modules}.w2", shape, matrices=own, columns=part)
        else:
            down = weights.stack(modules, "w2", shape, matrices=own, columns=part)
        y = sum_of_ranks(weights, run_experts(x, chosen, [up], down, experts))
        if not weights.has(f"{name}.experts.bias"):  # which GGUF files lack
            return y
        return ops.add(y, weights.vector(f"{name}.experts.bias", x.width))

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        names = (self.name("pooler.dense"), "classifier")
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH, names)


def _renamed(config: Config) -> Mapping[str, Any]:
    """The configuration by `transformers`' keys; the first checkpoints have those of GPT-2."""
    if "n_embd" not in config:
        return config
    refuse(config, "prenorm", "rotary_emb_interleaved")
    kind = config.get("activation_function")
    act = _ACTIVATIONS.get(kind) if isinstance(kind, str) else None
    if act is None or config.get("rotary_emb_fraction", 1) != 1:
        raise ModelConfigError(
            f"activation_function is {shown(kind)}; Nomic BERT needs swiglu or gelu, and"
            " rotary_emb_fraction 1"
        )
    names = GPT2_KEYS | {"layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base"}
    if config.get("max_trained_positions") is not None:
        names |= {"max_position_embeddings": "max_trained_positions"}
    kept = ("vocab_size", "type_vocab_size", "num_experts", "moe_top_k", "moe_every_n_layers")
    renamed = {key: config[name] for key, name in names.items() if name in config}
    return {
        **{key: config[key] for key in kept if key in config},
        **renamed,
        "hidden_act": act,
    }
