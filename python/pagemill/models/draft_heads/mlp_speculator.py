"""MLP speculators (arXiv 2404.19124): a chain of heads, each of which reads the state of the head
before it and the embedding of that head's most likely token; the first reads the target's final
hidden state of a token and the embedding of the next one.

Weights: `emb.<head>`, `proj.<head>`, `ln.<head>` and `head.<head>`, with or without `speculator.`
in front. If weights are tied (`tie_weights`), a head without its own has those of the head before
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.norm import rms_norm
from pagemill.models.base import IGNORED_IN_DECODERS, ModelConfigError
from pagemill.models.config_keys import flag, positive_int
from pagemill.models.draft_heads.base import HeadWeights
from pagemill.models.draft_heads.head_sizes import require_hidden_size, require_vocabulary
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.ops.activation import ActivationKind
from pagemill.ops.trace import Tensor
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource

_EPS = 1e-6


def as_heads_read(source: ModelSource) -> ModelSource:
    """`source` without `speculator.` in front of names, and with an architecture.

    Raises:
        WeightsError: two tensors have one name.
    """
    tensors: dict[str, TensorLocation] = {}
    for tensor in source.tensors:
        name = tensor.name.removeprefix("speculator.")
        if name in tensors:
            raise WeightsError(f"{source.path}: {tensor.name} and another tensor are both {name}")
        tensors[name] = replace(tensor, name=name)
    return source.with_tensors(tensors, {"architectures": ["MLPSpeculatorPreTrainedModel"]})


class MlpSpeculator:
    """The first `count` heads of an MLP speculator."""

    def __init__(self, source: ModelSource, target: DraftTarget, count: int) -> None:
        """`source` is one of `as_heads_read`.

        Raises:
            ModelConfigError: it is no such speculator, has fewer heads, or none for this target.
        """
        config = source.config
        total = positive_int(config, "n_predict")
        if count > total:
            raise ModelConfigError(
                f"{source.path} has {total} heads, one for each draft: set num_speculative_tokens"
                f" of --speculative-config to {total} or less"
            )
        self.width = positive_int(config, "emb_dim")
        self.vocab_size = positive_int(config, "vocab_size")
        require_hidden_size(source, self.width, target)
        require_vocabulary(source, self.vocab_size, target)
        # 0 stands for the width of the states.
        stated = config.get("inner_dim")
        self._inner = self.width if stated == 0 else positive_int(config, "inner_dim", self.width)
        self._tied = flag(config, "tie_weights", False)
        self._scales_input = flag(config, "scale_input", False)
        self._count = count
        # State and embedding of a head have shares of its sum that keep its size: the state's
        # becomes sqrt(1/2) over all heads.
        state = 0.5 ** (0.5 / total)
        self._embedding_scale = math.sqrt((1 - state**2) * (self._inner / 2)) / state
        used = "|".join(map(str, range(count)))
        self.ignored: Mapping[str, str] = {
            **IGNORED_IN_DECODERS,
            rf"(emb|proj|ln|head)\.(?!({used})\.)\d+\..*": "heads of further drafts",
        }

    def logits(
        self, weights: HeadWeights, token_ids: Tensor, states: Tensor, rows: Tensor
    ) -> list[Tensor]:
        own, table = weights.own, (self.vocab_size, self._inner)
        state = ops.select_rows(states, rows)
        if self._scales_input:
            state = rms_norm(own, "", state, _EPS, weight=False)
            state = ops.scale(state, math.sqrt(0.5))
        token = embedding.embedding(own, "emb.0", token_ids, table)
        token = ops.select_rows(token, rows)
        found: list[Tensor] = []
        for head in range(self._count):
            if head > 0:
                likely, _ = ops.argmax(found[-1])
                weight = own.matrix(f"{self._named(own, 'emb', head)}.weight", table)
                token = ops.embedding(likely, weight, outside=0)
            x = linear(own, self._named(own, "proj", head), state, (self._inner,))
            x = ops.add(x, ops.scale(token, self._embedding_scale))
            norm = self._named(own, "ln", head)
            x = rms_norm(own, norm, x, _EPS)
            x = ops.add(x, own.vector(f"{norm}.bias", self._inner))
            state = ops.activation(x, ActivationKind.GELU)
            projection = self._named(own, "head", head)
            found.append(embedding.logits(own, state, self.vocab_size, projection))
        return found

    def _named(self, own: Weights, module: str, head: int) -> str:
        """That of the head, or with tied weights of the last one before it that has its own."""
        while self._tied and head > 0 and not own.has(f"{module}.{head}.weight"):
            head -= 1
        return f"{module}.{head}"
