"""DFlash (arXiv 2602.06036): layers of Qwen3 that fill a block of masked tokens in one pass.

The queries are the last known token and a mask in place of each draft, which see each other, with
embeddings and vocabulary projection of the target. Of the tokens before them every layer has keys
and values alone, which it makes of the same features: the target's hidden states behind some of its
layers, joined by a projection and normalized.

Weights: `fc`, which the target's program reads (draft_states.py), `hidden_norm` behind it,
`layers.<i>` as Qwen3's, and `norm`. Layers that the configuration lists as sliding are causal and
have a window, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelConfigError
from pagemill.models.config_keys import as_list, number, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.draft_heads import eagle_files, head_sizes
from pagemill.models.draft_heads.base import (
    HeadInputs,
    HeadResults,
    HeadWeights,
    MaskQueries,
    bind_head_rotary,
    mask_token,
)
from pagemill.models.draft_heads.draft_states import MAX_STATES, Projection
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.models.multimodal.mrope import without_sections
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown
from pagemill.weights.source import ModelSource

_ARCHITECTURES = ("DFlashDraftModel", "Qwen3DFlashDraftModel")
_CONFIG = "dflash_config"
_BLOCK_SIZE = 16  # that the authors' code assumes
# Keys of variants with other layers, and the value that means none.
_VARIANTS: Mapping[str, Any] = {
    "use_aux_hidden_state": True,
    "use_swa": False,
    "add_swa_attention_sink_bias": False,
    "attention_value_scale": 1,
    "sample_from_anchor": False,
}


class _DflashLayers(Decoder):
    """The layers; queries of those that are not `causal` see the whole block."""

    names = eagle_files.NAMES

    def __init__(self, source: ModelSource) -> None:
        super().__init__(without_sections(source.config))
        eagle_files.read_layers(self, source)
        stated = _causal(source)
        self._causal = [bool(w) if stated is None else stated for w in self.windows]
        both_ways = zip(self.windows, self._causal, strict=True)
        if any(window and not causal for window, causal in both_ways):
            raise ModelConfigError(
                f"{source.path}: layers with windows that are not causal are not supported; use a"
                " drafter whose sliding layers are causal"
            )

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        name = f"{self.prefix(layer)}.{self.names.attention}"
        shape = self.sizes.attention(window=self.windows[layer])
        shape = replace(shape, sees_items=not self._causal[layer])
        return rotary_attention(weights, name, x, shape, rotary, f"kv{layer}", self.attention_parts)

    def block_layer(
        self,
        weights: Weights,
        layer: int,
        x: Tensor,
        rows: DecoderRows,
        features: Tensor,
        rotary: Rotary | None,
    ) -> Tensor:
        """Queries x [text_rows, H] and features of the tokens before them [media_rows, H] ->
        [text_rows, H]."""
        prefix = self.prefix(layer)
        y = self.norm(weights, f"{prefix}.{self.names.attention_norm}", x)
        attended = self.attention(weights, layer, rows.joined(y, features), rotary)
        x = self.add(x, ops.select_rows(attended, rows.text))
        y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        return self.add(x, self.feed_forward(weights, layer, y))


class DflashHead:
    """One DFlash drafter."""

    token_ids: tuple[int, ...] = ()
    ignored: Mapping[str, str] = {
        r".*\.rotary_emb\.inv_freq": "frequencies are computed from the configuration",
        r"fc\..*": "the target's program reads it",
    }

    def __init__(self, source: ModelSource, target: DraftTarget, num_drafts: int) -> None:
        """`source` is one of `eagle_files.as_heads_read`; it drafts up to `num_drafts` tokens.

        Raises:
            ModelConfigError: it is no such drafter, none for this target, or for fewer drafts.
        """
        _require_dflash(source)
        self._config = source.config
        self._layers = _DflashLayers(source)
        sizes = self._layers.sizes
        head_sizes.require_hidden_size(source, sizes.hidden_size, target)
        head_sizes.require_vocabulary(source, sizes.vocab_size, target)
        stated = _stated(source)
        self.masks: MaskQueries | None = MaskQueries(
            mask_token(source, stated, ("mask_token_id",), sizes.vocab_size), block=True
        )
        block_size = positive_int(stated, "block_size", _BLOCK_SIZE)
        if block_size == 1:
            raise ModelConfigError(
                f"{source.path} has blocks of 1 token, without a place for drafts; use a drafter"
                " whose block_size is larger"
            )
        if num_drafts >= block_size:
            raise ModelConfigError(
                f"{source.path} has blocks of {block_size} tokens, one known and the others drafts:"
                f" set num_speculative_tokens of --speculative-config to {block_size - 1} or less"
            )
        self._embedding_scale = number(stated, "input_embedding_scale", 1.0)
        self._target = target
        self.width = sizes.hidden_size
        self.vocab_size = sizes.vocab_size

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor:
        own, layers, step = weights.own, self._layers, inputs.step
        assert inputs.marked is not None and step.text_rows is not None
        rows = DecoderRows.of(own, step.text_rows, inputs.marked, step.token_ids, self.width)
        features = layers.norm(own, "hidden_norm", inputs.states)
        rotary = bind_head_rotary(
            own, layers.rotary[0], step, self._config, interleaved=layers.interleaved
        )

        def layer(index: int, x: Tensor) -> Tensor:
            return layers.block_layer(own, index, x, rows, features, rotary)

        x = ops.select_rows(self._embed(weights.target, step.token_ids), rows.text)
        return rows.spread(stack(own, x, layers.sizes.layers, layer))

    def _embed(self, of_target: Weights, token_ids: Tensor) -> Tensor:
        """The rows of the target's table, without what the target itself does with them."""
        decoder = self._target.decoder
        shape = (decoder.sizes.vocab_size, decoder.sizes.hidden_size)
        named, name = self._target.named(of_target), decoder.names.embedding
        return embedding.embedding(named, name, token_ids, shape, scale=self._embedding_scale)

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults:
        # With the target's factor and cap of logits, which the configuration may repeat: the most
        # likely token depends on neither.
        normalized = self._layers.norm(weights.own, self._layers.names.norm, rows)
        return HeadResults(self._target.logits(weights.target, normalized), rows)


