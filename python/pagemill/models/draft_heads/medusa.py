"""Medusa heads (arXiv 2401.10774): residual layers with SiLU on the final hidden state of a token,
and a vocabulary projection behind them. Head i guesses the token i + 2 places after that token, as
the model itself gives the next one.

Weights: `blocks.<head>.layers.<layer>` and `lm_heads.<head>`, or one `lm_head` for all heads, or
none, so that they use the target's. Files of the paper's authors have `<head>.<layer>.linear` for
layers, and the projection as the layer behind the last, `<head>.<layers>`; their configurations
name no architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.linear import linear
from pagemill.models.base import IGNORED_IN_DECODERS, ModelConfigError
from pagemill.models.draft_heads.base import HeadWeights
from pagemill.models.draft_heads.head_sizes import require_hidden_size, require_vocabulary
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.ops.activation import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource

_PREFIX = re.compile(r"(model\.)?medusa_heads?\.")
_LAYER = re.compile(r"(\d{1,3})\.(\d{1,3})\.linear\.(weight|bias)")
_PROJECTION = re.compile(r"(\d{1,3})\.\d{1,3}\.weight")
_HEADS = ("medusa_num_heads", "num_heads")
_SHARED = "lm_head"


def as_heads_read(source: ModelSource) -> ModelSource:
    """`source` with the names `blocks` and `lm_heads`, and with an architecture.

    Raises:
        WeightsError: two tensors have one name.
    """
    tensors: dict[str, TensorLocation] = {}
    for tensor in source.tensors:
        name = _PREFIX.sub("", tensor.name, count=1)
        if found := _LAYER.fullmatch(name):
            name = f"blocks.{found[1]}.layers.{found[2]}.{found[3]}"
        elif found := _PROJECTION.fullmatch(name):
            name = f"lm_heads.{found[1]}.weight"
        if name in tensors:
            raise WeightsError(f"{source.path}: {tensor.name} and another tensor are both {name}")
        tensors[name] = replace(tensor, name=name)
    return source.with_tensors(tensors, {"architectures": ["MedusaModel"]})


class MedusaHeads:
    """The first `count` Medusa heads of a checkpoint."""

    def __init__(self, source: ModelSource, target: DraftTarget, count: int) -> None:
        """`source` is one of `as_heads_read`.

        Raises:
            ModelConfigError: it has no such heads, fewer, or none for this target.
        """
        # Published configurations state fewer heads than their files have.
        in_files = _count(source, "blocks.{}.layers.0.weight")
        if in_files == 0:
            raise ModelConfigError(
                f"{source.path} has no Medusa heads (blocks.0.layers.0.weight or 0.0.linear.weight"
                " is missing); use another method of --speculative-config"
            )
        stated = max(_stated(source, key) for key in _HEADS)
        if stated > in_files:
            raise ModelConfigError(
                f"{source.path} has {in_files} Medusa heads, its configuration states"
                f" {shown(stated)}; use a complete checkpoint"
            )
        if count > in_files:
            raise ModelConfigError(
                f"{source.path} has {in_files} Medusa heads, one for each draft: set"
                f" num_speculative_tokens of --speculative-config to {in_files} or less"
            )
        self._layers = [
            _count(source, f"blocks.{head}.layers.{{}}.weight") for head in range(count)
        ]
        self._has_projections = any(
            source.has(f"lm_heads.{head}.weight") for head in range(in_files)
        )
        self._target = target
        self.width = target.decoder.sizes.hidden_size
        self.vocab_size = target.decoder.sizes.vocab_size
        require_hidden_size(source, _rows(source, "blocks.0.layers.0"), target)
        for name in (_SHARED, "lm_heads.0"):
            if source.has(f"{name}.weight"):
                require_vocabulary(source, _rows(source, name), target)
        used = "|".join(map(str, range(count)))
        self.ignored: Mapping[str, str] = {
            **IGNORED_IN_DECODERS,
            rf"(blocks|lm_heads)\.(?!({used})\.)\d+\..*": "heads of further drafts",
        }

    def logits(
        self, weights: HeadWeights, token_ids: Tensor, states: Tensor, rows: Tensor
    ) -> list[Tensor]:
        del token_ids
        state = ops.select_rows(states, rows)
        return [self._head(weights, head, state) for head in range(len(self._layers))]

    def _head(self, weights: HeadWeights, head: int, x: Tensor) -> Tensor:
        """States [L, H] -> f32 [L, vocabulary]."""
        own = weights.own
        for layer in range(self._layers[head]):
            name = f"blocks.{head}.layers.{layer}"
            y = linear(own, name, x, (self.width,), bias=own.has(f"{name}.bias"))
            x = ops.add(x, ops.activation(y, ActivationKind.SILU))
        if self._has_projections:
            return embedding.logits(own, x, self.vocab_size, f"lm_heads.{head}")
        if own.has(f"{_SHARED}.weight"):
            return embedding.logits(own, x, self.vocab_size, _SHARED)
        return self._target.logits(weights.target, x)


def _count(source: ModelSource, name: str) -> int:
    """How many tensors `name` the source has, numbered from 0."""
    count = 0
    while source.has(name.format(count)):
        count += 1
    return count


def _stated(source: ModelSource, key: str) -> int:
    value = source.config.get(key)
    return value if type(value) is int else 0


def _rows(source: ModelSource, module: str) -> int:
    """Of the matrix `module`; 0 if it is none, so that it fits no target."""
    shape = source.tensor(f"{module}.weight").shape
    return shape[0] if len(shape) == 2 else 0
