"""Mistral Large 4 (text): latent attention to tokens that an indexer chooses, with learned
frequencies and queries that grow with the position; layers without rotary positions, and layers
that attend to the latents of an earlier one.

Weights as GLM-5's, without latents of queries (`self_attn.q_proj`) and without
`mlp.gate.e_score_correction_bias`; also `self_attn.softmax_scaling.{scale,bias}`, of each head,
`self_attn.indexer.{q_input_norm, softmax_scaling.{scale,bias}}`, `model.rotary_emb.alpha`. Layers
that attend to others' latents have neither `kv_a_proj_with_mqa` nor `kv_a_layernorm`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.head_growth import grow_heads
from pagemill.layers.indexer import Indexer, chosen_tokens
from pagemill.layers.latent import GROUP, LatentShape, projections
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import CHOSEN, layer_values
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import as_list, make_rotary_table, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.expert_keys import read_grouped_experts, sparse_layers
from pagemill.models.indexer_keys import layers_that_choose
from pagemill.models.latent_keys import read_latent
from pagemill.ops import Scoring
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_INDEX_EPS = 1e-6  # of the norm in front of the indexer's queries


class MistralLarge4Model(Decoder):
    """One Mistral Large 4 text model."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"mtp_dspark\..*": "drafts alone use it (mtp)",
    }

    def __init__(self, config: Config) -> None:
        shape = read_latent(config)
        super().__init__(config, rotary_dim=shape.rope, eps=("rms_norm_eps", 1e-5))
        layers = self.sizes.layers
        self._shape = replace(shape, query=None, eps=self.sizes.norm_eps)
        self._table = make_rotary_table(config, shape.rope)
        self._rotates = _layers_that_rotate(config, layers)
        self._sources = _sources(config, self._rotates)
        self.mlp_parts = MlpParts()
        dense = int(number(config, "first_k_dense_replace", 1, least=0))
        self.is_sparse = sparse_layers(config, layers, dense=dense)
        experts = read_grouped_experts(config, self.activation, count=128, size=6144)
        routing = replace(experts.routing, scoring=Scoring.SOFTMAX, renormalize=True)
        self.experts = replace(experts, bias=None, routing=routing)
        self.chooses = layers_that_choose(config, layers)
        self._indexer = Indexer(
            heads=positive_int(config, "index_n_heads", 32),
            size=_index_size(config, shape),
            rope=shape.rope,
            # A query sees no more tokens than there are positions.
            choices=min(positive_int(config, "index_topk", 2048), self.sizes.max_positions),
            interleaved=True,
            growth="softmax_scaling",
        )
        self.logits_cap = number(config, "final_logit_softcapping", 30.0, least=0.0)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        frequencies = weights.exponentials("model.rotary_emb.alpha", self._table.inv_freq)
        rotary = Rotary(inputs.positions, frequencies, self._table.mscale, interleaved=True)
        still = rotary.still()
        return self.hidden_by(weights, inputs, [rotary if r else still for r in self._rotates])

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        assert rotary is not None
        name, bias = f"{self.prefix(layer)}.{self.names.attention}", self.attention_parts.bias
        shape, rotates = self._shape, self._rotates[layer]
        out, nope = f"{name}.o_proj", shape.nope if rotates else shape.nope + shape.rope
        results = AttentionShape(shape.heads, shape.heads, shape.value, shape.scale)
        results = attention.divide(weights, results, out)
        heads = results.shard.part(shape.heads)
        q = linear(
            weights,
            f"{name}.q_proj",
            x,
            (heads.size, shape.nope + shape.rope),
            rows=heads.times(shape.nope + shape.rope),
        )
        q = grow_heads(weights, f"{name}.softmax_scaling", q, rotary.positions, heads)
        if rotates:
            q_nope, q_rope = ops.split(q, nope)
        else:
            # A row of the cache has as many elements in all layers; here the last ones are zeros.
            q_nope, q_rope = q, ops.scale(ops.split(q, shape.rope)[0], 0.0)
        chosen = self._chosen(weights, name, layer, x, rotary)
        source = self._sources[layer]
        if source == layer:
            self._write(weights, name, layer, x, rotary)
        cache = x.trace.declared_cache(f"kv{source}")
        keys, values = projections(weights, name, replace(shape, nope=nope), heads)
        absorbed = ops.head_linear(q_nope, keys, transposed=True)
        q_rope = rotary.queries(q_rope)
        attended = ops.latent_attention(absorbed, q_rope, cache, scale=shape.scale, chosen=chosen)
        attended = ops.head_linear(attended, values)
        return attention.output(weights, out, attended, results, x.width, bias=bias)

    def _write(self, weights: Weights, name: str, layer: int, x: Tensor, rotary: Rotary) -> None:
        """Stores the latents and rotated keys of a layer in a new cache."""
        shape, bias = self._shape, self.attention_parts.bias
        module, size = f"{name}.kv_a_proj_with_mqa", shape.latent
        total = size + shape.rope if self._rotates[layer] else size
        latent = linear(weights, module, x, (size,), bias=bias, rows=Part(0, size, total))
        if self._rotates[layer]:
            rows = Part(size, total, total)
            k_rope = linear(weights, module, x, (1, shape.rope), bias=bias, rows=rows)
            k_rope = rotary.queries(k_rope)
        else:
            some, _ = ops.split(latent, shape.rope, row_shapes=((1, shape.rope), None))
            k_rope = ops.scale(some, 0.0)
        latent = norm.rms_norm(weights, f"{name}.kv_a_layernorm", latent, shape.eps)
        row = (shape.latent + shape.rope, 1, shape.rope)
        cache = x.trace.cache(f"kv{layer}", x.trace.group(GROUP), row, layout="latent")
        ops.latent_write(latent, k_rope, cache)

    def _chosen(self, weights: Weights, name: str, layer: int, x: Tensor, rotary: Rotary) -> Tensor:
        """The tokens that the queries of a layer see: its indexer's choice, or the last one."""
        if not self.chooses[layer]:
            return list(layer_values(x.trace, CHOSEN).values())[-1]
        module = f"{name}.indexer"
        queries = norm.layer_norm(weights, f"{module}.q_input_norm", x, _INDEX_EPS)
        cache = f"index_kv{layer}"
        return chosen_tokens(weights, module, x, queries, self._indexer, rotary, cache)