def projection(source: ModelSource) -> Projection:
    """What a DFlash drafter reads of its target; `source` is one of `eagle_files.as_heads_read`.

    Raises:
        ModelConfigError: the configuration states no layers, or others than it can.
    """
    _require_dflash(source)
    stated = _stated(source).get("target_layer_ids")
    layers = as_list(stated) or []
    if not 1 <= len(layers) <= MAX_STATES or any(type(layer) is not int for layer in layers):
        raise ModelConfigError(
            f"{source.path}: target_layer_ids of {_CONFIG} must list 1 to {MAX_STATES} layers, it"
            f" is {shown(stated)}"
        )
    # Of layers whose results are read.
    entered = tuple(layer + 1 for layer in layers)
    width = positive_int(source.config, "hidden_size")
    return Projection(source, width, entered, between=True)


def _stated(source: ModelSource) -> Config:
    """The configuration, with the keys of `dflash_config` in place of others of the same name."""
    nested = source.config.get(_CONFIG)
    if not isinstance(nested, Mapping):
        return source.config
    return {**source.config, **cast("Config", nested)}


def _require_dflash(source: ModelSource) -> None:
    if source.architecture not in _ARCHITECTURES:
        raise ModelConfigError(
            f"{source.path} is no DFlash drafter that is supported: its architecture is"
            f" {shown(source.architecture)}, not {_ARCHITECTURES[0]}"
        )
    stated = _stated(source)
    for key, default in _VARIANTS.items():
        value = stated.get(key)
        if value is not None and value != default:
            raise ModelConfigError(
                f"{source.path}: {key} = {shown(value)} is not supported; use a drafter without it"
            )


def _causal(source: ModelSource) -> bool | None:
    """Whether queries see only what is in front of them, in all layers; None if it depends on the
    layer."""
    both = (source.config.get("is_causal"), _stated(source).get("causal"))
    values = [value for value in both if value is not None]
    if any(type(value) is not bool or value != values[0] for value in values):
        raise ModelConfigError(
            f"{source.path}: is_causal is {shown(both[0])} and causal is {shown(both[1])}; they"
            " must be true or false, and the same if both are there"
        )
    return values[0] if values else None
