"""The MTP layer of DeepSeek-V4 as a head: a further layer of the model on its residual streams. It
reads those of the token before behind the last layer, each projected, plus the projected embedding
of the token; what a draft reads of the draft before are the layer's own.

Weights: as the model's layers, and `{enorm,hnorm,e_proj,h_proj,norm}` and `hc_head_*`, as
`layers.streams` has them.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.layers.streams import join
from pagemill.models.deepseek_v4 import DeepseekV4Model
from pagemill.models.draft_heads.base import HeadInputs, HeadResults, HeadWeights
from pagemill.models.draft_heads.mtp import MtpHead
from pagemill.models.draft_heads.target import DraftTarget
from pagemill.ops.trace import Tensor


class StreamsMtpHead(MtpHead):
    """The first MTP layer of a DeepSeek-V4 checkpoint."""

    def __init__(self, target: DraftTarget, weights: Weights, *, gguf: bool) -> None:
        super().__init__(target, weights, gguf=gguf)
        assert isinstance(self._decoder, DeepseekV4Model)
        self._model = self._decoder
        self.width = self._model.sizes.hidden_size * self._model.streams.count

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor:
        named, model, step = self._target.named(weights.target), self._model, inputs.step
        size, prefix = model.sizes.hidden_size, model.prefix(self._layer)
        token = self._target.embed(weights.target, step)
        token = model.norm(named, self._named(self._mtp.embedding_norm), token)
        token = linear(named, f"{prefix}.e_proj", token, (size,))

        def entered(state: Tensor) -> Tensor:
            state = model.norm(named, self._named(self._mtp.state_norm), state)
            state = linear(named, self._named(self._mtp.projection), state, (size,))
            return ops.add(token, state)

        streams = [entered(state) for state in side_by_side(inputs.states, size)]
        x = ops.concat(*streams) if len(streams) > 1 else streams[0]
        rotaries = model.rotaries(named, step.positions)[self._layer]
        return model.streams_layer(named, self._layer, x, rotaries, step.token_ids)

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults:
        named, model = self._target.named(weights.target), self._model
        x = join(named, f"{model.prefix(self._layer)}.hc_head", rows, model.streams)
        x = model.norm(named, self._named(self._mtp.norm), x)
        return HeadResults(self._target.logits(weights.target, x), rows)
