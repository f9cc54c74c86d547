"""The MTP layer of a checkpoint as a head: a further layer of the model, on the embedding of a
token beside the final hidden state of the token before it (arXiv 2412.19437, section 2.2).

With several such layers in a checkpoint, the first makes all drafts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagemill import ops
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import IGNORED_IN_DECODERS, Config, ModelConfigError
from pagemill.models.config_keys import as_list
from pagemill.models.decoder import Decoder
from pagemill.models.draft_heads.base import (
    HeadInputs,
    HeadResults,
    HeadWeights,
    MaskQueries,
    bind_head_rotary,
)
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.models.mtp_layer import MtpLayer
from pagemill.ops.trace import Tensor


class MtpHead:
    """The first MTP layer of a target's checkpoint."""

    token_ids: tuple[int, ...] = ()
    masks: MaskQueries | None = None

    def __init__(self, target: DraftTarget, weights: Weights, *, gguf: bool) -> None:
        """`weights` are the target's, whose files may be `gguf`.

        Raises:
            ModelConfigError: the family or the checkpoint has no such layer.
        """
        mtp = target.decoder.mtp
        if mtp is None:
            raise ModelConfigError(
                'method "mtp" of --speculative-config: MTP layers of this architecture are not'
                " supported; use another method"
            )
        mtp = mtp.in_gguf() if gguf else mtp
        self._target = target
        self._mtp = mtp
        self._layer = target.decoder.sizes.layers if mtp.layers is None else 0
        name = f"{self._named(mtp.embedding_norm)}.weight"
        if not target.named(weights).has(name):
            raise ModelConfigError(
                'method "mtp" of --speculative-config: the checkpoint has no MTP layer'
                f" ({name} is missing); use another method"
            )
        self._decoder = _with_layer(target, mtp, self._layer)
        self.width = target.decoder.sizes.hidden_size
        self.vocab_size = target.decoder.sizes.vocab_size
        prefix = re.escape(self._named(mtp.prefix).removeprefix("model."))
        others = rf"(?!(model\.|language_model\.)*{prefix}).*"
        self.ignored: Mapping[str, str] = {
            **IGNORED_IN_DECODERS,
            others: "tensors of the model, or of further MTP layers",
        }

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor:
        named, mtp, decoder = self._target.named(weights.target), self._mtp, self._decoder
        own = self._own(named, mtp.embedding)
        if own is None:
            token = self._target.embed(weights.target, inputs.step)
        else:
            table = (self.vocab_size, self.width)
            token = embedding.embedding(named, own, inputs.step.token_ids, table)
            token = inputs.step.with_media(token)
        token = decoder.norm(named, self._named(mtp.embedding_norm), token)
        state = decoder.norm(named, self._named(mtp.state_norm), inputs.states)
        pair = (state, token) if mtp.state_first else (token, state)
        x = linear(named, self._named(mtp.projection), ops.concat(*pair), (self.width,))
        rotary = bind_head_rotary(
            named,
            decoder.rotary[self._layer],
            inputs.step,
            self._target.rope_config,
            interleaved=decoder.interleaved,
        )
        return decoder.mtp_layer(named, self._layer, x, rotary)

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults:
        named, mtp = self._target.named(weights.target), self._mtp
        normalized = self._decoder.norm(named, self._named(mtp.norm), rows)
        own = self._own(named, mtp.head)
        if own is None:
            logits = self._target.logits(weights.target, normalized)
        else:
            logits = embedding.logits(named, normalized, self.vocab_size, own)
        return HeadResults(logits, normalized if mtp.passes_normalized else rows)

    def _named(self, name: str) -> str:
        return name.format(self._layer)

    def _own(self, weights: Weights, module: str | None) -> str | None:
        """The name of a module that the checkpoint has for the layer alone; None if it has none."""
        if module is None or not weights.has(f"{self._named(module)}.weight"):
            return None
        return self._named(module)


def _with_layer(target: DraftTarget, mtp: MtpLayer, layer: int) -> Decoder:
    """A decoder of the family whose layer number `layer` is the MTP layer."""
    own, layers = target.decoder.config, target.decoder.sizes.layers
    kinds = {key: _kinds(own, key, kind, layer, layers) for key, kind in mtp.kinds.items()}
    config = {**own, **kinds, **mtp.fields, "num_hidden_layers": layer + 1}
    decoder = type(target.decoder).from_config(config)
    names = {"layers": mtp.layers, "feed_forward_norm": mtp.feed_forward_norm}
    stated = {key: name for key, name in names.items() if name is not None}
    decoder.names = replace(decoder.names, **stated)
    return decoder


def _kinds(config: Config, key: str, kind: str | None, layer: int, layers: int) -> list[Any]:
    """The list `key` up to the entry of the MTP layer, which is number `layer`, for a model of
    `layers`: the one that the configuration states, or `kind`."""
    listed = as_list(config.get(key)) or []
    stated = as_list(config.get(f"mtp_{key}")) or listed[layers:] or [kind]
    return [*listed[:layer], *[kind] * (layer - len(listed)), stated[0]]
