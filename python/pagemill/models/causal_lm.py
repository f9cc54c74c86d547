"""The parts of decoders around their layers: embedding, final norm and head, with Llama's names.

x = causal_lm.hidden(weights, inputs, sizes, lambda i, x: self._layer(weights, i, x, rotary))
y = causal_lm.logits(weights, rows, sizes)
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill import ops
from pagemill.layers import embedding, norm
from pagemill.layers.base import Weights
from pagemill.layers.stack import stack
from pagemill.models.base import StepInputs
from pagemill.models.config_keys import DecoderSizes
from pagemill.ops.trace import Tensor

_EMBEDDING = "model.embed_tokens"


def hidden(
    weights: Weights,
    inputs: StepInputs,
    sizes: DecoderSizes,
    make_layer: Callable[[int, Tensor], Tensor],
    *,
    scale: float = 1.0,
    norm_offset: float = 0.0,
) -> Tensor:
    """Token ids -> final, normalized vectors [tokens, hidden]; `make_layer(i, x)` traces layer i.
    `scale` multiplies embeddings, `norm_offset` is added to the weights of the final norm."""
    table = (sizes.vocab_size, sizes.hidden_size)
    x = embedding.embedding(weights, _EMBEDDING, inputs.token_ids, table, scale=scale)
    if inputs.media is not None:
        x = ops.scatter_rows(x, inputs.media.rows, inputs.media.tokens)
    x = stack(weights, x, sizes.layers, make_layer)
    return norm.rms_norm(weights, "model.norm", x, sizes.rms_norm_eps, weight_offset=norm_offset)


def logits(weights: Weights, rows: Tensor, sizes: DecoderSizes) -> Tensor:
    """rows [N, hidden] -> f32 [N, vocab], by `lm_head` or the tied embedding."""
    tied_to = _EMBEDDING if sizes.tied else None
    return embedding.logits(weights, rows, sizes.vocab_size, tied_to=tied_to)
