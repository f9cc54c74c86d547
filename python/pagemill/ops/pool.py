"""`pool`: one vector for each request, from its tokens of the step, or each token's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from pagemill.ops.checks import require_act, require_rank
from pagemill.ops.trace import Tensor

if TYPE_CHECKING:
    import torch

    from pagemill.ops.torch_step import TorchStep


class PoolKind(IntEnum):
    """How tokens become one vector; the numbers are the format's."""

    MEAN = 0
    FIRST = 1  # the CLS token of an encoder
    LAST = 2
    ALL = 3
    SPLADE = 4  # log(1 + max(0, x)) of the largest x of each column: arXiv 2109.10086


def pool(x: Tensor, kind: PoolKind, *, normalize: bool = False, dtype: str = "f32") -> Tensor:
    """x [T, H] -> [R, H], or of all rows [N, H]; with `normalize`, of L2 norm 1 (a norm below
    1e-12 counts as 1e-12). `dtype` is the result's, "act" or "f32".

    Raises:
        ShapeError: `x` is no activation of rank 2.
    """
    require_act("pool", x=x)
    require_rank("pool", "x", x, 2)
    attributes = [("kind", int(kind)), ("normalize", int(normalize))]
    rows = x.rows if kind is PoolKind.ALL else "requests"
    return x.trace.emit("pool", [x], [((rows, *x.shape[1:]), dtype)], attributes)[0]


def reference(
    inputs: Sequence[torch.Tensor], attributes: Mapping[str, float], step: TorchStep
) -> tuple[torch.Tensor, ...]:
    """The op in torch, in f32."""
    import torch

    x = inputs[0].float()
    kind = PoolKind(int(attributes["kind"]))
    if kind is PoolKind.ALL:
        result = x
    elif kind is PoolKind.MEAN:
        result = torch.stack([x[span.begin : span.end].mean(0) for span in step.spans])
    elif kind is PoolKind.SPLADE:
        # The logarithm grows with x: that of the largest is the largest.
        largest = torch.stack([x[span.begin : span.end].amax(0) for span in step.spans])
        result = largest.relu().log1p()
    elif kind is PoolKind.FIRST:
        result = torch.stack([x[span.begin] for span in step.spans])
    else:
        result = torch.stack([x[span.end - 1] for span in step.spans])
    if attributes.get("normalize", 0.0):
        result = torch.nn.functional.normalize(result, dim=-1, eps=1e-12)
    return (result,)
