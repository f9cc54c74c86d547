"""EAGLE-3 (arXiv 2503.01840): layers of Llama, Qwen3 or DeepSeek V3, these without experts, on
hidden states from three places of the target, joined by a projection. The first layer's attention
reads the embedding of a token beside the state of the token before it. The vocabulary may be a part
of the target's.

Weights: `fc`, which the target's program reads (draft_states.py), and if the head has them
`fc_norm.<i>` for each of the states or `input_norm` for all together; `layers.<i>` as those of
these families, the first with `hidden_norm` and with an attention that reads twice as wide rows;
`norm`; `lm_head`, with `d2t`, the distance from each of its rows to the target's token, and
`embed_tokens`, unless they are the target's.

P-EAGLE: a head that gives all drafts in one pass, from masks behind the last known token. In place
of states of the target masks have `mask_hidden`, joined states that the same projection reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.decoder import rotary_attention
from pagemill.layers.latent import latent_attention
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import as_list, epsilon, flag, positive_int
from pagemill.models.decoder import Decoder
from pagemill.models.draft_heads import eagle_files, head_sizes
from pagemill.models.draft_heads.base import (
    PARALLEL_KEYS,
    HeadInputs,
    HeadResults,
    HeadWeights,
    MaskQueries,
    bind_head_rotary,
    mask_token,
)
from pagemill.models.draft_heads.draft_states import MAX_STATES, STATE_NORM, Projection
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.models.latent_keys import read_latent
from pagemill.models.multimodal.mrope import without_sections
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown
from pagemill.weights.read import read_integers
from pagemill.weights.source import ModelSource

_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


class _Eagle3Layers(Decoder):
    """The layers, the first of which is `first` instead of `layer`."""

    names = eagle_files.NAMES

    def __init__(self, config: Config) -> None:
        latent = None if config.get("kv_lora_rank") is None else read_latent(config)
        super().__init__(config, rotary_dim=None if latent is None else latent.rope)
        self._norm_before_residual = flag(config, "norm_before_residual", False)
        self._latent = latent
        if latent is not None:
            self.interleaved = flag(config, "rope_interleave", True)

    def first(
        self, weights: Weights, token: Tensor, state: Tensor, rotary: Rotary | None
    ) -> Tensor:
        """Embeddings and states of tokens before, [T, H] each -> [T, H]."""
        prefix = self.prefix(0)
        token = self.norm(weights, f"{prefix}.{self.names.attention_norm}", token)
        normalized = self.norm(weights, f"{prefix}.hidden_norm", state)
        attended = self.attention(weights, 0, ops.concat(token, normalized), rotary)
        x = self.add(normalized if self._norm_before_residual else state, attended)
        y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        return self.add(x, self.feed_forward(weights, 0, y))

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H], or [T, 2 H] in the first layer -> [T, H]."""
        name, cache = f"{self.prefix(layer)}.{self.names.attention}", f"kv{layer}"
        width, latent = self.sizes.hidden_size, self._latent
        if latent is not None:
            return latent_attention(weights, name, x, latent, rotary, cache, width=width)
        shape, parts = self.sizes.attention(window=self.windows[layer]), self.attention_parts
        return rotary_attention(weights, name, x, shape, rotary, cache, parts, width=width)


