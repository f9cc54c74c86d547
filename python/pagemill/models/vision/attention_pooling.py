"""The head of SigLIP's towers: a learned query attends to all patches of an image, and what it has
seen, behind a norm and a feed-forward layer, is the image's vector.

Weights: `probe`, `attention.{in_proj, out_proj}`, of which the first has queries, keys and values
one after the other, `layernorm` and `mlp.{fc1, fc2}`.
"""

from __future__ import annotations

from pagemill import ops
from pagemill.layers import attention, norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.vision.vision_layers import VisionLayers
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor


def pooled_by_attention(
    weights: Weights, layers: VisionLayers, x: Tensor, tokens: Tensor
) -> Tensor:
    """x [T, hidden], the patches of images, and `tokens`, i32 [media_rows], one of an image each ->
    [media_rows, hidden]. The query stands in the rows of `tokens`; what other rows attend to is
    dropped. `layers` are those of the tower."""
    hidden, shape = layers.hidden_size, layers.shape
    heads = (shape.heads, shape.head_dim)

    def project(index: int, y: Tensor) -> Tensor:
        part = Part(index * hidden, (index + 1) * hidden, 3 * hidden)
        return linear(weights, "attention.in_proj", y, heads, bias=True, rows=part)

    probe = weights.reshaped("probe", (1, 1, hidden), (1, hidden))
    k, v = project(1, x), project(2, x)
    q = ops.scatter_rows(k, project(0, ops.embedding(tokens, probe, outside=0)), tokens)
    y = ops.select_rows(attention.attend_both_ways(q, k, v, shape), tokens)
    y = linear(weights, "attention.out_proj", y, (hidden,), bias=True)
    z = norm.layer_norm(weights, "layernorm", y, layers.eps)
    return ops.add(y, layers.feed_forward(weights, "mlp", z))