def _index_size(config: Config, latent: LatentShape) -> int:
    size = positive_int(config, "index_head_dim", 128)
    if size <= latent.rope:
        raise ModelConfigError(
            f"index_head_dim must be above {latent.rope}, the elements that rotate; it is {size}"
        )
    return size


def _layers_that_rotate(config: Config, layers: int) -> Sequence[bool]:
    """Those with rotary positions, which `no_rope_layers` lists as 1; else all but every fourth."""
    listed = as_list(config.get("no_rope_layers"))
    if listed is None:
        return [(layer + 1) % 4 != 0 for layer in range(layers)]
    if len(listed) < layers or any(rotates not in (0, 1) for rotates in listed):
        raise ModelConfigError(
            f"no_rope_layers must list {layers} layers, 1 for rotary positions or 0; it is"
            f" {shown(listed)}"
        )
    return [bool(rotates) for rotates in listed[:layers]]


def _sources(config: Config, rotates: Sequence[bool]) -> Sequence[int]:
    """The layer whose latents each layer attends to, which attends to its own."""
    layers = len(rotates)
    sources = as_list(config.get("kv_source_layers"))
    if sources is None:
        return range(layers)
    fits = len(sources) == layers and all(
        type(source) is int
        and 0 <= source <= layer
        and sources[source] == source
        and rotates[source] == rotates[layer]
        for layer, source in enumerate(sources)
    )
    if not fits:
        raise ModelConfigError(
            f"kv_source_layers must list {layers} layers, for each itself or an earlier one that"
            f" attends to its own latents and rotates alike; it is {shown(sources)}"
        )
    return sources