class Eagle3Head:
    """One EAGLE-3 head."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"(fc|fc_norm\.\d+|input_norm)\..*": "the target's program reads it",
        r"d2t|t2d": "the vocabulary is data of the runner",
    }

    def __init__(self, source: ModelSource, target: DraftTarget, *, parallel: bool = False) -> None:
        """`source` is one of `eagle_files.as_heads_read`; if `parallel`, it drafts with masks.

        Raises:
            ModelConfigError: it is no EAGLE-3 head, or none for this target.
            WeightsError: its vocabulary cannot be read.
        """
        if not source.has(eagle_files.OF_EAGLE3):
            raise ModelConfigError(
                f"{source.path} is no head of EAGLE-3, whose first layer has a hidden_norm: for one"
                ' of EAGLE use "method": "eagle"'
            )
        self._config = source.config
        self._layers = _Eagle3Layers(without_sections(source.config))
        eagle_files.read_layers(self._layers, source)
        sizes = self._layers.sizes
        head_sizes.require_vocabulary(source, sizes.vocab_size, target)
        states = positive_int(source.config, "target_hidden_size", sizes.hidden_size)
        head_sizes.require_hidden_size(source, states, target)
        self._target = target
        self._passes_normalized = flag(source.config, "norm_output", False)
        self.width = sizes.hidden_size
        has_head = source.has(f"{eagle_files.NAMES.head}.weight")
        if not has_head or not source.has(f"{eagle_files.NAMES.embedding}.weight"):
            head_sizes.require_hidden_size(source, sizes.hidden_size, target)
        self.vocab_size = positive_int(source.config, "draft_vocab_size", sizes.vocab_size)
        self.token_ids = _token_ids(source, self.vocab_size, sizes.vocab_size)
        if self.token_ids and not has_head:
            raise ModelConfigError(
                f"{source.path} has a vocabulary of its own, d2t, but no lm_head; use a complete"
                " checkpoint"
            )

        self.masks: MaskQueries | None = None
        self._projection = projection(source)
        if parallel:
            self.masks = _masks(source, sizes.vocab_size)
        elif source.has(f"{eagle_files.MASK_STATE}.weight"):
            raise ModelConfigError(
                f"{source.path} drafts in parallel (P-EAGLE): add"
                ' "parallel_drafting": true to --speculative-config'
            )

    def _states(self, own: Weights, inputs: HeadInputs) -> Tensor:
        """Those of the tokens before, with that of masks in their places."""
        if self.masks is None:
            return inputs.states
        assert inputs.marked is not None
        layers = self._projection.layers or (0, 0, 0)
        shape = (1, len(layers) * self._target.decoder.sizes.hidden_size)
        table = own.matrix(f"{eagle_files.MASK_STATE}.weight", shape)
        rows = ops.embedding(inputs.marked, table, outside=0)  # the only row, for each mask
        return ops.scatter_rows(inputs.states, self._projection.of_joined(own, rows), inputs.marked)

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor:
        own, layers = weights.own, self._layers
        if own.has(f"{layers.names.embedding}.weight"):
            token = layers.embed(own, self._readable(inputs.step))
        else:
            token = self._target.embed(weights.target, inputs.step)
        rotary = bind_head_rotary(
            own, layers.rotary[0], inputs.step, self._config, interleaved=layers.interleaved
        )

        def layer(index: int, x: Tensor) -> Tensor:
            if index == 0:
                return layers.first(own, token, x, rotary)
            return layers.layer(own, index, x, rotary)

        return stack(own, self._states(own, inputs), layers.sizes.layers, layer)

    def _readable(self, step: StepInputs) -> StepInputs:
        """`step` without embeddings of media if the head's own have another width."""
        own, of_target = self.width, self._target.decoder.sizes.hidden_size
        return step if own == of_target else replace(step, media=None)

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults:
        names = self._layers.names
        normalized = self._layers.norm(weights.own, names.norm, rows)
        if weights.own.has(f"{names.head}.weight"):
            logits = embedding.logits(weights.own, normalized, self.vocab_size, names.head)
        else:
            logits = self._target.logits(weights.target, normalized)
        return HeadResults(logits, normalized if self._passes_normalized else rows)


def _masks(source: ModelSource, vocab_size: int) -> MaskQueries:
    masks = MaskQueries(mask_token(source, source.config, PARALLEL_KEYS, vocab_size))
    if not source.has(f"{eagle_files.MASK_STATE}.weight"):
        raise ModelConfigError(
            f"{source.path} has no {eagle_files.MASK_STATE}, the states of masks; use a head that"
            " was trained to draft in parallel (P-EAGLE)"
        )
    if source.has(f"{STATE_NORM}.0.weight"):
        raise ModelConfigError(
            f"{source.path}: heads with {STATE_NORM} that draft in parallel are not supported"
        )
    return masks


def projection(source: ModelSource) -> Projection:
    """What an EAGLE-3 head reads of its target; `source` is one of `eagle_files.as_heads_read`.

    Raises:
        ModelConfigError: the configuration states other layers than it can.
    """
    config = source.config
    nested = config.get("eagle_config")
    offset = 0
    stated = config.get(_LAYER_IDS)
    if isinstance(nested, Mapping):
        inner = cast("Mapping[str, Any]", nested)
        if inner.get("use_aux_hidden_state") is False:
            raise ModelConfigError(
                f"{source.path}: use_aux_hidden_state = false is not supported; use a head that"
                " reads the hidden states of three layers"
            )
        if stated is None:
            # Here they are the layers whose results are read.
            stated, offset = inner.get(_LAYER_IDS), 1
    width, eps = positive_int(config, "hidden_size"), epsilon(config, "rms_norm_eps", 1e-6)
    if stated is None:
        return Projection(source, width, eps=eps)
    layers = as_list(stated) or []
    if not 1 <= len(layers) <= MAX_STATES or any(type(layer) is not int for layer in layers):
        raise ModelConfigError(
            f"{source.path}: {_LAYER_IDS} must list 1 to {MAX_STATES} layers, it is {shown(stated)}"
        )
    return Projection(source, width, tuple(layer + offset for layer in layers), eps=eps)


def _token_ids(source: ModelSource, count: int, vocab_size: int) -> tuple[int, ...]:
    """The target's token of each of the `count` rows of the head; empty if all are their own."""
    if not source.has("d2t"):
        if count != vocab_size:
            raise ModelConfigError(
                f"{source.path} has a vocabulary of {count} tokens of {vocab_size}, and no d2t that"
                " says which; use a complete checkpoint"
            )
        return ()
    distances = source.tensor("d2t")
    if distances.shape != (count,):
        raise ModelConfigError(
            f"{source.path}: d2t has the shape {list(distances.shape)}, draft_vocab_size is {count}"
        )
    ids = np.arange(count) + read_integers(distances).astype(np.int64)
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise ModelConfigError(f"{source.path}: d2t leaves the vocabulary of {vocab_size} tokens")
    if count == vocab_size and (ids == np.arange(count)).all():
        return ()
    return tuple(ids.tolist())
