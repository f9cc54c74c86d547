"""DeepSeek-V4: several residual streams; attention over the latest tokens and over rows that each
stand for 4 or 128 tokens; experts that the first layers choose by the token alone.

Weights: `model.layers.<i>.{attn_norm,ffn_norm}`, `attn.*` as `layers.compressed` has them,
`hc_{attn,ffn}_*` as `layers.streams` has them, `ffn.gate` with `bias`, or `tid2eid`, the experts of
each token id; `ffn.experts.<i>` and `ffn.shared_experts` with `w1` (gates), `w2` (down) and `w3`;
`model.{embed_tokens,norm}`, `model.hc_head.hc_*`, `head`; `mtp.<i>` are those of a draft head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.compressed import compressed_attention
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.moe import Experts, choose, chosen_experts, route
from pagemill.layers.rotary import Rotary, RotaryTable, bind_rotaries
from pagemill.layers.stack import stack
from pagemill.layers.streams import around, divide, join
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.compressed_keys import (
    attention_types,
    read_attention,
    read_compressions,
    read_streams,
    with_rotary_parameters,
)
from pagemill.models.config_keys import (
    SLIDING,
    Renamed,
    as_list,
    flag,
    layer_count,
    number,
    positive_int,
    refuse,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.models.expert_keys import read_routing
from pagemill.models.mtp_layer import DEEPSEEK_V4_MTP
from pagemill.ops import ActivationKind, Scoring
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_HASHED, _ROUTED, _HASHED_BY_DEFAULT = "hash_moe", "moe", 3
_WIDTH = 2048  # of an expert


class DeepseekV4Model(Decoder):
    """One DeepSeek-V4 model."""

    mtp = DEEPSEEK_V4_MTP
    names = DecoderNames(
        head="head",
        attention_norm="attn_norm",
        attention="attn",
        feed_forward_norm="ffn_norm",
        feed_forward="ffn",
    )
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"head\.weight": "no head if vectors are pooled",
        r"(model\.)?mtp\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        names = {"intermediate_size": "moe_intermediate_size"}
        config = Renamed(config, names, {"intermediate_size": _WIDTH})
        config = with_rotary_parameters(config)
        refuse(config, "attention_bias", "mlp_bias")
        layers = layer_count(config)
        self._types = attention_types(config, layers)
        rotary_of = ["main" if kind == SLIDING else "compress" for kind in self._types]
        super().__init__(config, layer_types=rotary_of)
        self.interleaved = True
        self._shape = read_attention(config, self.sizes)
        self._rotated = [2 * len(table.inv_freq) for table in self.rotary if table is not None]
        self._compressions = read_compressions(config, max(self._rotated))
        self.streams = read_streams(config, self.sizes.norm_eps)
        self._experts = _read_experts(config, self.activation)
        self._hashed = _hashed_layers(config, layers)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        rotaries = self.rotaries(weights, inputs.positions)
        x = divide(self.embed(weights, inputs), self.streams)

        def layer(i: int, x: Tensor) -> Tensor:
            return self.streams_layer(weights, i, x, rotaries[i], inputs.token_ids)

        x = stack(weights, x, self.sizes.layers, layer)
        x = join(weights, "model.hc_head.hc", x, self.streams)
        return self.norm(weights, self.names.norm, x)

    def rotaries(self, weights: Weights, positions: Tensor) -> list[tuple[Rotary, Rotary]]:
        """The rotation of each layer, and its inverse for the results of the attention."""
        tables = [table for table in self.rotary if table is not None]
        tables += [RotaryTable(tuple(-f for f in t.inv_freq), t.mscale) for t in tables]
        bound = bind_rotaries(weights, tables, positions, interleaved=self.interleaved)
        found: list[tuple[Rotary, Rotary]] = []
        for i, rotated in enumerate(self._rotated):
            there, back = bound[i], bound[self.sizes.layers + i]
            assert there is not None and back is not None
            begin = self.sizes.head_dim - rotated
            found.append((replace(there, begin=begin), replace(back, begin=begin)))
        return found

    def streams_layer(
        self,
        weights: Weights,
        layer: int,
        x: Tensor,
        rotaries: tuple[Rotary, Rotary],
        token_ids: Tensor,
    ) -> Tensor:
        """The streams x [T, count * H] -> those behind a layer."""
        prefix = self.prefix(layer)

        def attend(x: Tensor) -> Tensor:
            return compressed_attention(
                weights,
                f"{prefix}.{self.names.attention}",
                self.norm(weights, f"{prefix}.{self.names.attention_norm}", x),
                self._shape,
                rotaries,
                self._compressions[self._types[layer]],
                f"kv{layer}",
            )

        def feed(x: Tensor) -> Tensor:
            x = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
            hashed = token_ids if self._hashed[layer] else None
            return self._feed_forward(weights, f"{prefix}.{self.names.feed_forward}", x, hashed)

        x = around(weights, f"{prefix}.hc_attn", x, self.streams, attend)
        return around(weights, f"{prefix}.hc_ffn", x, self.streams, feed)

    def _feed_forward(
        self, weights: Weights, name: str, x: Tensor, token_ids: Tensor | None
    ) -> Tensor:
        """x [T, H] -> [T, H]; with token ids, experts are those that a table has for them."""
        experts = self._experts
        if token_ids is None:
            chosen = route(weights, name, x, experts)
        else:
            shape = (self.sizes.vocab_size, experts.routing.choices)
            table = weights.integers(f"{name}.gate.tid2eid", shape)
            chosen = choose(weights, f"{name}.gate", x, experts, table=(token_ids, table))
        y = chosen_experts(weights, name, x, chosen, experts)
        parts, shared = experts.shared_parts, f"{name}.{experts.shared_name}"
        return ops.add(y, mlp(weights, shared, x, experts.shared, experts.kind, parts))


def _read_experts(config: Config, kind: ActivationKind) -> Experts:
    if not flag(config, "norm_topk_prob", True):
        raise ModelConfigError("norm_topk_prob must be true in this family")
    scoring = config.get("scoring_func") or "sqrtsoftplus"
    if scoring != "sqrtsoftplus":
        raise ModelConfigError(f"scoring_func {shown(scoring)} is not sqrtsoftplus")
    count = positive_int(config, "n_routed_experts", 256)
    size = positive_int(config, "moe_intermediate_size", _WIDTH)
    limit = number(config, "swiglu_limit", 10.0, least=1e-3)
    routing = read_routing(config, count, 6, renormalize=True)
    return Experts(
        count,
        size,
        kind,
        replace(
            routing,
            scoring=Scoring.SQRT_SOFTPLUS,
            scale=number(config, "routed_scaling_factor", 1.5),
        ),
        gate="w1",
        up="w3",
        down="w2",
        bias="gate.bias",
        shared=size * positive_int(config, "n_shared_experts", 1),
        shared_parts=MlpParts(("w1", "w3"), "w2", limit=limit),
        limit=limit,
    )


def _hashed_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has its experts from a table: from `mlp_layer_types`, or as many as
    `num_hash_layers` at the start."""
    value = config.get("mlp_layer_types")
    if value is None:
        hashed = number(config, "num_hash_layers", _HASHED_BY_DEFAULT, least=0)
        return [layer < hashed for layer in range(layers)]
    types = as_list(value) or []
    if len(types) != layers or not all(kind in (_HASHED, _ROUTED) for kind in types):
        raise ModelConfigError(f"mlp_layer_types must list {layers} layers, {_HASHED} or {_ROUTED}")
    return [kind == _HASHED for kind in types]
