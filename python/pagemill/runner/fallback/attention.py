"""Attention of the library's modules over Pagemill's pages.

The library looks up its attention by name in a registry. The functions registered here call what
is attached to the attention module: in a dry run a recorder (`trace`), in steps `PagedAttention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import pad
from transformers import AttentionInterface

from pagemill.ops.table import reference
from pagemill.ops.torch_step import TorchCache, TorchStep
from pagemill.runner.fallback.module import LayerSpec

NAME = "pagemill"
"""In the registry; the library makes no mask for it."""
_ATTRIBUTE = "pagemill_attention"


class Attention(Protocol):
    """q [1, Hq, T, D], k [1, Hk, T, D], v [1, Hk, T, E] -> [1, T, Hq, E]; `options` are what the
    library passes to every implementation."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, options: dict[str, Any]
    ) -> torch.Tensor: ...


def attach(module: torch.nn.Module, function: Attention) -> None:
    """Lets the attention of `module` be computed by `function`."""
    setattr(module, _ATTRIBUTE, function)


def register(name: str = NAME) -> None:
    """Makes the attention known to the library under `name`. Idempotent."""
    AttentionInterface.register(name, _dispatch)


def _dispatch(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    # The interface's signature: other implementations return weights as the second value.
    function: Attention = getattr(module, _ATTRIBUTE)
    return function(query, key, value, attention_mask, options), None


@dataclass(slots=True)
class CurrentStep:
    """The step that runs, for all layers of one module."""

    step: TorchStep | None = None


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Writes the step's keys and values to the layer's cache and attends over the context of each
    request; with no cache, over the request's tokens in the step."""

    spec: LayerSpec
    cache: TorchCache | None
    current: CurrentStep

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, options: dict[str, Any]
    ) -> torch.Tensor:
        step = self.current.step
        assert step is not None and mask is None
        scale = options.get("scaling")
        attributes = {
            "scale": q.shape[-1] ** -0.5 if scale is None else float(scale),
            "window": float(self.spec.window),
            "soft_cap": float(options.get("softcap") or 0.0),
        }
        # Zeros change no product, so keys and values of different widths are stored alike.
        width = max(self.spec.head_dim, self.spec.value_dim)
        queries, keys, values = (_by_token(x, width) for x in (q, k, v))
        if self.cache is None:
            operands = (queries, keys, values)
            (result,) = reference("attention")(operands, attributes | {"causal": 0.0}, step)
        else:
            reference("kv_write")((keys, values, self.cache), {}, step)
            operands = (queries, self.cache, options.get("s_aux"))
            (result,) = reference("paged_attention")(operands, attributes, step)
        return result[None, :, :, : self.spec.value_dim]


def _by_token(x: torch.Tensor, width: int) -> torch.Tensor:
    """[1, H, T, D] -> [T, H, width]."""
    return pad(x[0].transpose(0, 1), (0, width - x.shape[-1])).contiguous()
