"""EAGLE (arXiv 2401.15077): layers of Llama or Qwen3 on a projection of a token's embedding beside
the final hidden state of the token before it; their result is the next state, and the target's head
makes logits of it.

Weights: `fc`, `layers.<i>` as Llama's or Qwen3's, the first without `input_layernorm`, and
`embed_tokens` unless it is the target's.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.rotary import Rotary
from pagemill.layers.stack import stack
from pagemill.models.base import IGNORED_IN_DECODERS, ModelConfigError
from pagemill.models.decoder import Decoder
from pagemill.models.draft_heads import eagle_files, head_sizes
from pagemill.models.draft_heads.base import (
    HeadInputs,
    HeadResults,
    HeadWeights,
    MaskQueries,
    bind_head_rotary,
)
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.models.multimodal.mrope import without_sections
from pagemill.ops.trace import Tensor
from pagemill.weights.source import ModelSource


class _EagleLayers(Decoder):
    """Llama's layers or Qwen3's; nothing is normalized in front of the first attention."""

    names = eagle_files.NAMES

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        if layer > 0:
            return super().layer(weights, layer, x, rotary)
        attended = self.add(x, self.attention(weights, layer, x, rotary))
        name = f"{self.prefix(layer)}.{self.names.feed_forward_norm}"
        y = self.norm(weights, name, attended)
        return self.add(attended, self.feed_forward(weights, layer, y))


class EagleHead:
    """One EAGLE head."""

    token_ids: tuple[int, ...] = ()
    masks: MaskQueries | None = None
    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
    }

    def __init__(self, source: ModelSource, target: DraftTarget) -> None:
        """`source` is one of `eagle_files.as_heads_read`.

        Raises:
            ModelConfigError: it is no EAGLE head, or none for this target.
        """
        if source.has(eagle_files.OF_EAGLE3):
            raise ModelConfigError(f'{source.path} is a head of EAGLE-3: use "method": "eagle3"')
        self._config = source.config
        self._layers = _EagleLayers(without_sections(source.config))
        eagle_files.read_layers(self._layers, source)
        sizes = self._layers.sizes
        head_sizes.require_hidden_size(source, sizes.hidden_size, target)
        head_sizes.require_vocabulary(source, sizes.vocab_size, target)
        self._target = target
        self.width = sizes.hidden_size
        self.vocab_size = sizes.vocab_size

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor:
        own, layers = weights.own, self._layers
        if own.has(f"{layers.names.embedding}.weight"):
            token = layers.embed(own, inputs.step)
        else:
            token = self._target.embed(weights.target, inputs.step)
        bias = own.has("fc.bias")
        x = linear(own, "fc", ops.concat(token, inputs.states), (self.width,), bias=bias)
        rotary = bind_head_rotary(
            own, layers.rotary[0], inputs.step, self._config, interleaved=layers.interleaved
        )
        count = layers.sizes.layers
        return stack(own, x, count, lambda i, x: layers.layer(own, i, x, rotary))

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults:
        return HeadResults(self._target.logits(weights.target, rows), rows)
